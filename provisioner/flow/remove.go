package flow

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// errChanged is the error of a removal that is no longer wanted.
var errChanged = errors.New("what was seen is out of date")

// remove removes a backing claim that was never published. Caches may lag, so
// the API server itself is asked whether the volume exists after all.
func (f *Flow) remove(ctx context.Context, o decide.Observation, step decide.Step) error {
	if !f.publisher.Withdraw(o.UID) {
		return fmt.Errorf("the volume of claim %s is being created: %w", o.UID, errChanged)
	}
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, "pvc-"+string(o.UID), metav1.GetOptions{})
	switch {
	case err == nil && o.Volume == nil:
		return fmt.Errorf("volume of claim %s exists: %w", o.UID, errChanged)
	case err == nil && decide.Holds(step.Backing, live):
		return fmt.Errorf("backing claim %s/%s holds the data of volume %s: %w", step.Backing.Claim.Namespace, step.Backing.Claim.Name, live.Name, errChanged)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for volume of claim %s: %w", o.UID, err)
	}
	if o.Claim == nil {
		if err := f.provenGone(ctx, o.UID, step.Backing.Claim); err != nil {
			return err
		}
	}
	// The version that was seen to be unpublished, no other.
	version := step.Backing.Claim.ResourceVersion
	if step.Backing.Claim.DeletionTimestamp != nil {
		version = ""
	}
	return f.deleteBacking(ctx, o.UID, step, version)
}

// provenGone asks whether the virtual claim of a backing claim is really gone.
func (f *Flow) provenGone(ctx context.Context, uid types.UID, b *corev1.PersistentVolumeClaim) error {
	owner, ok := backing.Owner(b)
	if !ok {
		return fmt.Errorf("backing claim %s/%s has lost its annotation %s: %w", b.Namespace, b.Name, keys.Claim, errChanged)
	}
	claim, err := f.Client.CoreV1().PersistentVolumeClaims(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for claim %s: %w", owner, err)
	case claim.UID == uid:
		return fmt.Errorf("claim %s exists: %w", owner, errChanged)
	}
	return nil
}

// release deletes the backing claim of a released volume, once the API server
// itself says that the volume is released and to be deleted.
func (f *Flow) release(ctx context.Context, o decide.Observation, step decide.Step) error {
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, o.Volume.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at volume %s: %w", o.Volume.Name, err)
	}
	if live.UID != o.Volume.UID || live.Status.Phase != corev1.VolumeReleased || live.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return fmt.Errorf("volume %s is not to be deleted: %w", live.Name, errChanged)
	}
	return f.deleteBacking(ctx, o.UID, step, "")
}

// deleteBacking deletes the backing claim of a step, of just its UID and if given
// this resource version, and lets it go.
func (f *Flow) deleteBacking(ctx context.Context, uid types.UID, step decide.Step, version string) error {
	cluster, b := step.Cluster, step.Backing.Claim
	f.written.drop(uid, cluster)
	client, err := f.client(cluster)
	if err != nil {
		return err
	}
	claims := client.CoreV1().PersistentVolumeClaims(b.Namespace)
	if cluster != keys.Home && version == "" && b.DeletionTimestamp == nil {
		return f.endShadow(ctx, claims, cluster, b)
	}
	if err := f.deleteClaim(ctx, claims, cluster, b, version); err != nil {
		return err
	}
	going, err := f.letGo(ctx, claims, cluster, b)
	if going != nil {
		// A claim that seems to be there still must not be published.
		f.written.set(uid, cluster, b, going)
	}
	return err
}

// endShadow lets a shadow with data go and deletes it, in this order: the remote
// agent makes those anew that somebody deletes and that our finalizer holds.
func (f *Flow) endShadow(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string, b *corev1.PersistentVolumeClaim) error {
	if _, err := f.letGo(ctx, claims, cluster, b); err != nil {
		return err
	}
	return f.deleteClaim(ctx, claims, cluster, b, "")
}

