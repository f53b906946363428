package flow

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// opened says whether a change of a claim may let its pods go where the extender
// refused them. kube-scheduler tries them again at once, and may ask the extender
// a moment before that has seen the change: so they are woken once more.
func opened(before, after *corev1.PersistentVolumeClaim) bool {
	if before.Annotations[keys.Move] != "" && after.Annotations[keys.Move] == "" {
		return true
	}
	if after.Spec.VolumeName != "" || after.Annotations[keys.SelectedNode] != "" {
		return false
	}
	return before.Annotations[keys.Class] != after.Annotations[keys.Class] ||
		len(refusal.Decode(after.Annotations[keys.Refused])) < len(refusal.Decode(before.Annotations[keys.Refused]))
}
