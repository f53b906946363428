package instant

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

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
			corev1.PersistentVolumeClaimResizing, "", corev1.PersistentVolumeClaimFileSystemResizePending, "waiting for a node to grow the file system"); err != nil {
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
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}, "status": status})
	if err != nil {
		return err
	}
	_, err = e.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
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
