package replicas

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// mostWrites is what one point may cost both API servers together, with the requests by which is asked whether a version may go. 10,000
// claims of which each has a point every 15 minutes are 11 points a second.
const mostWrites = 40

// alive says whether a program writes that each second or so whatever it does: that it and its cluster are alive, and what its cluster
// has, or asks what it may do.
func alive(q fabric.Request) bool {
	return q.ObjectRef.Resource == "leases" || q.What() == "homeclusters/status" || strings.HasPrefix(q.ObjectRef.Name, "home-epoch-") ||
		strings.HasPrefix(q.ObjectRef.Resource, "selfsubject")
}

// writes counts what Lodestone's programs have written in both clusters since the start.
func writes(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, cluster := range []string{"home", "west"} {
		requests, err := bed.Requests(cluster)
		require.NoError(t, err)
		for _, q := range requests {
			if strings.HasPrefix(q.User.Username, "system:serviceaccount:lodestone-") && !alive(q) &&
				slices.Contains([]string{"create", "update", "patch", "delete"}, q.Verb) {
				all[cluster+": "+q.Verb+" "+q.What()]++
			}
		}
	}
	return all
}

// TestAPointCostsFewWrites counts what Lodestone's programs write in both clusters for points that are cut, copied, sealed and
// trimmed while nothing is in their way.
func TestAPointCostsFewWrites(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, "home")
	made := replicate(t, namespace, "west")
	pause := func(text string) {
		t.Helper()
		must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":`+text+`}}`))
	}
	// rest pauses the replica, and returns what was written until its last point was over.
	rest := func() map[string]int {
		t.Helper()
		pause("true")
		says(t, made, "Paused", "spec.paused is set")
		until(t, "the last point is over", made, func(now *v1alpha1.VolumeReplica) bool { return now.Status.Standbys[0].Point == "" })
		return writes(t)
	}
	var last time.Time
	points := func(n int) {
		t.Helper()
		for range n {
			last = sealed(t, made, last).Status.Standbys[0].Sealed.Time
		}
	}
	points(3) // from then on each point has a version to trim
	before := rest()
	pause("false")
	points(4)
	after := rest()
	total := 0
	cut := after["home: create volumesnapshots"] - before["home: create volumesnapshots"]
	require.GreaterOrEqual(t, cut, 4, "%v", after)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n > 0 {
			total += n
			t.Logf("%5.1f  %s", float64(n)/float64(cut), what)
		}
	}
	t.Logf("%5.1f  writes a point, of %d points", float64(total)/float64(cut), cut)
	require.LessOrEqual(t, float64(total)/float64(cut), float64(mostWrites))
	removes(t, made)
}
