// Package slim makes objects small before informers cache them: it drops what the
// provisioner never reads, and lets what many objects have in common be in memory
// once. What it returns must not be changed, not even by whoever holds it alone.
package slim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var _ cache.TransformFunc = Object

// Object is the transform of informers on the home cluster and on remote ones. A pod
// becomes a *Pod; all else keeps its type. It may be given what it has returned.
func Object(obj any) (any, error) {
	switch object := obj.(type) {
	case *Pod:
		return object, nil
	case *corev1.Pod:
		return NewPod(object), nil
	case *corev1.Node:
		// Only its labels count, and whether it is ready.
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, Labels: object.Labels,
		}, Status: corev1.NodeStatus{Conditions: readiness(object)}}, nil
	case *storagev1.VolumeAttachment:
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, DeletionTimestamp: object.DeletionTimestamp},
			Spec:       storagev1.VolumeAttachmentSpec{NodeName: texts.of(object.Spec.NodeName), Source: object.Spec.Source},
		}, nil
	case *corev1.PersistentVolumeClaim:
		claim(object)
	case *corev1.PersistentVolume:
		volume(object)
	default:
		if object, ok := obj.(metav1.Object); ok && object.GetManagedFields() != nil {
			object.SetManagedFields(nil)
		}
	}
	return obj, nil
}

// readiness returns of a node's conditions whether it is ready, and no more.
func readiness(node *corev1.Node) []corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return ready.of([]corev1.NodeCondition{{Type: corev1.NodeReady, Status: condition.Status}})
		}
	}
	return nil
}

// settled are annotations that say nothing any more on a claim that is bound.
var settled = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", keys.StorageProvisioner, keys.BetaStorageProvisioner,
}

func claim(c *corev1.PersistentVolumeClaim) {
	bound := c.Spec.VolumeName != ""
	common(&c.ObjectMeta, func(key string) bool {
		// The node of a backing claim is compared as long as that is not published.
		return bound && (slices.Contains(settled, key) || key == keys.SelectedNode && c.Labels[keys.ClaimUID] == "")
	})
	c.Spec.AccessModes, c.Status.AccessModes = modes.of(c.Spec.AccessModes), modes.of(c.Status.AccessModes)
	c.Spec.StorageClassName, c.Spec.VolumeMode = pointers.of(c.Spec.StorageClassName), volumeModes.of(c.Spec.VolumeMode)
	c.Spec.Resources.Requests = sizes.of(c.Spec.Resources.Requests)
	c.Status.Capacity, c.Status.AllocatedResources = sizes.of(c.Status.Capacity), sizes.of(c.Status.AllocatedResources)
}

func volume(v *corev1.PersistentVolume) {
	common(&v.ObjectMeta, func(key string) bool { return slices.Contains(settled, key) })
	v.Spec.AccessModes, v.Spec.VolumeMode = modes.of(v.Spec.AccessModes), volumeModes.of(v.Spec.VolumeMode)
	v.Spec.Capacity = sizes.of(v.Spec.Capacity)
	v.Spec.StorageClassName = texts.of(v.Spec.StorageClassName)
	v.Spec.NodeAffinity = affinities.of(v.Spec.NodeAffinity)
	if ref := v.Spec.ClaimRef; ref != nil {
		ref.Kind, ref.APIVersion, ref.Namespace = texts.of(ref.Kind), texts.of(ref.APIVersion), texts.of(ref.Namespace)
	}
	if csi := v.Spec.CSI; csi != nil {
		csi.Driver, csi.FSType, csi.VolumeAttributes = texts.of(csi.Driver), texts.of(csi.FSType), maps.of(csi.VolumeAttributes)
	}
}

// common makes metadata small, without the annotations that are dropped.
func common(m *metav1.ObjectMeta, dropped func(key string) bool) {
	m.ManagedFields = nil
	m.Namespace = texts.of(m.Namespace)
	m.Finalizers = lists.of(m.Finalizers)
	m.Labels = maps.of(m.Labels)
	for key := range m.Annotations {
		if dropped(key) {
			var kept map[string]string
			for key, value := range m.Annotations {
				if !dropped(key) {
					if kept == nil {
						kept = map[string]string{}
					}
					kept[key] = value
				}
			}
			m.Annotations = kept
			break
		}
	}
	m.Annotations = maps.of(m.Annotations)
}

// Pod is what is known of a pod: its claims, and what says where a copy of it may
// run.
type Pod struct {
	metav1.ObjectMeta
	// Node is empty until the pod is scheduled.
	Node string
	// Phase is that of its status.
	Phase corev1.PodPhase
	// Runs says whether its node told last that one of its containers runs.
	Runs bool
	// Grace is how many seconds its containers may take to end.
	Grace int64
	// Claims are namespace/name of the claims that it uses, those of generic
	// ephemeral volumes included.
	Claims []string
}

// NewPod returns what is known of a pod.
func NewPod(pod *corev1.Pod) *Pod {
	return &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: texts.of(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Finalizers: lists.of(pod.Finalizers),
		},
		Node: texts.of(pod.Spec.NodeName), Phase: corev1.PodPhase(texts.of(string(pod.Status.Phase))), Claims: claimsOf(pod),
		Runs: runs(&pod.Status), Grace: grace(pod),
	}
}

// runs says whether a container is known to run.
func runs(status *corev1.PodStatus) bool {
	for _, statuses := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		if slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
			return true
		}
	}
	return false
}

// longestGrace keeps times with a grace period in them from overflowing.
const longestGrace = 1 << 30

// grace returns the grace period of a pod. Whoever deletes it may give it a longer one.
func grace(pod *corev1.Pod) int64 {
	seconds := max(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds), ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
	return min(max(seconds, 0), longestGrace)
}

// Finished says whether the pod has ended for good.
func (p *Pod) Finished() bool { return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed }

// Ended says whether a pod is known to run nothing any more. Nodes say so before they
// let a pod go that they were asked to end, and others say only that it has failed.
func (p *Pod) Ended() bool { return p.Finished() && !p.Runs }

// claimsOf returns namespace/name of the claims that a pod uses.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Namespace+"/"+ephemeral.VolumeClaimName(pod, volume))
		}
	}
	return names
}
