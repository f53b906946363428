package claims

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

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// errChanged is the error of a removal whose observation is out of date.
var errChanged = errors.New("what was seen is out of date")

// removeBacking deletes a backing claim that was never published. Caches may lag, so it
// asks the API server whether the volume exists after all.
func (f *Controller) removeBacking(ctx context.Context, o steps.Observation, a steps.RemoveBacking) error {
	if !f.Publisher.Withdraw(o.UID) {
		return fmt.Errorf("the volume of claim %s is being created: %w", o.UID, errChanged)
	}
	name := backing.VirtualName(o.UID)
	if o.Volume != nil {
		name = o.Volume.Name
	}
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && o.Volume == nil:
		return fmt.Errorf("volume of claim %s exists: %w", o.UID, errChanged)
	case err == nil && decide.Holds(a.Backing, live):
		return fmt.Errorf("backing claim %s/%s holds the data of volume %s: %w", a.Backing.Claim.Namespace, a.Backing.Claim.Name, live.Name,
			errChanged)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for volume of claim %s: %w", o.UID, err)
	}
	if o.Claim == nil {
		if err := f.provenGone(ctx, o.UID, a.Backing.Claim); err != nil {
			return err
		}
	}
	// Only the version that was observed as unpublished.
	version := a.Backing.Claim.ResourceVersion
	if a.Backing.Claim.DeletionTimestamp != nil {
		version = ""
	}
	return f.deleteBacking(ctx, o.UID, a.Backing, version)
}

// provenGone asks the API server whether the virtual claim of a backing claim is gone.
func (f *Controller) provenGone(ctx context.Context, uid types.UID, b *corev1.PersistentVolumeClaim) error {
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

// releaseBacking deletes the backing claim of a released volume, once the API server
// confirms that the volume is released and to be deleted.
func (f *Controller) releaseBacking(ctx context.Context, o steps.Observation, a steps.ReleaseBacking) error {
	live, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, o.Volume.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at volume %s: %w", o.Volume.Name, err)
	}
	if live.UID != o.Volume.UID || live.Status.Phase != corev1.VolumeReleased ||
		live.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return fmt.Errorf("volume %s is not to be deleted: %w", live.Name, errChanged)
	}
	return f.deleteBacking(ctx, o.UID, a.Backing, "")
}

// deleteBacking deletes the backing claim with this UID and, if given, this resource
// version, and removes our finalizer.
func (f *Controller) deleteBacking(ctx context.Context, uid types.UID, of steps.Backing, version string) error {
	cluster, b := of.Cluster, of.Claim
	f.memory.dropWritten(uid, cluster)
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
		// Until the cache shows the deletion, the claim must not be published.
		f.memory.setWritten(uid, cluster, b, going)
	}
	return err
}

// endShadow removes our finalizer from a remote backing claim with data and then deletes
// it. The order matters: a claim that is being deleted and has our finalizer is recreated
// by the remote agent.
func (f *Controller) endShadow(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string,
	b *corev1.PersistentVolumeClaim) error {
	if _, err := f.letGo(ctx, claims, cluster, b); err != nil {
		return err
	}
	return f.deleteClaim(ctx, claims, cluster, b, "")
}

// deleteClaim deletes a backing claim unless it is being deleted already.
func (f *Controller) deleteClaim(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string,
	b *corev1.PersistentVolumeClaim, version string) error {
	if b.DeletionTimestamp != nil {
		return nil
	}
	preconditions := &metav1.Preconditions{UID: &b.UID}
	if version != "" {
		preconditions.ResourceVersion = ptr.To(version)
	}
	err := claims.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: preconditions})
	if err != nil && !apierrors.IsNotFound(err) {
		f.probe(cluster)
		return fmt.Errorf("delete backing claim %s/%s in %s: %w", b.Namespace, b.Name, cluster, err)
	}
	return nil
}

// letGo removes our finalizer from a backing claim and returns the changed claim; nil if it
// had no such finalizer or is gone.
func (f *Controller) letGo(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, cluster string,
	b *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if !backing.Protected(b) {
		return nil, nil
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, b.UID, keys.BackingFinalizer))
	going, err := claims.Patch(ctx, b.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		f.probe(cluster)
		return nil, fmt.Errorf("let backing claim %s/%s in %s go: %w", b.Namespace, b.Name, cluster, err)
	}
	return going, nil
}

