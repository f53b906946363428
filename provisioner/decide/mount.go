package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// mountOptionsIgnored is the reason of mount options that change nothing.
const mountOptionsIgnored = "MountOptionsIgnored"

// unmounted tells of mount options of the virtual class that a remote real volume has
// not: kubelets there mount that one, and home may change no volumes there. It is for the
// step that is taken once, when the real volume has become known; nil for nothing to tell.
func unmounted(o Observation, b Backing) *Message {
	if b.Cluster == keys.Home || b.Volume == nil || o.Volume.Spec.VolumeMode != nil && *o.Volume.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return nil
	}
	var ignored []string
	for _, option := range o.Volume.Spec.MountOptions {
		if !slices.Contains(b.Volume.Spec.MountOptions, option) {
			ignored = append(ignored, option)
		}
	}
	if len(ignored) == 0 {
		return nil
	}
	return warn(mountOptionsIgnored, fmt.Sprintf(
		"mount options %s of storage class %q have no effect in %s, where pods mount the real volume with options of its own: for new volumes let its administrator set them in real storage class %q, or name another class of that cluster",
		strconv.Quote(cut(strings.Join(ignored, ","), maxWords)), o.Volume.Spec.StorageClassName, where(b.Cluster), className(b.Claim)))
}
