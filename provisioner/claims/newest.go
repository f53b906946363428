package claims

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// lockClaim makes new pods of a claim wait, as a move does, once the API servers confirm that its volume does not stand for the newest
// data: caches lag behind each other, as right after a move. The controller of moves takes the lock off when that is over.
func (f *Controller) lockClaim(ctx context.Context, o steps.Observation) error {
	if f.Held != nil && f.Held(o.UID) {
		return fmt.Errorf("claim %s is being moved: %w", o.Claim.Name, errChanged)
	}
	if err := f.confirmBehind(ctx, o); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.Claim.UID, "resourceVersion": o.Claim.ResourceVersion,
		"labels":      map[string]any{keys.Moving: keys.MovingNow},
		"annotations": map[string]any{keys.Move: keys.NoMove, keys.Newer: orNil(decide.NewerRef(o))},
	}})
	if err != nil {
		return fmt.Errorf("encode lock: %w", err)
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(o.Claim.Namespace).Patch(ctx, o.Claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("lock claim %s/%s: %w", o.Claim.Namespace, o.Claim.Name, err)
	}
	f.memory.setWritten(o.UID, virtualClaim, o.Claim, written)
	return nil
}

// confirmBehind asks the API servers for the volume of a claim and for what seems to be newer.
func (f *Controller) confirmBehind(ctx context.Context, o steps.Observation) error {
	volume, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, o.Volume.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at volume %s: %w", o.Volume.Name, err)
	}
	refs := []backing.Ref{o.Standing.Current}
	for _, b := range o.Standing.Newer {
		refs = append(refs, b.Ref())
	}
	var live []backing.Copy
	for _, ref := range refs {
		client, err := f.client(ref.Cluster)
		if err != nil && ref == o.Standing.Current {
			// What it stands for need not answer.
			continue
		}
		if err != nil {
			return err
		}
		b, err := client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err != nil && ref == o.Standing.Current:
			continue
		case err != nil:
			f.probe(ref.Cluster)
			return fmt.Errorf("look at real claim %s in %s: %w", ref.Key(), ref.Cluster, err)
		}
		if ref.Cluster != keys.Home {
			if _, err := remote.Trusted(b); err != nil {
				return fmt.Errorf("read real claim %s in %s: %w", ref.Key(), ref.Cluster, err)
			}
		}
		live = append(live, backing.Copy{Cluster: ref.Cluster, Claim: b})
	}
	claim := types.NamespacedName{Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	if volume.UID != o.Volume.UID || !f.Place.Compare(volume, claim, o.UID, live).Behind() {
		return fmt.Errorf("volume %s stands for the newest data of claim %s: %w", volume.Name, claim, errChanged)
	}
	return nil
}