// confirmGone asks the API server whether a backing claim and its real volume are gone:
// only then may the virtual volume be deleted.
func (f *Controller) confirmGone(ctx context.Context, o steps.Observation, a steps.ConfirmGone) outcome {
	client, err := f.client(a.Ref.Cluster)
	if err != nil {
		return outcome{err: err}
	}
	gone, err := f.isGone(ctx, client, o, a.Ref)
	switch {
	case err != nil:
		f.probe(a.Ref.Cluster)
		return outcome{err: err}
	case gone:
		f.memory.update(o.UID, func(r *remembered) { r.gone = true })
		return outcome{again: true}
	}
	if since := o.Volume.Status.LastPhaseTransitionTime; since != nil && o.Now.Sub(since.Time) > safetyNet {
		f.event(o, &steps.Message{Reason: "WaitingForRealVolume", Text: fmt.Sprintf(
			"waiting until real volume %s behind claim %s in cluster %s is deleted: see its events there", o.Volume.Annotations[keys.BackingVolume],
			a.Ref.Key(), a.Ref.Cluster)})
	}
	return outcome{after: safetyNet}
}

// sameCluster asks whether a client leads to the cluster that has the data of a virtual volume: any
// other cluster would answer that it is gone.
func (f *Controller) sameCluster(ctx context.Context, client kubernetes.Interface, id string, virtual *corev1.PersistentVolume) error {
	if id == keys.Home {
		return nil
	}
	same, err := remote.Same(ctx, client, f.Clusters.Object(id), virtual.Annotations[keys.ClusterUID])
	if err != nil {
		return fmt.Errorf("ask which cluster %s is: %w", id, err)
	}
	if !same {
		return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", id, errChanged)
	}
	return nil
}

// isGone asks a cluster, before and after, which one it is: another one may have taken its address in between.
func (f *Controller) isGone(ctx context.Context, client kubernetes.Interface, o steps.Observation, ref backing.Ref) (bool, error) {
	if err := f.sameCluster(ctx, client, ref.Cluster, o.Volume); err != nil {
		return false, err
	}
	if gone, err := f.looksGone(ctx, client, o, ref); err != nil || !gone {
		return false, err
	}
	err := f.sameCluster(ctx, client, ref.Cluster, o.Volume)
	return err == nil, err
}

func (f *Controller) looksGone(ctx context.Context, client kubernetes.Interface, o steps.Observation, ref backing.Ref) (bool, error) {
	name := o.Volume.Annotations[keys.BackingVolume]
	claim, err := client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil && claim.UID == ref.UID:
		return false, nil
	case err == nil && backing.IsOf(claim, o.UID, f.Place.HomeID) &&
		(decide.TakesThePlace(claim, ref, name) || name != "" && claim.Spec.VolumeName == name && claim.Status.Phase != corev1.ClaimBound):
		// It was recreated after somebody had deleted it.
		return false, nil
	case apierrors.IsForbidden(err) && name != "":
		// With its namespace the rights there were lost too, but the real volume can still
		// be read, and only that has data.
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("look for backing claim %s: %w", ref, err)
	}
	if name == "" {
		// It was never observed as bound.
		return true, nil
	}
	real, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look for real volume %s of %s: %w", name, ref, err)
	case ref.Cluster != keys.Home && real.Labels[keys.Healing] != "":
		// Its claim is being recreated.
		return false, nil
	case real.Spec.ClaimRef != nil && real.Spec.ClaimRef.UID == "" && real.Spec.ClaimRef.Namespace == ref.Namespace &&
		real.Spec.ClaimRef.Name == ref.Name:
		// Its claim is being recreated by hand.
		return false, nil
	case real.Spec.ClaimRef == nil || real.Spec.ClaimRef.UID != ref.UID:
		return true, nil
	}
	// An administrator of that cluster wants to keep it.
	return real.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete && real.Status.Phase == corev1.VolumeReleased, nil
}
