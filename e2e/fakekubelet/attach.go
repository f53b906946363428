package fakekubelet

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// managedAttach marks nodes whose volumes the attach-detach controller attaches.
const managedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// inUse are the volumes that a node last said to use, by which the attach-detach controller
// knows that it must not detach them yet.
type inUse struct {
	mu   sync.Mutex
	told []corev1.UniqueVolumeName
}

// reportUse writes which volumes the pods of a node use, before they are mounted and after
// they are unmounted.
func (h *Kubelets) reportUse(ctx context.Context, p *player) error {
	p.inUse.mu.Lock()
	defer p.inUse.mu.Unlock()
	pods, err := h.pods.GetIndexer().ByIndex(byNode, p.node.Name)
	if err != nil {
		return fmt.Errorf("look up the pods of node %s: %w", p.node.Name, err)
	}
	used := []corev1.UniqueVolumeName{}
	for _, object := range pods {
		pod := object.(*corev1.Pod)
		if finished(pod) {
			continue
		}
		volumes, err := h.volumesOf(pod, h.cachedReader(pod.Namespace))
		if err != nil {
			return err
		}
		for _, volume := range volumes {
			used = append(used, corev1.UniqueVolumeName("kubernetes.io/csi/"+volume.Spec.CSI.Driver+"^"+volume.Spec.CSI.VolumeHandle))
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if slices.Equal(used, p.inUse.told) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": used}})
	if err != nil {
		return err
	}
	if _, err := h.client.CoreV1().Nodes().Patch(ctx, p.node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the volumes that node %s uses: %w", p.node.Name, err)
	}
	p.inUse.told = used
	return nil
}

// volumesOf returns the CSI volumes of a pod, as far as they are there.
func (h *Kubelets) volumesOf(pod *corev1.Pod, read claimReader) (volumes []*corev1.PersistentVolume, err error) {
	for _, source := range pod.Spec.Volumes {
		name, ok := claimName(pod, source)
		if !ok {
			continue
		}
		claim, err := read.claim(name)
		if err != nil {
			return nil, fmt.Errorf("read claim %s/%s: %w", pod.Namespace, name, err)
		}
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		volume, err := read.volume(claim.Spec.VolumeName)
		if err != nil {
			return nil, fmt.Errorf("read volume %s: %w", claim.Spec.VolumeName, err)
		}
		if volume != nil && volume.Spec.CSI != nil {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

// unattached is the problem of a pod with a volume that is not attached to its node yet.
func (h *Kubelets) unattached(ctx context.Context, pod *corev1.Pod) (*problem, error) {
	volumes, err := h.volumesOf(pod, h.cachedReader(pod.Namespace))
	if err != nil {
		return nil, err
	}
	for _, volume := range volumes {
		csi := volume.Spec.CSI
		driver, err := orNil(h.client.StorageV1().CSIDrivers().Get(ctx, csi.Driver, metav1.GetOptions{}))
		if err != nil {
			return nil, fmt.Errorf("read CSIDriver %s: %w", csi.Driver, err)
		}
		if driver == nil || !ptr.Deref(driver.Spec.AttachRequired, true) {
			continue
		}
		// A kubelet finds it by the handle: it may be there for a volume of another name.
		name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(csi.VolumeHandle+csi.Driver+pod.Spec.NodeName)))
		attachment, err := orNil(h.client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return nil, fmt.Errorf("read the attachment of volume %s: %w", volume.Name, err)
		}
		if attachment == nil || !attachment.Status.Attached || attachment.DeletionTimestamp != nil {
			return &problem{claim: volume.Spec.ClaimRef.Name, message: "volume " + volume.Name + " is not attached to this node yet"}, nil
		}
	}
	return nil, nil
}
