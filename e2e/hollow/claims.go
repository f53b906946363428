package hollow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimReader finds claims and volumes by name.
type claimReader struct {
	claim  func(name string) (*corev1.PersistentVolumeClaim, error)
	volume func(name string) (*corev1.PersistentVolume, error)
}

// mountProblem returns why the pod's volumes cannot be mounted on its node, or nil.
func (h *Hollow) mountProblem(ctx context.Context, p *player, pod *corev1.Pod) (*problem, error) {
	node, err := h.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", pod.Spec.NodeName, err)
	}
	at := mountPoint{labels: node.Labels, drivers: p.node.Drivers}
	if p.remote != nil {
		at.clusterID = p.node.Remote.ID
	}
	found, err := firstProblem(pod, at, h.cachedReader(pod.Namespace))
	if found == nil || err != nil {
		return found, err
	}
	// The cache may lag behind what made the scheduler bind the pod. Only what the API
	// server says now is held against anybody.
	return firstProblem(pod, at, h.liveReader(ctx, pod.Namespace))
}

func firstProblem(pod *corev1.Pod, at mountPoint, read claimReader) (*problem, error) {
	for _, source := range pod.Spec.Volumes {
		name, ok := claimName(pod, source)
		if !ok {
			continue
		}
		claim, err := read.claim(name)
		if err != nil {
			return nil, fmt.Errorf("read claim %s/%s: %w", pod.Namespace, name, err)
		}
		var volume *corev1.PersistentVolume
		if claim != nil && claim.Spec.VolumeName != "" {
			if volume, err = read.volume(claim.Spec.VolumeName); err != nil {
				return nil, fmt.Errorf("read volume %s: %w", claim.Spec.VolumeName, err)
			}
		}
		if found := checkMount(pod, source, claim, volume, at); found != nil {
			return found, nil
		}
	}
	return nil, nil
}

func (h *Hollow) cachedReader(namespace string) claimReader {
	return claimReader{
		claim: func(name string) (*corev1.PersistentVolumeClaim, error) {
			return orNil(h.claims.PersistentVolumeClaims(namespace).Get(name))
		},
		volume: func(name string) (*corev1.PersistentVolume, error) { return orNil(h.volumes.Get(name)) },
	}
}

func (h *Hollow) liveReader(ctx context.Context, namespace string) claimReader {
	return claimReader{
		claim: func(name string) (*corev1.PersistentVolumeClaim, error) {
			return orNil(h.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{}))
		},
		volume: func(name string) (*corev1.PersistentVolume, error) {
			return orNil(h.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}))
		},
	}
}

// orNil turns "not found" into nil.
func orNil[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
