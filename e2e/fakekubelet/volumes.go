package fakekubelet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// claimReader finds claims and volumes by name.
type claimReader struct {
	claim  func(name string) (*corev1.PersistentVolumeClaim, error)
	volume func(name string) (*corev1.PersistentVolume, error)
}

// mountProblem returns why the pod's volumes cannot be mounted on its node, or nil.
func (h *Kubelets) mountProblem(ctx context.Context, p *player, pod *corev1.Pod) (*problem, error) {
	node, err := h.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", pod.Spec.NodeName, err)
	}
	at := mountPoint{labels: node.Labels, drivers: p.node.Drivers}
	if p.remote != nil {
		at.clusterID = p.node.Remote.ID
	}
	found, err := firstProblem(pod, at, h.cachedReader(pod.Namespace))
	if found == nil && err == nil && p.node.Attach {
		return h.unattached(ctx, pod)
	}
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

func (h *Kubelets) cachedReader(namespace string) claimReader {
	return claimReader{
		claim: func(name string) (*corev1.PersistentVolumeClaim, error) {
			return orNil(h.claims.PersistentVolumeClaims(namespace).Get(name))
		},
		volume: func(name string) (*corev1.PersistentVolume, error) { return orNil(h.volumes.Get(name)) },
	}
}

func (h *Kubelets) liveReader(ctx context.Context, namespace string) claimReader {
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

// mountPoint is what decides which volumes a node can mount.
type mountPoint struct {
	labels    map[string]string
	drivers   map[string]int32
	clusterID string // of the remote cluster that the node stands for, or empty
}

// problem is why a pod cannot mount a claim. If waiting cannot mend it, the pod
// should not have been bound to this node: that is a violation.
type problem struct {
	claim     string
	message   string
	violation bool
}

// claimName returns the name of the claim behind a pod's volume, if there is one.
func claimName(pod *corev1.Pod, volume corev1.Volume) (string, bool) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName, true
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name, true
	default:
		return "", false
	}
}

// checkMount returns why a claim of the pod cannot be mounted, or nil. The claim and
// the volume that it names are nil if they do not exist.
func checkMount(pod *corev1.Pod, source corev1.Volume, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume,
	at mountPoint) *problem {
	name, _ := claimName(pod, source)
	waiting := func(format string, args ...any) *problem {
		return &problem{claim: name, message: fmt.Sprintf(format, args...)}
	}
	wrong := func(format string, args ...any) *problem {
		return &problem{claim: name, message: fmt.Sprintf(format, args...), violation: true}
	}
	switch {
	case claim == nil:
		return waiting("claim %s does not exist", name)
	case source.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return waiting("claim %s was not made for this pod", name)
	case claim.DeletionTimestamp != nil:
		return waiting("claim %s is being deleted", name)
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return waiting("claim %s is not bound", name)
	case volume == nil:
		return waiting("volume %s of claim %s does not exist", claim.Spec.VolumeName, name)
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return wrong("volume %s is not bound to claim %s", volume.Name, name)
	}
	if err := storagehelpers.CheckNodeAffinity(volume, at.labels); err != nil {
		return wrong("volume %s of claim %s cannot be reached from this node: %v", volume.Name, name, err)
	}
	if message := checkSource(volume, at); message != "" {
		return wrong("volume %s of claim %s cannot be mounted on this node: %s", volume.Name, name, message)
	}
	return nil
}

// checkSource says why a volume's source cannot be mounted, or nothing.
func checkSource(volume *corev1.PersistentVolume, at mountPoint) string {
	csi := volume.Spec.CSI
	if at.clusterID != "" {
		if csi == nil || csi.Driver != keys.Driver || !strings.HasPrefix(csi.VolumeHandle, at.clusterID+"/") {
			return "its data is not in cluster " + at.clusterID
		}
		return ""
	}
	if csi == nil {
		return ""
	}
	if csi.Driver == keys.Driver {
		return "its data is in a remote cluster (" + csi.VolumeHandle + ")"
	}
	if _, ok := at.drivers[csi.Driver]; !ok {
		return "the node has no CSI driver " + csi.Driver
	}
	return ""
}

// Violation is a pod that was bound to a node where one of its volumes can never be mounted.
type Violation struct {
	Namespace, Pod, Node, Claim string
	Message                     string
}

func (v Violation) String() string {
	return fmt.Sprintf("pod %s/%s on node %s: %s", v.Namespace, v.Pod, v.Node, v.Message)
}

type violationKey struct {
	pod   types.UID
	claim string
}

// Violations returns every violation since Start, in the namespaces given, or in all if
// none is given.
func (h *Kubelets) Violations(namespaces ...string) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []Violation
	for _, violation := range h.violations {
		if len(namespaces) == 0 || slices.Contains(namespaces, violation.Namespace) {
			found = append(found, violation)
		}
	}
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Compare(a.String(), b.String()) })
	return found
}

// complain records the problem and tells it in an event, once as long as it stays the same.
func (h *Kubelets) complain(pod *corev1.Pod, reason string, found *problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found.violation {
		h.violations[violationKey{pod: pod.UID, claim: found.claim}] = Violation{
			Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Claim: found.claim, Message: found.message,
		}
	}
	told := string(pod.UID) + " " + found.message
	if h.complaints[keyOf(pod)] == told {
		return
	}
	h.complaints[keyOf(pod)] = told
	h.recorder.Event(pod, corev1.EventTypeWarning, reason, found.message)
}

func (h *Kubelets) forget(key podKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.complaints, key)
}
