package fakeprovisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// deletedCheck is how often a claim whose provisioning hangs is checked for its deletion.
const deletedCheck = time.Second

var errClaimDeleted = errors.New("the claim is deleted")

// Provision makes a volume, or fails as the behaviour says.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume,
	controller.ProvisioningState, error) {
	claim := options.PVC
	behavior, err := p.awaitBehavior(ctx, options)
	if errors.Is(err, errClaimDeleted) {
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: err.Error()}
	}
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if err := pause(ctx, behavior.Delay); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if behavior.Refuse != "" {
		return nil, controller.ProvisioningFinished, errors.New(behavior.Refuse)
	}
	node := ""
	if options.SelectedNode != nil {
		node = options.SelectedNode.Name
		if behavior.full(node) {
			return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s has no room for the volume", node)
		}
	}
	source, err := p.sourceOf(ctx, claim)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	size := roundUp(claim.Spec.Resources.Requests[corev1.ResourceStorage])
	volume := p.storage.make(Volume{
		Handle:    p.name + "-" + options.PVName,
		Name:      options.PVName,
		Namespace: claim.Namespace,
		Claim:     claim.Name,
		Class:     options.StorageClass.Name,
		Node:      node,
		Source:    source,
		Bytes:     size.Value(),
	})
	return p.persistentVolume(options, volume), controller.ProvisioningFinished, nil
}

// awaitBehavior returns the behaviour for a claim once it is not to hang.
func (p *Provisioner) awaitBehavior(ctx context.Context, options controller.ProvisionOptions) (Behavior, error) {
	claim := options.PVC
	for {
		behavior, changed := p.behaviors.of(options.StorageClass.Name, claim.Namespace+"/"+claim.Name)
		if !behavior.Never {
			return behavior, nil
		}
		select {
		case <-ctx.Done():
			return Behavior{}, ctx.Err()
		case <-changed:
		case <-time.After(deletedCheck):
			live, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || (err == nil && live.UID != claim.UID) {
				return Behavior{}, errClaimDeleted
			}
		}
	}
}

// SupportsBlock tells the library that block volumes are made too.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// Delete removes a volume, or fails as the behaviour says.
func (p *Provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return fmt.Errorf("volume %s is not one of driver %s", volume.Name, p.name)
	}
	claim := ""
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	behavior, _ := p.behaviors.of(volume.Spec.StorageClassName, claim)
	if behavior.DeleteNever {
		return fmt.Errorf("the storage refuses to delete volume %s", volume.Name)
	}
	p.storage.remove(volume.Spec.CSI.VolumeHandle)
	return nil
}

// SnapshotSource returns the handle of the volume that a VolumeSnapshot was taken of.
type SnapshotSource func(ctx context.Context, namespace, name string) (handle string, err error)

// SetSnapshots has claims made from VolumeSnapshots too, which are played by others.
func (p *Provisioner) SetSnapshots(of SnapshotSource) { p.snapshots.Store(&of) }

// sourceOf returns the handle of the volume that a claim is to be a copy of, empty
// for none. Like a real provisioner it refuses what it cannot copy.
func (p *Provisioner) sourceOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	ref := claim.Spec.DataSourceRef
	if ref == nil {
		return "", nil
	}
	if of := p.snapshots.Load(); of != nil && ref.Kind == "VolumeSnapshot" {
		return (*of)(ctx, claim.Namespace, ref.Name)
	}
	if ref.Kind != "PersistentVolumeClaim" {
		return "", fmt.Errorf("%s %s is no claim, and only claims are copied", ref.Kind, ref.Name)
	}
	source, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the claim to copy: %w", err)
	}
	if source.Status.Phase != corev1.ClaimBound || source.DeletionTimestamp != nil {
		return "", fmt.Errorf("claim %s, which is to be copied, is not bound or is being deleted", source.Name)
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, source.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the volume to copy: %w", err)
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return "", fmt.Errorf("volume %s, which is to be copied, is not one of driver %s", volume.Name, p.name)
	}
	return volume.Spec.CSI.VolumeHandle, nil
}

// expander plays the resizer of a CSI driver, and the kubelet that grows the file
// system afterwards: it expands every bound claim that asks for more than it has and
// whose volume has the driver of its provisioner, whoever made that volume.
type expander struct {
	*Provisioner
	claims, volumes cache.SharedIndexInformer
	queue           workqueue.TypedRateLimitingInterface[string]
}

func newExpander(p *Provisioner) *expander {
	return &expander{
		Provisioner: p,
		claims:      p.factory.Core().V1().PersistentVolumeClaims().Informer(),
		volumes:     p.factory.Core().V1().PersistentVolumes().Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second)),
	}
}

