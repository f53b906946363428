package remote

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestReadinessOfRemoteClustersIsExposed(t *testing.T) {
	objects := cache.NewSharedIndexInformer(nil, &v1alpha1.RemoteCluster{}, 0, nil)
	for name, status := range map[string]metav1.ConditionStatus{"west": metav1.ConditionTrue, "east": metav1.ConditionFalse, "new": ""} {
		remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			remote.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: status}, {Type: v1alpha1.HomeInForce, Status: status}}
		}
		require.NoError(t, objects.GetStore().Add(remote))
	}
	require.NoError(t, testutil.CollectAndCompare(New(Config{Objects: objects}), strings.NewReader(`
# HELP lodestone_provisioner_home_in_force 0 while this home cluster does nothing in a remote cluster because a copy of it may act there, else 1.
# TYPE lodestone_provisioner_home_in_force gauge
lodestone_provisioner_home_in_force{cluster="east"} 0
lodestone_provisioner_home_in_force{cluster="new"} 1
lodestone_provisioner_home_in_force{cluster="west"} 1
# HELP lodestone_provisioner_remote_cluster_ready 1 if a RemoteCluster is Ready, 0 if not.
# TYPE lodestone_provisioner_remote_cluster_ready gauge
lodestone_provisioner_remote_cluster_ready{cluster="east"} 0
lodestone_provisioner_remote_cluster_ready{cluster="new"} 0
lodestone_provisioner_remote_cluster_ready{cluster="west"} 1
`)))
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
		"its status": {after: of(func(r *v1alpha1.RemoteCluster) { r.Status.Volumes, r.ResourceVersion = 7, "8" })},
		"its spec":   {after: of(func(r *v1alpha1.RemoteCluster) { r.Generation = 2 }), want: true},
		"it is to be removed": {after: of(func(r *v1alpha1.RemoteCluster) {
			r.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}), want: true},
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

func TestOnlyTheClusterThatAVolumeCarriesMaySayThatItIsGone(t *testing.T) {
	west := func(recorded, made string) *v1alpha1.RemoteCluster {
		object := remote("west", recorded, 1)
		object.Annotations = map[string]string{keys.ClusterUID: made}
		return object
	}
	for name, test := range map[string]struct {
		remote *v1alpha1.RemoteCluster
		marked string
		want   bool
	}{
		"the volume carries it":                           {remote: west("", ""), marked: "uid-west", want: true},
		"the volume carries another":                      {remote: west("uid-west", "uid-west"), marked: "uid-east"},
		"the volume carries none, the status names it":    {remote: west("uid-west", ""), want: true},
		"the volume carries none, peer made it for it":    {remote: west("uid-west", "uid-west"), want: true},
		"the volume carries none, peer made it otherwise": {remote: west("uid-west", "uid-east")},
		"nothing says which cluster it should be":         {remote: west("", "")},
		"the RemoteCluster is gone":                       {marked: "uid-west"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-west"}})
			same, err := Same(t.Context(), client, test.remote, test.marked)
			require.NoError(t, err)
			assert.Equal(t, test.want, same)
		})
	}
}

// looks returns the times of all probes, in intervals and while asking triggers more; the
// clock is synctest's, so the speed of the machine does not matter.
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
				s.CheckSoon()
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
			s.CheckSoon()
			time.Sleep(10 * time.Second)
			s.CheckSoon()
			time.Sleep(leastPause / 2)
			s.CheckSoon()
		})
		assert.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 20*time.Second + leastPause}, at)
	})
}

func TestAClusterThatNudgesNoMoreIsHeardAtOnceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, 2*time.Minute, 3*time.Second, func(_ context.Context, s signals) {
			for range 600 {
				s.CheckSoon()
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(2*mostPause + 1234*time.Millisecond)
			s.CheckSoon()
		})
		assert.Contains(t, at, 91234*time.Millisecond)
	})
}

func TestAPokeOfHomeWaitsForNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, time.Minute, time.Hour, func(_ context.Context, s signals) {
			for range 100 { // by now its pause is long
				s.CheckSoon()
				time.Sleep(100 * time.Millisecond)
			}
			s.CheckNow()
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
