package moves

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Records knows which claims moves hold, and which namespaces of remote clusters they use.
// It is safe for concurrent use.
type Records struct {
	// beginning makes checking and claiming a move's claims atomic.
	beginning sync.Mutex

	mu      sync.Mutex
	records map[types.UID]*record.Record
}

// NewRecords returns empty Records.
func NewRecords() *Records { return &Records{records: map[types.UID]*record.Record{}} }

// Holds says whether a move holds a claim.
func (r *Records) Holds(claim types.UID) bool { return r.holder(claim) != nil }

func (r *Records) holder(claim types.UID) *record.Record {
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

// isMarked says whether a claim has anything that a move writes on claims: it cannot be deleted, or its pods wait. Users and backups
// may have written that.
func isMarked(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[keys.Move] != "" || claim.Labels[keys.Moving] != "" || slices.Contains(claim.Finalizers, keys.MoveFinalizer)
}

func (r *Records) has(move types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[move] != nil
}

// those returns the records of unfinished moves for which about is true.
func (r *Records) those(about func(*record.Record) bool) (found []*record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.records {
		if !known.Over() && about(known) {
			found = append(found, known)
		}
	}
	return found
}

// holding counts, by namespace, the moves that hold their claims, of those that count.
func (r *Records) holding(counts func(move types.UID) bool) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for uid, known := range r.records {
		if known.Holds() && counts(uid) {
			n[known.Namespace]++
		}
	}
	return n
}

// isOver says whether a move is known to have ended.
func (r *Records) isOver(move types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.records[move]
	return known != nil && known.Over()
}

// blocking returns another move because of which this one may not begin with a claim.
func (r *Records) blocking(move, claim types.UID) *record.Record {
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

// begin adds the first record of a move, unless another move uses one of its claims by now,
// which it then returns.
func (r *Records) begin(next *record.Record) *record.Record {
	r.beginning.Lock()
	defer r.beginning.Unlock()
	if !next.Over() {
		for i := range next.Claims {
			if other := r.blocking(next.UID, next.Claims[i].UID); other != nil {
				return other
			}
		}
	}
	r.set(next.UID, next)
	return nil
}

// takerOf returns a move that has begun, is not over and takes as its targets the copies that this one keeps; empty if there
// is none. One that goes back takes no more.
func (r *Records) takerOf(move types.UID) types.UID {
	for _, known := range r.those(func(known *record.Record) bool {
		return known.Phase != v1alpha1.MoveRollBack && len(known.Claims) > 0 && known.Claims[0].Kept != nil && known.Claims[0].Kept.By == move
	}) {
		return known.UID
	}
	return ""
}

// keeperOf returns the unfinished move whose copies this one takes as its targets; nil if there is none.
func (r *Records) keeperOf(taker *record.Record) *record.Record {
	if len(taker.Claims) == 0 || taker.Claims[0].Kept == nil {
		return nil
	}
	for _, known := range r.those(func(known *record.Record) bool { return known.UID == taker.Claims[0].Kept.By }) {
		return known
	}
	return nil
}

// named returns the unfinished move of a name; nil if there is none.
func (r *Records) named(namespace, name string) *record.Record {
	for _, known := range r.those(func(known *record.Record) bool { return known.Namespace == namespace && known.Name == name }) {
		return known
	}
	return nil
}

// FailedOver returns when the last failover of a claim that is not over began to be made, zero if there is none: what was copied of
// the claim before that is of what it had then. The one that is under way is the last one, though the clock may have been ahead when an
// earlier one began.
func (r *Records) FailedOver(claim types.UID) (last time.Time) {
	for _, known := range r.those(func(known *record.Record) bool {
		return known.Failover != nil && known.Phase != v1alpha1.MoveRollBack &&
			slices.ContainsFunc(known.Claims, func(moved record.Claim) bool { return moved.UID == claim })
	}) {
		began := known.Began[v1alpha1.MovePrepare]
		if known.Holds() {
			return began
		}
		if began.After(last) {
			last = began
		}
	}
	return last
}

// KeptAt returns the real claim in a cluster that a committed move keeps of what a claim had there; false if there is none. It stays as
// long as nobody asks for its end, and is written to only by a move that goes back into it.
func (r *Records) KeptAt(claim types.UID, cluster string) (kept backing.Ref, ok bool) {
	var since time.Time
	for _, known := range r.those(func(known *record.Record) bool {
		return known.Phase == v1alpha1.MoveRetain && !known.GaveUp(record.Source)
	}) {
		for i := range known.Claims {
			source := known.Claims[i].Source.Ref
			if began := known.Began[v1alpha1.MoveRetain]; known.Claims[i].UID == claim && source.Cluster == cluster && !began.Before(since) {
				kept, ok, since = source, source.UID != "", began
			}
		}
	}
	return kept, ok
}

// Uses says whether a move has, or may have, a copy in a namespace of a cluster.
func (r *Records) Uses(cluster, namespace string) bool {
	return r.count(func(_ *record.Record, _ record.End, ref backing.Ref) bool {
		return ref.Cluster == cluster && ref.Namespace == namespace
	}) > 0
}

// SpareCopiesIn returns how many copies in a cluster are not used by a virtual volume.
func (r *Records) SpareCopiesIn(cluster string) int {
	return r.count(func(known *record.Record, end record.End, ref backing.Ref) bool {
		spare := record.Target
		if known.Phase != v1alpha1.MoveRollBack && !record.Before(known.Phase, v1alpha1.MoveResume) {
			spare = record.Source
		}
		return ref.Cluster == cluster && end == spare
	})
}

// count returns how many copies of unfinished moves satisfy a condition.
func (r *Records) count(counts func(known *record.Record, end record.End, ref backing.Ref) bool) int {
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

// set stores a record; nil removes it. It returns the claims that are released by that.
func (r *Records) set(move types.UID, next *record.Record) (freed []types.UID) {
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

func (r *Records) all() map[types.UID]*record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.records)
}

// recordKey is the key of the record in its Secret.
const recordKey = "record"

// stored is a record with the version at which it was last read or written.
type stored struct {
	record  *record.Record
	version string
}

// Load reads all records. Until it has returned nothing may change a virtual claim.
func (c *Controller) Load(ctx context.Context) error {
	list, err := c.Client.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.MoveOf})
	if err != nil {
		return fmt.Errorf("list records of moves: %w", err)
	}
	for i := range list.Items {
		data, ok := list.Items[i].Data[recordKey]
		if !ok {
			// It has the keys of a mover.
			continue
		}
		known, err := record.Decode(data)
		if err != nil {
			// Its claims are unknown and must not be changed, so do not start at all.
			return fmt.Errorf("read Secret %s/%s: %w", c.Namespace, list.Items[i].Name, err)
		}
		c.Records.set(known.UID, known)
	}
	klog.FromContext(ctx).V(2).Info("Read the records of moves", "moves", len(c.Records.all()))
	return nil
}

