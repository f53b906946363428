// Package explain keeps the decisions on the latest pods with their reasons, for users who ask why
// a pod is not where they expect it. kube-scheduler itself shows only how many nodes had which
// reason. The server adds each Decision to a Journal, and /explain reads it there.
//
// A decision is stored as the few facts that it was made from; texts are made of them only when
// somebody asks.
package explain

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// Decision is the outcome of one call for one pod. It must not be changed once it is in a Journal.
type Decision struct {
	Time time.Time `json:"time"`
	// Verb is filter, prioritize or preempt.
	Verb   string  `json:"verb"`
	Claims []Claim `json:"claims"`
	// Nodes has the verdicts on the candidates of filter and preempt.
	Nodes []Verdict `json:"nodes,omitempty"`
	// Scores has the scores that prioritize gave the nodes of each candidate cluster.
	Scores []score.Mark `json:"scores,omitempty"`
	// Stale is how long no changes had arrived when this was decided; empty if they arrived.
	Stale string `json:"stale,omitempty"`
	// Omitted is how many items of the lists are left out.
	Omitted int `json:"omitted,omitempty"`

	bytes int
}

// Claim has what was known of one claim of the pod.
type Claim struct {
	Name string `json:"name"`
	// Unknown says that no such claim was known.
	Unknown bool `json:"unknown,omitempty"`
	// Near says that the pod does not mount the claim but wants to be near it.
	Near         bool   `json:"near,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Volume       string `json:"volume,omitempty"`
	// DataIn is the cluster that has the data; empty without data, and if the data is not confined
	// to a cluster.
	DataIn string `json:"dataIn,omitempty"`
	// Prefers is, for data that is not confined, the cluster that an administrator
	// labelled its volume with.
	Prefers string `json:"prefers,omitempty"`
	// Bytes is the capacity of the volume.
	Bytes int64 `json:"bytes,omitempty"`
	// CopyOf is the claim that the volume will be a copy of.
	CopyOf string `json:"copyOf,omitempty"`
	// Moving says that a move is moving the claim.
	Moving bool `json:"moving,omitempty"`
	// Refusals are the clusters and nodes that refused to make the volume.
	Refusals []locality.Refusal `json:"refusals,omitempty"`
}

// Verdict is the decision on the candidate nodes of one cluster.
type Verdict struct {
	// Cluster is empty for nodes that were not known yet.
	Cluster string
	// Reason is why these nodes were refused, or Accepted.
	Reason filter.Reason
	Nodes  int
	// Examples are the first few of the refused nodes.
	Examples []string
}

// MarshalJSON implements json.Marshaler.
func (v Verdict) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Cluster  string   `json:"cluster,omitempty"`
		Reason   string   `json:"reason"`
		Sentence string   `json:"sentence,omitempty"`
		Nodes    int      `json:"nodes"`
		Examples []string `json:"examples,omitempty"`
	}{Cluster: v.Cluster, Reason: v.Reason.String(), Sentence: v.Reason.Sentence(), Nodes: v.Nodes, Examples: v.Examples})
}

// Claims returns the facts on a pod's claims. found are the known ones; claims that only the pod's
// volumes name are unknown.
func Claims(pod snapshot.Pod, found []snapshot.PodClaim) []Claim {
	claims := make([]Claim, 0, len(found))
	for _, known := range found {
		claim := Claim{
			Name: known.Name, Near: known.Near, StorageClass: known.ClassName, Volume: known.VolumeName,
			CopyOf: known.Source, Moving: known.Moving, Refusals: known.Refusals,
		}
		if known.Volume != nil {
			claim.DataIn, claim.Prefers, claim.Bytes = known.Volume.Cluster, known.Volume.Prefers, known.Volume.Bytes
		}
		claims = append(claims, claim)
	}
	for _, volume := range pod.Volumes {
		if len(claims) > maxDecision/overhead {
			break
		}
		if !slices.ContainsFunc(claims, func(c Claim) bool { return c.Name == volume.ClaimName && !c.Near }) {
			claims = append(claims, Claim{Name: volume.ClaimName, Unknown: true})
		}
	}
	return claims
}

// Scores returns the scores of clusters, the highest first.
func Scores(scale score.Scale) []score.Mark {
	return slices.SortedFunc(maps.Values(scale), func(a, b score.Mark) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Cluster, b.Cluster))
	})
}

// examples is how many refused nodes are named of each cluster and reason.
const examples = 3

// few is up to how many verdicts a linear search is faster than a map.
const few = 8

// Tally counts nodes by their cluster and verdict. The zero value is empty and ready for use.
type Tally struct {
	verdicts []Verdict
	// current is the verdict of the last node: the next node mostly has the same.
	current *Verdict
	// at is the index of verdicts, used if there are many.
	at map[group]int
}

type group struct {
	cluster string
	reason  filter.Reason
}

// Add counts a node. A name that is kept is copied.
func (t *Tally) Add(cluster string, reason filter.Reason, name string) {
	if t.current == nil || t.current.Reason != reason || t.current.Cluster != cluster {
		t.current = t.verdict(group{cluster: cluster, reason: reason})
	}
	t.current.Nodes++
	if reason != filter.Accepted && len(t.current.Examples) < examples {
		// The name may be a substring of a large request.
		t.current.Examples = append(t.current.Examples, strings.Clone(name))
	}
}

func (t *Tally) verdict(g group) *Verdict {
	for i := range min(len(t.verdicts), few) {
		if v := &t.verdicts[i]; v.Reason == g.reason && v.Cluster == g.cluster {
			return v
		}
	}
	if i, ok := t.at[g]; ok {
		return &t.verdicts[i]
	}
	t.verdicts = append(t.verdicts, Verdict{Cluster: g.cluster, Reason: g.reason})
	last := len(t.verdicts) - 1
	if last >= few {
		if t.at == nil {
			t.at = map[group]int{}
		}
		t.at[g] = last
	}
	return &t.verdicts[last]
}

// Verdicts returns the verdicts in the order in which they first occurred.
func (t *Tally) Verdicts() []Verdict {
	return t.verdicts
}

// Refused returns how many nodes each reason refused; nil if all were accepted.
func (t *Tally) Refused() map[filter.Reason]int {
	var counts map[filter.Reason]int
	for _, verdict := range t.verdicts {
		if verdict.Reason == filter.Accepted {
			continue
		}
		if counts == nil {
			counts = map[filter.Reason]int{}
		}
		counts[verdict.Reason] += verdict.Nodes
	}
	return counts
}

// maxDecision limits a decision in bytes; overhead is what each item of a list counts in addition
// to its text. Items that do not fit are left out and counted.
const (
	maxDecision = 4 << 10
	overhead    = 160
)

// fit returns the decision cut to the limit. Half of it is for the nodes, and half of the rest for
// the scores.
func (d Decision) fit() Decision {
	budget := maxDecision - overhead
	var left [3]int
	d.Nodes, left[0] = cut(d.Nodes, budget/2, Verdict.size)
	rest := budget - total(d.Nodes, Verdict.size)
	d.Scores, left[1] = cut(d.Scores, rest/2, markSize)
	rest -= total(d.Scores, markSize)
	d.Claims, left[2] = cut(d.Claims, rest, Claim.size)
	d.Omitted = left[0] + left[1] + left[2]
	d.bytes = maxDecision - rest + total(d.Claims, Claim.size)
	return d
}

// cut returns the first items that fit into budget bytes, and how many are left out.
func cut[T any](items []T, budget int, size func(T) int) (kept []T, omitted int) {
	for i, item := range items {
		if budget -= size(item); budget < 0 {
			return slices.Clone(items[:i]), len(items) - i
		}
	}
	return items, 0
}

func total[T any](items []T, size func(T) int) int {
	sum := 0
	for _, item := range items {
		sum += size(item)
	}
	return sum
}

func (c Claim) size() int {
	sum := overhead + len(c.Name) + len(c.StorageClass) + len(c.Volume) + len(c.DataIn) + len(c.Prefers) + len(c.CopyOf)
	for _, refused := range c.Refusals {
		sum += overhead + len(refused.Cluster) + len(refused.Node) + len(refused.Reason) + len(refused.Message)
	}
	return sum
}

func (v Verdict) size() int {
	sum := overhead + len(v.Cluster)
	for _, example := range v.Examples {
		sum += len(example)
	}
	return sum
}

func markSize(m score.Mark) int {
	size := overhead/2 + len(m.Cluster)
	if m.Data != nil {
		size += overhead / 4
	}
	if m.Siblings != nil {
		size += overhead / 2
	}
	if m.Room != nil {
		size += overhead/2 + len(m.Room.Class)
	}
	return size
}

// Limits of a Journal: 8,192 pods and 16 MiB. The pods of one bucket share its room, so some pods
// are dropped before both limits are reached; of the latest 2,000 pods hardly any.
const (
	buckets        = 1024
	podsPerBucket  = 8
	bytesPerBucket = 16 << 10
)

// Pod has what is kept of one pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"pod"`
	UID       string `json:"uid"`
	// Decisions has the last decision of each verb, the newest first.
	Decisions []Decision `json:"decisions"`

	bytes int
}

