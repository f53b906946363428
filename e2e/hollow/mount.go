package hollow

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
func checkMount(pod *corev1.Pod, source corev1.Volume, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, at mountPoint) *problem {
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
