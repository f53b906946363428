package server_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// during calls filter, and changes the view when the call reads the time for the
// n-th time: once when it arrives, then before each decision.
func during(t *testing.T, s *server.Server, pod string, names []string, n int64, change func()) extenderv1.ExtenderFilterResult {
	t.Helper()
	var reads atomic.Int64
	s.Now = func() time.Time {
		if reads.Add(1) == n {
			change()
		}
		return time.Now()
	}
	return ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith(pod), NodeNames: &names})
}

func TestFilterWaitsForWhatKubeSchedulerHasSeen(t *testing.T) {
	t.Run("a claim", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		claim, _ := s.View.Claims.Get("app/data")
		s.View.Claims.Delete("app/data")
		result := during(t, s, "data", []string{"home-1", "west"}, 1, func() {
			time.AfterFunc(10*time.Millisecond, func() { s.View.Claims.Set("app/data", claim) })
		})
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"west"}, *result.NodeNames)
	})
	t.Run("a namespace", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true})
		opened, _ := s.View.Namespaces.Get("app")
		s.View.Namespaces.Delete("app")
		result := during(t, s, "data", []string{"home-1", "west"}, 1, func() {
			time.AfterFunc(10*time.Millisecond, func() { s.View.Namespaces.Set("app", opened) })
		})
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"west"}, *result.NodeNames)
	})
	t.Run("a node", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		s.View.Classes.Set("lodestone", &snapshot.Class{})
		s.View.Namespaces.Set("app", nil)
		s.View.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound", ClassName: "lodestone"})
		result := during(t, s, "unbound", []string{"home-new", "west"}, 4, func() { s.View.Nodes.Set("home-new", keys.Home) })
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"home-new"}, *result.NodeNames)
		assert.Equal(t, extenderv1.FailedNodesMap{"west": filter.NotOffloaded.Sentence()}, result.FailedAndUnresolvableNodes)
		assert.InDelta(t, 1, counter(t, s, `lodestone_extender_waits_total{outcome="caught_up"}`), 0)
	})
}

func TestFilterWaitsNoLongerThanItsPatience(t *testing.T) {
	s := newServer()
	names := []string{"home-1", "west"}
	result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith("never"), NodeNames: &names})
	require.NotNil(t, result.NodeNames)
	assert.Equal(t, names, *result.NodeNames)
	assert.InDelta(t, 1, counter(t, s, `lodestone_extender_waits_total{outcome="gave_up"}`), 0)
}
