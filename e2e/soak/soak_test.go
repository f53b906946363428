package soak

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(context.Context) error { return nil })
}

func TestManyClaimsSurviveThatAllProgramsAreKilled(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	summary, err := Run(t.Context(), Options{
		Seed: uint64(time.Now().UnixNano()), Claims: 100, Every: 2 * time.Second, Kills: 4, Patience: 2 * time.Minute, Say: t.Logf,
	})
	require.NoError(t, err)
	assert.Empty(t, summary.Problems, "seed %d", summary.Seed)
	assert.Equal(t, 100, summary.Claims)
}
