package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

func TestClaimsSayWhereTheDataIs(t *testing.T) {
	pod := snapshot.Pod{Volumes: []snapshot.PodVolume{{ClaimName: "data"}, {ClaimName: "new"}, {ClaimName: "gone"}, {ClaimName: "gone"}}}
	refused := []refusal.Refusal{{Cluster: "west", Reason: "Quota"}}
	assert.Equal(t, []Claim{
		{Name: "data", StorageClass: "lodestone", Volume: "pv", DataIn: "west", Bytes: 7},
		{Name: "new", StorageClass: "lodestone", Refusals: refused},
		{Name: "logs", Near: true, Volume: "nfs", Prefers: "east", Bytes: 3},
		{Name: "copy", CopyOf: "data", Moving: true},
		{Name: "gone", Unknown: true},
	}, Claims(pod, []snapshot.PodClaim{
		{Name: "data", Claim: &snapshot.Claim{ClassName: "lodestone", VolumeName: "pv"}, Volume: &snapshot.Volume{Cluster: "west", Bytes: 7}},
		{Name: "new", Claim: &snapshot.Claim{ClassName: "lodestone", Refusals: refused}},
		{Name: "logs", Claim: &snapshot.Claim{VolumeName: "nfs"}, Volume: &snapshot.Volume{Prefers: "east", Bytes: 3}, Near: true},
		{Name: "copy", Claim: &snapshot.Claim{Source: "data", Moving: true}},
	}))
	assert.Empty(t, Claims(snapshot.Pod{}, nil))
}

func TestScoresComeHighestFirst(t *testing.T) {
	home, west, a := score.Mark{Cluster: "home", Score: 1}, score.Mark{Cluster: "west", Score: 7}, score.Mark{Cluster: "a", Score: 1}
	assert.Equal(t, []score.Mark{west, a, home}, Scores(score.Scale{"home": home, "west": west, "a": a}))
}

func TestDecisionIsCutToItsRoom(t *testing.T) {
	small := Decision{Claims: []Claim{{Name: "data"}}, Nodes: []Verdict{{Cluster: "west", Nodes: 1}},
		Scores: []score.Mark{{Cluster: "west", Score: 10}}}
	cut := small.fit()
	assert.Zero(t, cut.Omitted)
	assert.Equal(t, 3*overhead+overhead/2+len("data")+2*len("west"), cut.bytes)
	cut.bytes = 0
	assert.Equal(t, small, cut)

	var large Decision
	for i := range 100 {
		name := fmt.Sprint(i) + strings.Repeat("x", 100)
		large.Claims = append(large.Claims, Claim{Name: name})
		large.Nodes = append(large.Nodes, Verdict{Cluster: name})
		large.Scores = append(large.Scores, score.Mark{Cluster: name, Data: &score.Data{}, Siblings: &score.Siblings{},
			Room: &score.Room{Class: name}})
	}
	cut = large.fit()
	assert.LessOrEqual(t, cut.bytes, maxDecision)
	for list, kept := range map[string]int{"claims": len(cut.Claims), "nodes": len(cut.Nodes), "scores": len(cut.Scores)} {
		assert.Positive(t, kept, "some of the %s stay", list)
	}
	assert.Equal(t, 300, len(cut.Claims)+len(cut.Nodes)+len(cut.Scores)+cut.Omitted, "what is left out is counted")
	assert.Equal(t, len(cut.Claims), cap(cut.Claims), "what is left out is let go")
}

func TestTallyCountsByClusterAndReason(t *testing.T) {
	var tally Tally
	assert.Empty(t, tally.Refused())
	for i := range 5 {
		tally.Add("home", filter.DataElsewhere, fmt.Sprintf("home-%d", i))
		tally.Add("west", filter.Accepted, "west")
		tally.Add("east", filter.DataElsewhere, "east")
	}
	tally.Add("east", filter.RefusedLately, "east-2")
	assert.Equal(t, []Verdict{
		{Cluster: "home", Reason: filter.DataElsewhere, Nodes: 5, Examples: []string{"home-0", "home-1", "home-2"}},
		{Cluster: "west", Nodes: 5},
		{Cluster: "east", Reason: filter.DataElsewhere, Nodes: 5, Examples: []string{"east", "east", "east"}},
		{Cluster: "east", Reason: filter.RefusedLately, Nodes: 1, Examples: []string{"east-2"}},
	}, tally.Verdicts())
	assert.Equal(t, map[filter.Reason]int{filter.DataElsewhere: 10, filter.RefusedLately: 1}, tally.Refused())
}

func TestTallyCountsManyClusters(t *testing.T) {
	var tally Tally
	const clusters, rounds = 50, 4
	for range rounds {
		for i := range clusters {
			tally.Add(fmt.Sprint(i), filter.Accepted, "node")
		}
	}
	require.Len(t, tally.Verdicts(), clusters)
	for i, verdict := range tally.Verdicts() {
		assert.Equal(t, Verdict{Cluster: fmt.Sprint(i), Nodes: rounds}, verdict)
	}
}

func TestVerdictAsJSON(t *testing.T) {
	for want, verdict := range map[string]Verdict{
		`{"cluster":"west","reason":"Accepted","nodes":2}`: {Cluster: "west", Nodes: 2},
		fmt.Sprintf(`{"cluster":"west","reason":"ClusterNotReady","sentence":%q,"nodes":1,"examples":["west"]}`,
			filter.ClusterNotReady.Sentence()): {
			Cluster: "west", Reason: filter.ClusterNotReady, Nodes: 1, Examples: []string{"west"},
		},
	} {
		got, err := json.Marshal(verdict)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}
