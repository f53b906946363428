package proof_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

var (
	node = proof.Node{Cluster: keys.Home, Name: "home-1"}
	pod  = proof.Pod{UID: "p1", Name: "db-0", Node: "home-1", Grace: 30}
)

func TestItIsProvenThatNobodyWrites(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		seen proof.Seen
		away bool
		// remembered says whether the pod, which is gone, still is a second later and long after.
		second, long bool
		why          string
		nodeAway     bool
	}{
		"for all that is known it runs on":        {second: true, why: "for pod db-0, which may still write on node home-1"},
		"it was seen to end":                      {seen: proof.Seen{Ended: map[types.UID]bool{"p1": true}}},
		"its node is gone, or surely off":         {seen: proof.Seen{Nodes: map[proof.Node]proof.Absence{node: {Off: true}}}},
		"another pod of its name was seen to end": {seen: proof.Seen{Ended: map[types.UID]bool{"p2": true}}, second: true, why: "pod db-0"},
		"its node is silent": {seen: proof.Seen{Nodes: map[proof.Node]proof.Absence{node: {Why: "the node is not ready"}}},
			second: true, long: true, why: "nobody writes on node home-1 of home", nodeAway: true},
		"the cluster of the volume is away, which says nothing of home": {away: true, second: true, why: "pod db-0"},
		"it is there": {seen: proof.Seen{Writers: []proof.Pod{pod}}, second: true, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			row.seen.Margin = time.Minute
			known := proof.Next(proof.Known{Pods: []proof.Pod{pod}}, now, row.seen, row.away)
			known = proof.Next(known, now.Add(time.Second), row.seen, row.away)
			require.Equal(t, row.second, len(known.Pods) == 1)
			why, nodeAway := proof.WhyNot(known, now.Add(time.Second), row.seen, row.away)
			assert.Equal(t, row.nodeAway, nodeAway)
			if assert.Contains(t, why, row.why); row.why == "" {
				assert.Empty(t, why)
			}
			// Its grace period and the margin take 90 seconds.
			assert.Equal(t, row.second, len(proof.Next(known, now.Add(89*time.Second), row.seen, row.away).Pods) == 1)
			assert.Equal(t, row.long, len(proof.Next(known, now.Add(90*time.Second), row.seen, row.away).Pods) == 1)
		})
	}
}

func TestWhatIsSilentIsAskedForAgain(t *testing.T) {
	other := proof.Node{Cluster: keys.Home, Name: "home-2"}
	known := proof.Known{Ran: []proof.Node{node, other}, Pods: []proof.Pod{pod}}
	seen := proof.Seen{Users: []proof.Node{node}, Writers: []proof.Pod{pod}}
	assert.Equal(t, []proof.Node{other}, proof.NodesToAsk(known, seen, false), "a node in use is remembered anyway")
	assert.Equal(t, []proof.Node{node, other}, proof.NodesToAsk(known, seen, true))
	assert.Equal(t, []proof.Node{node, other}, proof.Next(known, time.Now(), proof.Seen{Users: []proof.Node{node},
		Nodes: map[proof.Node]proof.Absence{other: {Why: "the node is not ready"}}}, false).Ran)
	assert.Equal(t, []proof.Node{node}, proof.Next(known, time.Now(), seen, false).Ran)
	assert.Equal(t, map[types.UID]bool{"p1": true}, proof.Forgotten(known, proof.Known{Ran: known.Ran}))
}
