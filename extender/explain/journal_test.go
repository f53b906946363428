package explain

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

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
