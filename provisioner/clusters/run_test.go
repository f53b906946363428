package clusters

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The clock is that of synctest: nothing here depends on how fast it runs.
func TestPokesWithoutEndLeadToLooksAtMostOnceInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		poke := make(chan struct{}, 1)
		go func() {
			for ctx.Err() == nil {
				select {
				case poke <- struct{}{}:
				default:
				}
				time.Sleep(time.Millisecond)
			}
		}()
		looks := 0
		repeat(ctx, poke, func() (time.Duration, bool) {
			looks++
			return time.Hour, true
		})
		time.Sleep(time.Second) // until nobody pokes any more
		assert.LessOrEqual(t, looks, 1+int(time.Minute/leastPause))
		assert.Greater(t, looks, 50, "but each poke leads to one")
	})
}

func TestALookThatAsksForTheNextOneSoonGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		looks := 0
		repeat(t.Context(), nil, func() (time.Duration, bool) {
			looks++
			return 50 * time.Millisecond, looks < 5
		})
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
	})
}