// run expands until ctx ends.
func (e *expander) run(ctx context.Context) {
	look := func(obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && wantsMore(claim) {
			e.queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	registration, err := e.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }})
	if err != nil {
		return
	}
	defer func() { _ = e.claims.RemoveEventHandler(registration) }()
	go func() {
		<-ctx.Done()
		e.queue.ShutDown()
	}()
	for {
		key, shutdown := e.queue.Get()
		if shutdown {
			return
		}
		if err := e.expand(ctx, key); err != nil {
			e.queue.AddRateLimited(key)
		} else {
			e.queue.Forget(key)
		}
		e.queue.Done(key)
	}
}

func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	want, have := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return claim.Status.Phase == corev1.ClaimBound && want.Cmp(have) > 0
}

// expand takes one claim as far as it goes: the storage grows, its PersistentVolume
// says so, and the claim says so once the file system has grown too. An error means
// that it is to be tried again.
func (e *expander) expand(ctx context.Context, key string) error {
	obj, ok, err := e.claims.GetStore().GetByKey(key)
	if err != nil || !ok {
		return err
	}
	claim := obj.(*corev1.PersistentVolumeClaim)
	found, ok, err := e.volumes.GetStore().GetByKey(claim.Spec.VolumeName)
	if err != nil || !ok || !wantsMore(claim) {
		return err
	}
	volume := found.(*corev1.PersistentVolume)
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != e.name || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	behavior, _ := e.behaviors.of(class, key)
	want := roundUp(claim.Spec.Resources.Requests[corev1.ResourceStorage])
	if behavior.ExpandRefuse != "" && volume.Spec.Capacity.Storage().Cmp(want) < 0 {
		if err := e.write(ctx, claim, nil, want, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			corev1.PersistentVolumeClaimResizing, "", corev1.PersistentVolumeClaimControllerResizeError, behavior.ExpandRefuse); err != nil {
			return err
		}
		return fmt.Errorf("expand claim %s: %s", key, behavior.ExpandRefuse)
	}
	e.storage.grow(volume.Spec.CSI.VolumeHandle, want.Value())
	if volume.Spec.Capacity.Storage().Cmp(want) < 0 {
		if err := e.patch(ctx, volume.Name, want); err != nil {
			return err
		}
	}
	if behavior.ExpandNever {
		if err := e.write(ctx, claim, nil, want, corev1.PersistentVolumeClaimNodeResizePending,
			corev1.PersistentVolumeClaimResizing, "", corev1.PersistentVolumeClaimFileSystemResizePending,
			"waiting for a node to grow the file system"); err != nil {
			return err
		}
		return fmt.Errorf("expand claim %s: its file system has not grown yet", key)
	}
	return e.write(ctx, claim, &want, want, "")
}

func (e *expander) patch(ctx context.Context, volume string, size resource.Quantity) error {
	_, err := e.client.CoreV1().PersistentVolumes().Patch(ctx, volume, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"capacity":{"storage":%q}}}`, size.String()), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("write size of volume %s: %w", volume, err)
	}
	return nil
}

// write says on a claim how far its expansion is: its size if it has ended, else the
// state and the conditions, given as type and message in turn.
func (e *expander) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, size *resource.Quantity, allocated resource.Quantity,
	state corev1.ClaimResourceStatus, conditions ...any) error {
	told := []corev1.PersistentVolumeClaimCondition{}
	for i := 0; i+1 < len(conditions); i += 2 {
		told = append(told, corev1.PersistentVolumeClaimCondition{
			Type: conditions[i].(corev1.PersistentVolumeClaimConditionType), Status: corev1.ConditionTrue,
			Message: conditions[i+1].(string), LastTransitionTime: metav1.Now().Rfc3339Copy(),
		})
	}
	status := map[string]any{
		"conditions":                told,
		"allocatedResources":        map[string]any{"storage": allocated.String()},
		"allocatedResourceStatuses": map[string]any{"storage": nil},
	}
	if state != "" {
		status["allocatedResourceStatuses"] = map[string]any{"storage": state}
		if same(claim, state, told) {
			return nil
		}
	}
	if size != nil {
		status["capacity"] = map[string]any{"storage": size.String()}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"status": status})
	if err != nil {
		return err
	}
	_, err = e.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// same says whether a claim tells this already.
func same(claim *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus, conditions []corev1.PersistentVolumeClaimCondition) bool {
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != state || len(claim.Status.Conditions) != len(conditions) {
		return false
	}
	for i, c := range claim.Status.Conditions {
		if c.Type != conditions[i].Type || c.Message != conditions[i].Message {
			return false
		}
	}
	return true
}