// Journal keeps the latest decisions. It is safe for concurrent use, and takes no lock: each bucket
// is an immutable list behind an atomic pointer. If a bucket is full, a new pod replaces the one
// that has had no decision for longest.
type Journal struct {
	seed    maphash.Seed
	buckets [buckets]atomic.Pointer[bucket]
}

// bucket is a list of pods, the latest first.
type bucket []*Pod

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{seed: maphash.MakeSeed()}
}

// Add stores a decision on a pod. It replaces an earlier one of the same verb, and all decisions on
// an earlier pod of that name.
func (j *Journal) Add(pod snapshot.Pod, decision Decision) {
	decision = decision.fit()
	at := j.bucket(pod.Namespace, pod.Name)
	for {
		old := at.Load()
		var before bucket
		if old != nil {
			before = *old
		}
		after := before.with(pod, decision)
		if at.CompareAndSwap(old, &after) {
			return
		}
	}
}

// Get returns what is kept of a pod. It must not be changed.
func (j *Journal) Get(namespace, name string) (*Pod, bool) {
	if found := j.bucket(namespace, name).Load(); found != nil {
		return found.find(namespace, name)
	}
	return nil, false
}

// Refused reports whether the Journal has a decision that refused nodes to this very pod, not to
// another of its name.
func (j *Journal) Refused(pod snapshot.Pod) bool {
	kept, ok := j.Get(pod.Namespace, pod.Name)
	return ok && kept.UID == pod.UID && slices.ContainsFunc(kept.Decisions, func(d Decision) bool {
		return slices.ContainsFunc(d.Nodes, func(v Verdict) bool { return v.Reason != filter.Accepted })
	})
}

