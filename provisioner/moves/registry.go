package moves

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Registry knows which claims moves hold, and which places in remote clusters they
// use. It is safe for concurrent use.
type Registry struct {
	// beginning makes one out of the question whether a claim is free, and the answer
	// that it no longer is.
	beginning sync.Mutex

	mu      sync.Mutex
	records map[types.UID]*record.Record
}

// NewRegistry returns an empty one.
func NewRegistry() *Registry { return &Registry{records: map[types.UID]*record.Record{}} }

// Holds says whether a move holds a claim.
func (r *Registry) Holds(claim types.UID) bool { return r.holder(claim) != nil }

func (r *Registry) holder(claim types.UID) *record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.records {
		if !known.Holds() {
			continue
		}
		for i := range known.Claims {
			if known.Claims[i].UID == claim {
				return known
			}
		}
	}
	return nil
}

// busy returns a move, other than this one, because of which none may begin with a claim.
func (r *Registry) busy(move, claim types.UID) *record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, known := range r.records {
		if uid == move || !known.Busy() {
			continue
		}
		for i := range known.Claims {
			if known.Claims[i].UID == claim {
				return known
			}
		}
	}
	return nil
}

// begin notes the first record of a move, unless another move has to do with one of
// its claims by now, which it then returns.
func (r *Registry) begin(next *record.Record) *record.Record {
	r.beginning.Lock()
	defer r.beginning.Unlock()
	if !next.Over() {
		for i := range next.Claims {
			if other := r.busy(next.UID, next.Claims[i].UID); other != nil {
				return other
			}
		}
	}
	r.set(next.UID, next)
	return nil
}

// Uses says whether a move has, or may have, a copy in a namespace of a cluster.
func (r *Registry) Uses(cluster, namespace string) bool {
	return r.count(func(_ *record.Record, _ record.End, ref backing.Ref) bool {
		return ref.Cluster == cluster && ref.Namespace == namespace
	}) > 0
}

// In returns how many copies that no virtual volume stands for are in a cluster.
func (r *Registry) In(cluster string) int {
	return r.count(func(known *record.Record, end record.End, ref backing.Ref) bool {
		spare := record.Target
		if known.Phase != v1alpha1.MoveRollBack && !record.Before(known.Phase, v1alpha1.MoveResume) {
			spare = record.Source
		}
		return ref.Cluster == cluster && end == spare
	})
}

// count returns how many copies of moves that are not over are such as is asked for.
func (r *Registry) count(counts func(known *record.Record, end record.End, ref backing.Ref) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, known := range r.records {
		if known.Over() {
			continue
		}
		for i := range known.Claims {
			for _, end := range record.Ends {
				if !known.GaveUp(end) && counts(known, end, known.Claims[i].At(end).Ref) {
					n++
				}
			}
		}
	}
	return n
}

// set notes a record; nil: there is none any more. It returns the claims that are
// free now.
func (r *Registry) set(move types.UID, next *record.Record) (freed []types.UID) {
	r.mu.Lock()
	before := r.records[move]
	if next == nil {
		delete(r.records, move)
	} else {
		r.records[move] = next
	}
	r.mu.Unlock()
	if before == nil || !before.Holds() {
		return nil
	}
	for i := range before.Claims {
		if !r.Holds(before.Claims[i].UID) {
			freed = append(freed, before.Claims[i].UID)
		}
	}
	return freed
}

func (r *Registry) all() map[types.UID]*record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[types.UID]*record.Record{}
	for uid, known := range r.records {
		all[uid] = known
	}
	return all
}
