package hollow

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	byClaim = "claim"
	byNode  = "node"
)

func indexByClaim(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, volume := range pod.Spec.Volumes {
		if name, ok := claimName(pod, volume); ok {
			keys = append(keys, pod.Namespace+"/"+name)
		}
	}
	return keys, nil
}

func indexByNode(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// dropManagedFields saves memory: nothing here reads them.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func keyOf(pod *corev1.Pod) podKey {
	return podKey{namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName}
}

func (h *Hollow) enqueuePod(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok && h.player(pod.Spec.NodeName) != nil {
		h.queue.Add(keyOf(pod))
	}
}

func (h *Hollow) enqueueUsersOfClaim(object any) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		h.enqueueIndexed(byClaim, claim.Namespace+"/"+claim.Name)
	}
}

func (h *Hollow) enqueueUsersOfVolume(object any) {
	if volume, ok := object.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
		h.enqueueIndexed(byClaim, volume.Spec.ClaimRef.Namespace+"/"+volume.Spec.ClaimRef.Name)
	}
}

func (h *Hollow) enqueueIndexed(index, value string) {
	pods, err := h.pods.GetIndexer().ByIndex(index, value)
	if err != nil {
		klog.FromContext(h.ctx).Error(err, "Looking up pods failed", "index", index)
		return
	}
	for _, pod := range pods {
		h.enqueuePod(pod)
	}
}

func (h *Hollow) work() {
	for {
		key, shutdown := h.queue.Get()
		if shutdown {
			return
		}
		ctx, cancel := context.WithTimeout(h.ctx, 4*callTimeout)
		err := h.sync(ctx, key)
		cancel()
		if err != nil && h.ctx.Err() == nil {
			klog.FromContext(h.ctx).V(2).Info("Retrying a pod", "pod", klog.KRef(key.namespace, key.name), "node", key.node, "err", err)
			h.queue.AddRateLimited(key)
		} else {
			h.queue.Forget(key)
		}
		h.queue.Done(key)
	}
}

// sync takes one pod a step on. Pods of nodes that are not alive are left as they are,
// as by a kubelet that is gone.
func (h *Hollow) sync(ctx context.Context, key podKey) error {
	p := h.player(key.node)
	if p == nil || !p.alive() {
		return nil
	}
	pod, err := h.cachedPod(key)
	if err != nil {
		return err
	}
	if p.remote != nil {
		return h.syncVirtual(ctx, p, key, pod)
	}
	if pod == nil {
		if h.runner != nil {
			h.runner.End(key.namespace, key.name)
		}
		h.forget(key)
		return nil
	}
	return h.syncLocal(ctx, p, pod)
}

// cachedPod returns the pod if it exists and is bound to the key's node, otherwise nil.
func (h *Hollow) cachedPod(key podKey) (*corev1.Pod, error) {
	object, exists, err := h.pods.GetStore().GetByKey(key.namespace + "/" + key.name)
	if err != nil || !exists {
		return nil, err
	}
	pod := object.(*corev1.Pod)
	if pod.Spec.NodeName != key.node {
		return nil, nil
	}
	return pod, nil
}
