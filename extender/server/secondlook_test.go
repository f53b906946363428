package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestARefusalOfAllNodesThatOneChangeEndsIsLookedAtTwice(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*snapshot.Snapshot)
	}{
		"the end of a move": {
			before: func(v *snapshot.Snapshot) {
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv", Moving: true})
			},
			after: func(v *snapshot.Snapshot) {
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv"})
			},
		},
		"room for one more volume": {
			before: func(v *snapshot.Snapshot) {
				v.Classes.Set("lodestone", &snapshot.Class{})
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", ClassName: "lodestone"})
				v.StorageClasses().Set("disk", &storagev1.StorageClass{
					ObjectMeta:  metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
					Provisioner: "disk",
				})
				v.Limits.Set("home-1", snapshot.Limits{"disk": 0})
			},
			after: func(v *snapshot.Snapshot) { v.Limits.Set("home-1", snapshot.Limits{"disk": 1}) },
		},
		"the volume of a data source": {
			before: func(v *snapshot.Snapshot) {
				v.Clusters.Set("west", &snapshot.Cluster{Ready: true})
				v.Classes.Set("lodestone", &snapshot.Class{})
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", ClassName: "lodestone", Source: "source"})
				v.Claims.Set("app/source", &snapshot.Claim{UID: "source", ClassName: "lodestone"})
			},
			after: func(v *snapshot.Snapshot) {
				v.Volumes.Set("pv-source", &snapshot.Volume{Cluster: keys.Home, ClaimUID: "source"})
				v.Claims.Set("app/source", &snapshot.Claim{UID: "source", ClassName: "lodestone", VolumeName: "pv-source"})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			test.before(s.View)
			names := []string{"home-1", "west"}
			// The time is read when the call arrives, before the decision, and before
			// the pause.
			result := during(t, s, "data", names, 3, func() { test.after(s.View) })
			require.NotNil(t, result.NodeNames)
			assert.Len(t, *result.NodeNames, 1)
			assert.Len(t, explained(t, s).Decisions, 1)
			assert.Len(t, explained(t, s).Decisions[0].Nodes, 2, "what is explained is what was answered")
		})
	}
}

// Pods that wait for long are tried again and again, and kube-scheduler places one
// after another.
func TestSecondLooksAreRare(t *testing.T) {
	s := newServer()
	s.View.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv", Moving: true})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reads := 0
	s.Now = func() time.Time { reads++; return now }
	// decisions is how often one call decides: it reads the time when it arrives, for
	// each decision, before it may pause, and when it ends.
	decisions := func() int {
		reads = 0
		ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
		return reads - 3
	}
	assert.Equal(t, 2, decisions())
	assert.Equal(t, 1, decisions())
	now = now.Add(249 * time.Millisecond)
	assert.Equal(t, 1, decisions())
	now = now.Add(time.Millisecond)
	assert.Equal(t, 2, decisions())
}

func TestARefusalThatOneChangeDoesNotEndIsNotLookedAtTwice(t *testing.T) {
	s := newServer()
	result := during(t, s, "data", []string{"home-1"}, 3, func() {
		s.View.Volumes.Set("pv", &snapshot.Volume{Cluster: keys.Home, ClaimUID: "uid"})
	})
	assert.Len(t, result.FailedAndUnresolvableNodes, 1)
}
