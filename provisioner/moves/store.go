package moves

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// recordKey is the key of the record in its Secret.
const recordKey = "record"

// stored is a record as it was last read or written.
type stored struct {
	record  *record.Record
	version string
}

// Load reads the records that there are. Until it has returned nothing may touch a
// virtual claim.
func (c *Controller) Load(ctx context.Context) error {
	list, err := c.Client.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.MoveOf})
	if err != nil {
		return fmt.Errorf("list records of moves: %w", err)
	}
	for i := range list.Items {
		data, ok := list.Items[i].Data[recordKey]
		if !ok {
			// The keys of a mover.
			continue
		}
		known, err := record.Decode(data)
		if err != nil {
			// Whatever it holds must not be touched; better nothing works than that.
			return fmt.Errorf("read Secret %s/%s: %w", c.Namespace, list.Items[i].Name, err)
		}
		c.Registry.set(known.UID, known)
	}
	klog.FromContext(ctx).V(2).Info("Read the records of moves", "moves", len(c.Registry.all()))
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

// write writes a record over the version that was read; last is nil for the first.
func (c *Controller) write(ctx context.Context, last *stored, next *record.Record) (*stored, error) {
	data, err := record.Encode(next)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: record.SecretName(next.UID), Namespace: c.Namespace, Labels: map[string]string{keys.MoveOf: string(next.UID)}},
		Data:       map[string][]byte{recordKey: data},
	}
	// Before it is certain: a claim that is held in vain for a moment comes to no harm.
	if last == nil {
		if other := c.Registry.begin(next); other != nil {
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
	c.free(c.Registry.set(next.UID, next))
	return &stored{next, written.ResourceVersion}, nil
}

// forget removes the record of a move that is over.
func (c *Controller) forget(ctx context.Context, uid types.UID) error {
	err := c.Client.CoreV1().Secrets(c.Namespace).Delete(ctx, record.SecretName(uid), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove record of move %s: %w", uid, err)
	}
	c.free(c.Registry.set(uid, nil))
	return nil
}

func (c *Controller) free(claims []types.UID) {
	for _, claim := range claims {
		c.Released(claim)
	}
}
