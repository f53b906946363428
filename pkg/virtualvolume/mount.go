package virtualvolume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// MountOptionsIgnored is the reason of the event that says what IgnoredOptions does.
const MountOptionsIgnored = "MountOptionsIgnored"

// maxOptions bounds, in bytes, what is quoted of mount options.
const maxOptions = 512

// IgnoredOptions says in a sentence which mount options of a virtual volume change nothing,
// since its real volume in a remote cluster has not got them; empty for none. Kubelets there
// mount that one, and home may change no volumes there. class is that of the real volume.
func IgnoredOptions(virtual, real *corev1.PersistentVolume, cluster, class string) string {
	if ptr.Deref(virtual.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
		return ""
	}
	var ignored []string
	for _, option := range virtual.Spec.MountOptions {
		if !slices.Contains(real.Spec.MountOptions, option) {
			ignored = append(ignored, option)
		}
	}
	if len(ignored) == 0 {
		return ""
	}
	text := strings.Join(ignored, ",")
	return fmt.Sprintf(
		"mount options %s of storage class %q have no effect in cluster %s, where pods mount the real volume with options of its own: for new volumes let its administrator set them in real storage class %q, or name another class of that cluster",
		strconv.Quote(strings.ToValidUTF8(text[:min(len(text), maxOptions)], "")), virtual.Spec.StorageClassName, cluster, class)
}