func (j *Journal) bucket(namespace, name string) *atomic.Pointer[bucket] {
	return &j.buckets[maphash.Comparable(j.seed, [2]string{namespace, name})%buckets]
}

func (b bucket) find(namespace, name string) (*Pod, bool) {
	for _, pod := range b {
		if pod.Name == name && pod.Namespace == namespace {
			return pod, true
		}
	}
	return nil, false
}

// with returns the bucket with a decision added, within the limits of a bucket.
func (b bucket) with(pod snapshot.Pod, decision Decision) bucket {
	old, _ := b.find(pod.Namespace, pod.Name)
	after := make(bucket, 0, min(len(b)+1, podsPerBucket))
	bytes := 0
	keep := func(p *Pod) {
		if bytes+p.bytes <= bytesPerBucket && len(after) < podsPerBucket {
			after = append(after, p)
			bytes += p.bytes
		}
	}
	keep(old.with(pod, decision))
	for _, other := range b {
		if other != old {
			keep(other)
		}
	}
	return after
}

// with returns what is kept of a pod with a decision added; the receiver, which may be nil, is what
// was kept before.
func (p *Pod) with(pod snapshot.Pod, decision Decision) *Pod {
	after := &Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Decisions: []Decision{decision}}
	after.bytes = overhead + len(pod.Namespace) + len(pod.Name) + len(pod.UID) + decision.bytes
	if p == nil || p.UID != pod.UID {
		return after
	}
	for _, earlier := range p.Decisions {
		if earlier.Verb != decision.Verb {
			after.Decisions = append(after.Decisions, earlier)
			after.bytes += earlier.bytes
		}
	}
	return after
}
