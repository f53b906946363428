package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestClaimsSayWhereTheDataIs(t *testing.T) {
	pod := snapshot.Pod{Volumes: []snapshot.PodVolume{{ClaimName: "data"}, {ClaimName: "new"}, {ClaimName: "gone"}, {ClaimName: "gone"}}}
	refused := []locality.Refusal{{Cluster: "west", Reason: "Quota"}}
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

func podNamed(name string) snapshot.Pod {
	return snapshot.Pod{Namespace: "app", Name: name, UID: "uid-" + name}
}

func decided(verb string, cluster string) Decision {
	return Decision{Verb: verb, Nodes: []Verdict{{Cluster: cluster, Nodes: 1}}}
}

// clusters returns the clusters of the decisions that are kept, by verb.
func clusters(t *testing.T, j *Journal, pod snapshot.Pod) map[string]string {
	t.Helper()
	kept, ok := j.Get(pod.Namespace, pod.Name)
	require.True(t, ok)
	assert.Equal(t, pod.UID, kept.UID)
	found := map[string]string{}
	for _, decision := range kept.Decisions {
		found[decision.Verb] = decision.Nodes[0].Cluster
	}
	require.Len(t, found, len(kept.Decisions), "one decision of each verb")
	return found
}

func TestJournalKeepsTheLastDecisionOfEachVerb(t *testing.T) {
	j := NewJournal()
	web := podNamed("web")
	_, ok := j.Get("app", "web")
	assert.False(t, ok)

	j.Add(web, decided("filter", "old"))
	j.Add(web, decided("preempt", "west"))
	j.Add(web, decided("filter", "new"))
	assert.Equal(t, map[string]string{"filter": "new", "preempt": "west"}, clusters(t, j, web))
	kept, _ := j.Get("app", "web")
	assert.Equal(t, "filter", kept.Decisions[0].Verb, "the newest comes first")
	_, ok = j.Get("web", "app")
	assert.False(t, ok)

	again := web
	again.UID = "another"
	j.Add(again, decided("prioritize", "east"))
	assert.Equal(t, map[string]string{"prioritize": "east"}, clusters(t, j, again), "a pod made anew has no past")
}

// measured returns how many pods are kept, and their bytes by a count of its own.
func measured(t *testing.T, j *Journal) (pods, bytes int) {
	t.Helper()
	for i := range j.buckets {
		list := j.buckets[i].Load()
		if list == nil {
			continue
		}
		assert.LessOrEqual(t, len(*list), podsPerBucket)
		for _, pod := range *list {
			pods++
			bytes += len(pod.Namespace) + len(pod.Name) + len(pod.UID)
			for _, decision := range pod.Decisions {
				for _, claim := range decision.Claims {
					bytes += 96 + len(claim.Name) + len(claim.StorageClass) + len(claim.Volume) + len(claim.DataIn)
				}
				for _, verdict := range decision.Nodes {
					bytes += 64 + len(verdict.Cluster) + len(strings.Join(verdict.Examples, ""))
				}
			}
		}
	}
	return pods, bytes
}

func TestJournalIsBoundedByCount(t *testing.T) {
	j := NewJournal()
	const latest, all = 2000, 50_000
	for i := range all {
		j.Add(podNamed(fmt.Sprint(i)), decided("filter", "west"))
	}
	pods, _ := measured(t, j)
	assert.LessOrEqual(t, pods, buckets*podsPerBucket)
	assert.Greater(t, pods, buckets*podsPerBucket*9/10, "room is used")
	missing := 0
	for i := all - latest; i < all; i++ {
		if _, ok := j.Get("app", fmt.Sprint(i)); !ok {
			missing++
		}
	}
	assert.Less(t, missing, latest/100, "the latest pods are kept")
}

func TestJournalIsBoundedByBytes(t *testing.T) {
	j := NewJournal()
	var claims []Claim
	for i := range 1000 {
		claims = append(claims, Claim{Name: strings.Repeat("c", 253), Volume: fmt.Sprint(i)})
	}
	for i := range 20_000 {
		for _, verb := range []string{"filter", "prioritize", "preempt"} {
			j.Add(podNamed(fmt.Sprint(i)), Decision{Verb: verb, Claims: claims})
		}
	}
	pods, bytes := measured(t, j)
	assert.LessOrEqual(t, bytes, buckets*bytesPerBucket)
	assert.Equal(t, buckets, pods, "each bucket has room for one such pod")

	monster := snapshot.Pod{Namespace: "app", Name: strings.Repeat("x", bytesPerBucket)}
	j.Add(monster, decided("filter", "west"))
	_, ok := j.Get(monster.Namespace, monster.Name)
	assert.False(t, ok, "no pod of Kubernetes has such a name")
}

func TestABucketForgetsThePodThatWaitedLongest(t *testing.T) {
	var b bucket
	for i := range podsPerBucket {
		b = b.with(podNamed(fmt.Sprint(i)), decided("filter", "west"))
	}
	b = b.with(podNamed("0"), decided("preempt", "west"))
	b = b.with(podNamed("new"), decided("filter", "west"))
	var names []string
	for _, pod := range b {
		names = append(names, pod.Name)
	}
	assert.Equal(t, []string{"new", "0", "7", "6", "5", "4", "3", "2"}, names)
}

func TestJournalLosesNothingUnderConcurrentCalls(t *testing.T) {
	j := NewJournal()
	var callers sync.WaitGroup
	for _, verb := range []string{"filter", "prioritize", "preempt"} {
		callers.Go(func() {
			for i := range 500 {
				j.Add(podNamed(fmt.Sprint(i)), decided(verb, verb))
				if pod, ok := j.Get("app", fmt.Sprint(i)); !ok || len(pod.Decisions) == 0 {
					t.Errorf("pod %d vanished", i)
				}
			}
		})
	}
	callers.Wait()
	for i := range 500 {
		assert.Len(t, clusters(t, j, podNamed(fmt.Sprint(i))), 3)
	}
}

func BenchmarkJournalAdd(b *testing.B) {
	j := NewJournal()
	pods := make([]snapshot.Pod, 10_000)
	for i := range pods {
		pods[i] = podNamed(fmt.Sprint(i))
	}
	decision := Decision{Time: time.Now(), Verb: "filter", Claims: []Claim{{Name: "data", DataIn: "west"}}, Nodes: []Verdict{
		{Cluster: "west", Nodes: 1},
		{Cluster: "home", Reason: filter.DataElsewhere, Nodes: 100, Examples: []string{"home-1", "home-2", "home-3"}},
	}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		j.Add(pods[i%len(pods)], decision)
	}
}
