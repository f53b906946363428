package moves

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// asOwner returns the mover of a name as the owner of its Secret.
func asOwner(ctx context.Context, at site, namespace, name string) (owner metav1.OwnerReference, err error) {
	var mover metav1.Object
	if at.home {
		mover, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = "v1", "Pod"
	} else {
		mover, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = remotev1alpha1.GroupVersion.String(), "ShadowPod"
	}
	if err != nil {
		return owner, fmt.Errorf("look at mover %s/%s: %w", namespace, name, err)
	}
	owner.Name, owner.UID = name, mover.GetUID()
	return owner, nil
}

// keysFor returns the Secret with the keys of a mover, which is its owner.
func (c *Controller) keysFor(r *record.Record, i int, end record.End, owner metav1.OwnerReference) (*corev1.Secret, error) {
	role := movekeys.Sender
	if end == record.Target {
		role = movekeys.Receiver
	}
	data := map[string][]byte(maps.Clone(r.Claims[i].Keys[role]))
	if store := r.Claims[i].Store; store != nil {
		files, err := store.Ticket.Files()
		if err != nil {
			return nil, err
		}
		maps.Copy(data, files)
	}
	meta := metav1.ObjectMeta{
		Namespace: r.Claims[i].At(end).Ref.Namespace, Name: owner.Name, Labels: c.moverLabels(r), OwnerReferences: []metav1.OwnerReference{owner},
	}
	return &corev1.Secret{ObjectMeta: meta, Data: data}, nil
}

// giveKeys makes the Secret with the keys of a mover that was not started. It belongs to
// the mover: one that is made late, when that is gone, the cluster itself collects, and so
// nobody has to read Secrets to find it.
func (c *Controller) giveKeys(ctx context.Context, at site, r *record.Record, i int, end record.End, owner metav1.OwnerReference) error {
	secret, err := c.keysFor(r, i, end, owner)
	if err != nil {
		return err
	}
	secrets := at.Client.CoreV1().Secrets(secret.Namespace)
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// It may be that of an earlier mover of this name, and be collected with it.
		if err := ignoreGone(secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}), "replace Secret of mover "+secret.Namespace+"/"+secret.Name); err != nil {
			return err
		}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Secret of mover %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// giveKeysAgain makes the Secret of a mover that was started, if there is none: a request
// to remove an earlier one may have arrived late, or somebody else has removed it, and who
// may not read Secrets does not see that. Its node waits for it.
func (c *Controller) giveKeysAgain(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.must(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	owner, err := asOwner(ctx, at, r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end))
	if err != nil {
		return err
	}
	secret, err := c.keysFor(r, i, end, owner)
	if err != nil {
		return err
	}
	_, err = at.Client.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make Secret of mover %s/%s again: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