// deleteClaim deletes a backing claim, if that is not done.
func (f *Flow) deleteClaim(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string, b *corev1.PersistentVolumeClaim, version string) error {
	if b.DeletionTimestamp != nil {
		return nil
	}
	preconditions := &metav1.Preconditions{UID: &b.UID}
	if version != "" {
		preconditions.ResourceVersion = ptr.To(version)
	}
	err := claims.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: preconditions})
	if err != nil && !apierrors.IsNotFound(err) {
		f.suspect(cluster)
		return fmt.Errorf("delete backing claim %s/%s in %s: %w", b.Namespace, b.Name, cluster, err)
	}
	return nil
}

// letGo takes our finalizer off a backing claim, and returns the claim as it is
// then; nil if it had no such finalizer or is gone.
func (f *Flow) letGo(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string, b *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if !backing.Protected(b) {
		return nil, nil
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, keys.BackingFinalizer))
	going, err := claims.Patch(ctx, b.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		f.suspect(cluster)
		return nil, fmt.Errorf("let backing claim %s/%s in %s go: %w", b.Namespace, b.Name, cluster, err)
	}
	return going, nil
}

// confirm asks the API server whether a backing claim and its real volume are
// gone: only then may the virtual volume go.
func (f *Flow) confirm(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	client, err := f.client(step.Cluster)
	if err != nil {
		result.err = err
		return result
	}
	gone, err := f.isGone(ctx, client, o, step.Ref)
	switch {
	case err != nil:
		f.suspect(step.Cluster)
		result.err = err
	case gone:
		f.memory.setGone(o.UID)
		result.again = true
	default:
		if since := o.Volume.Status.LastPhaseTransitionTime; since != nil && o.Now.Sub(since.Time) > safetyNet {
			f.tell(o, &decide.Message{Reason: "WaitingForRealVolume", Text: fmt.Sprintf(
				"waiting until real volume %s behind claim %s in cluster %s is deleted: see its events there", o.Volume.Annotations[keys.BackingVolume], step.Ref.Key(), step.Cluster)})
		}
		result.after = safetyNet
	}
	return result
}

// sameCluster asks whether a client still leads to the cluster that holds the
// volumes of a RemoteCluster: any other would say that they are gone.
func (f *Flow) sameCluster(ctx context.Context, client kubernetes.Interface, id string) error {
	if id == keys.Home {
		return nil
	}
	same, err := clusters.Same(ctx, client, f.Clusters.Object(id))
	if err != nil {
		return fmt.Errorf("ask which cluster %s is: %w", id, err)
	}
	if !same {
		return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", id, errChanged)
	}
	return nil
}

func (f *Flow) isGone(ctx context.Context, client kubernetes.Interface, o decide.Observation, ref backing.Ref) (bool, error) {
	if err := f.sameCluster(ctx, client, ref.Cluster); err != nil {
		return false, err
	}
	name := o.Volume.Annotations[keys.BackingVolume]
	claim, err := client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil && claim.UID == ref.UID:
		return false, nil
	case err == nil && backing.IsOf(claim, o.UID, f.Place.HomeID) &&
		(decide.TakesThePlace(claim, ref, name) || name != "" && claim.Spec.VolumeName == name && claim.Status.Phase != corev1.ClaimBound):
		// Made anew after somebody had deleted it.
		return false, nil
	case apierrors.IsForbidden(err) && name != "":
		// With its namespace the rights there went too, but the real volume can
		// be seen, and it alone holds data.
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("look for backing claim %s: %w", ref, err)
	}
	if name == "" {
		// It was never seen to be bound.
		return true, nil
	}
	real, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look for real volume %s of %s: %w", name, ref, err)
	case ref.Cluster != keys.Home && real.Labels[keys.Healing] != "":
		// Its claim is being made anew.
		return false, nil
	case real.Spec.ClaimRef != nil && real.Spec.ClaimRef.UID == "" && real.Spec.ClaimRef.Namespace == ref.Namespace && real.Spec.ClaimRef.Name == ref.Name:
		// The same, by hand.
		return false, nil
	case real.Spec.ClaimRef == nil || real.Spec.ClaimRef.UID != ref.UID:
		return true, nil
	}
	// Its own administrator wants it kept.
	return real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete && real.Status.Phase == corev1.VolumeReleased, nil
}
