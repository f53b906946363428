package clusters

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// looks returns when a cluster is looked at, in intervals and while asking asks for it; the clock is
// that of synctest, so nothing depends on how fast anything runs.
func looks(t *testing.T, lasts, interval time.Duration, asking func(context.Context, signals)) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	s, begin := newSignals(), time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		asking(ctx, s)
	}()
	var at []time.Duration
	s.repeat(ctx, func() (time.Duration, bool) {
		at = append(at, time.Since(begin))
		return interval, true
	})
	<-ended
	return at
}

func TestAClusterThatNudgesWithoutEndIsLookedAtEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, 10*time.Minute, time.Hour, func(ctx context.Context, s signals) {
			for ctx.Err() == nil {
				s.Nudge()
				time.Sleep(time.Millisecond)
			}
		})
		assert.LessOrEqual(t, len(at), 6+int(10*time.Minute/mostPause))
		assert.Greater(t, len(at), int(10*time.Minute/mostPause), "but never left alone")
	})
}

func TestAClusterThatNudgesNowAndThenIsLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, time.Minute, time.Hour, func(_ context.Context, s signals) {
			time.Sleep(10 * time.Second)
			s.Nudge()
			time.Sleep(10 * time.Second)
			s.Nudge()
			time.Sleep(leastPause / 2)
			s.Nudge()
		})
		assert.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 20*time.Second + leastPause}, at)
	})
}

func TestAClusterThatNudgesNoMoreIsHeardAtOnceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, 2*time.Minute, 3*time.Second, func(_ context.Context, s signals) {
			for range 600 {
				s.Nudge()
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(2*mostPause + 1234*time.Millisecond)
			s.Nudge()
		})
		assert.Contains(t, at, 91234*time.Millisecond)
	})
}

func TestAPokeOfHomeWaitsForNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, time.Minute, time.Hour, func(_ context.Context, s signals) {
			for range 100 { // its pause is long by now
				s.Nudge()
				time.Sleep(100 * time.Millisecond)
			}
			s.Poke()
		})
		assert.Contains(t, at, 10*time.Second)
	})
}

func TestALookThatAsksForTheNextOneSoonGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		newSignals().repeat(t.Context(), func() (time.Duration, bool) {
			looks++
			return 50 * time.Millisecond, looks < 5
		})
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
	})
}

func TestWhichChangesOfARemoteClusterAreHomes(t *testing.T) {
	of := func(change func(*v1alpha1.RemoteCluster)) *v1alpha1.RemoteCluster {
		remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "r1", Generation: 1, Finalizers: []string{"f"}}}
		change(remote)
		return remote
	}
	before := of(func(*v1alpha1.RemoteCluster) {})
	for name, row := range map[string]struct {
		after *v1alpha1.RemoteCluster
		want  bool
	}{
		"its status":                    {after: of(func(r *v1alpha1.RemoteCluster) { r.Status.Volumes, r.ResourceVersion = 7, "8" })},
		"its spec":                      {after: of(func(r *v1alpha1.RemoteCluster) { r.Generation = 2 }), want: true},
		"it is to be removed":           {after: of(func(r *v1alpha1.RemoteCluster) { r.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), want: true},
		"its finalizers":                {after: of(func(r *v1alpha1.RemoteCluster) { r.Finalizers = nil }), want: true},
		"another one of the same name":  {after: of(func(r *v1alpha1.RemoteCluster) { r.UID = "r2" }), want: true},
		"it is gone, or was just found": {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, changedByHome(before, row.after))
			assert.Equal(t, row.want, changedByHome(row.after, before))
		})
	}
}
