package replicas

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

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// Records knows which namespaces of remote clusters replicas use, and how many points are being made. It is safe for concurrent use.
type Records struct {
	mu      sync.Mutex
	records map[types.UID]*record.Record
	// waiting are those whose next point is due and waits until fewer are being made.
	waiting map[types.UID]decide.Turn
	// left are those whose VolumeReplica is gone.
	left map[types.UID]bool
}

// NewRecords returns empty Records.
func NewRecords() *Records {
	return &Records{records: map[types.UID]*record.Record{}, waiting: map[types.UID]decide.Turn{}, left: map[types.UID]bool{}}
}

// Uses says whether a replica has, or may have, something in a namespace of a cluster.
func (r *Records) Uses(cluster, namespace string) bool {
	for _, known := range r.all() {
		if known.Head.Cluster == cluster && known.Head.Namespace == namespace ||
			known.Point != nil && known.Point.Source.Cluster == cluster && known.Point.Source.Namespace == namespace ||
			slices.ContainsFunc(known.Left, func(p record.Point) bool {
				return p.Source.Cluster == cluster && p.Source.Namespace == namespace
			}) {
			return true
		}
	}
	return false
}

// Named returns the record of the replica of a name, nil if there is none. One of a VolumeReplica that is gone is not meant: it may be
// there for as long as the standby's owner keeps its versions, beside that of another one of the name.
func (r *Records) Named(namespace, name string) (found *record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, known := range r.records {
		if known.Namespace != namespace || known.Name != name || r.left[uid] {
			continue
		}
		if found != nil {
			return nil // which one is meant is not known yet
		}
		found = known
	}
	return found
}

// Having returns the records of the replicas that have their versions of a claim in a cluster. What one has of which the VolumeReplica is
// gone goes.
func (r *Records) Having(claim types.UID, cluster string) (found []*record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, known := range r.records {
		if !r.left[uid] && known.Head.Cluster == cluster && slices.Contains(known.ClaimUIDs(), claim) {
			found = append(found, known)
		}
	}
	return found
}

// leave notes that the VolumeReplica of a record is gone, which waits for no turn any more.
func (r *Records) leave(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, uid)
	if r.records[uid] != nil {
		r.left[uid] = true
	}
}

// Of returns the record of a replica, nil if there is none.
func (r *Records) Of(uid types.UID) *record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[uid]
}

// In returns how many claims have their copy in a cluster.
func (r *Records) In(cluster string) (n int) {
	for _, known := range r.all() {
		if known.Head.Cluster == cluster {
			n += known.Len()
		}
	}
	return n
}

// points are those that are being made: one of several claims counts for each of them, since each has movers of its own. One that
// waits for a cluster which is away holds up no others, nor does one that is over but for what is removed.
func (r *Records) points(away func(cluster string) bool) (points decide.Points) {
	for _, known := range r.all() {
		if p := known.Point; p != nil && p.Stage != record.Clean && !away(p.Source.Cluster) && !away(known.Head.Cluster) {
			points.Add(p.Source.Cluster, known.Head.Cluster, known.Len())
		}
	}
	return points
}

// hasTurn says whether a replica may begin a point now.
func (r *Records) hasTurn(turn decide.Turn, now time.Time, away func(cluster string) bool) bool {
	points := r.points(away)
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits, ok := r.waiting[turn.UID]; ok {
		turn.Since = waits.Since
	}
	return decide.HasTurn(turn, slices.Collect(maps.Values(r.waiting)), now, points)
}

// awaitTurn notes whether a replica waits for its turn.
func (r *Records) awaitTurn(turn decide.Turn, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.waiting[turn.UID]; ok {
		turn.Since = before.Since
	}
	if r.waiting[turn.UID] = turn; !waits {
		delete(r.waiting, turn.UID)
	}
}

// turns returns the records of those that wait and have their turn now.
func (r *Records) turns(now time.Time, away func(cluster string) bool) (next []*record.Record) {
	points := r.points(away)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range decide.Turns(slices.Collect(maps.Values(r.waiting)), now, points) {
		if known := r.records[uid]; known != nil {
			next = append(next, known)
		}
	}
	return next
}

func (r *Records) set(uid types.UID, next *record.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next == nil {
		delete(r.records, uid)
		delete(r.waiting, uid)
		delete(r.left, uid)
	} else {
		r.records[uid] = next
	}
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

// Load reads all records. Until it has returned no namespace of a remote cluster may be given back.
func (c *Controller) Load(ctx context.Context) error {
	list, err := c.Client.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.ReplicaOf})
	if err != nil {
		return fmt.Errorf("list records of replicas: %w", err)
	}
	for i := range list.Items {
		known, err := record.Decode(list.Items[i].Data[recordKey])
		if err != nil {
			return fmt.Errorf("read Secret %s/%s: %w", c.Namespace, list.Items[i].Name, err)
		}
		c.Records.set(known.UID, known)
	}
	return nil
}

// read returns the record of a replica, nil if there is none.
func (c *Controller) read(ctx context.Context, uid types.UID) (*stored, error) {
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, record.SecretName(uid), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.Records.set(uid, nil)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of replica %s: %w", uid, err)
	}
	known, err := record.Decode(secret.Data[recordKey])
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.Namespace, secret.Name, err)
	}
	c.Records.set(uid, known)
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
			Labels: map[string]string{keys.ReplicaOf: string(next.UID)}},
		Data: map[string][]byte{recordKey: data},
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
		return nil, fmt.Errorf("write record of replica %s/%s: %w", next.Namespace, next.Name, err)
	}
	c.Records.set(next.UID, next)
	return &stored{next, written.ResourceVersion}, nil
}

// forget deletes the record of a replica.
func (c *Controller) forget(ctx context.Context, uid types.UID) error {
	err := c.Client.CoreV1().Secrets(c.Namespace).Delete(ctx, record.SecretName(uid), metav1.DeleteOptions{})
	if err := site.IgnoreGone(err, "remove record of replica "+string(uid)); err != nil {
		return err
	}
	c.Records.set(uid, nil)
	return nil
}