// read returns the record of a move, nil if there is none.
func (c *Controller) read(ctx context.Context, uid types.UID) (*stored, error) {
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, record.SecretName(uid), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of move %s: %w", uid, err)
	}
	known, err := record.Decode(secret.Data[recordKey])
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.Namespace, secret.Name, err)
	}
	return &stored{known, secret.ResourceVersion}, nil
}

// write writes a record over the version that was read; last is nil for the first record.
func (c *Controller) write(ctx context.Context, last *stored, next *record.Record) (*stored, error) {
	data, err := record.Encode(next)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: record.SecretName(next.UID), Namespace: c.Namespace,
			Labels: map[string]string{keys.MoveOf: string(next.UID)}},
		Data: map[string][]byte{recordKey: data},
	}
	// Hold the claims before the write has succeeded: holding a claim for a moment in vain
	// does no harm.
	if last == nil {
		if other := c.Records.begin(next); other != nil {
			return nil, fmt.Errorf("begin move %s/%s: VolumeMove %s has begun with a claim of it meanwhile", next.Namespace, next.Name, other.Name)
		}
	}
	secrets := c.Client.CoreV1().Secrets(c.Namespace)
	var written *corev1.Secret
	if last == nil {
		written, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		secret.ResourceVersion = last.version
		written, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("write record of move %s/%s: %w", next.Namespace, next.Name, err)
	}
	c.free(c.Records.set(next.UID, next))
	return &stored{next, written.ResourceVersion}, nil
}

// forget deletes the record of a finished move.
func (c *Controller) forget(ctx context.Context, uid types.UID) error {
	err := c.Client.CoreV1().Secrets(c.Namespace).Delete(ctx, record.SecretName(uid), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove record of move %s: %w", uid, err)
	}
	c.free(c.Records.set(uid, nil))
	return nil
}

// free says that a move has let go of claims. Then another one may begin, and an earlier one that keeps a copy
// learns how this one ended.
func (c *Controller) free(claims []types.UID) {
	for _, claim := range claims {
		c.Released(claim)
	}
	if len(claims) > 0 {
		c.advance()
		c.wake(func(r *record.Record) bool {
			return slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return slices.Contains(claims, known.UID) })
		})
	}
}
