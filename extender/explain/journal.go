package explain

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

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
