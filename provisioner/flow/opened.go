package flow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// settleTime is how long after a change the pods that wait are woken: by then the
// extender has seen the change too.
const settleTime = 500 * time.Millisecond

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
	was, is := before.Annotations[keys.Refused], after.Annotations[keys.Refused]
	return before.Annotations[keys.Class] != after.Annotations[keys.Class] ||
		(was != is && len(refusal.Decode(is)) < len(refusal.Decode(was)))
}

// namespaceChanged wakes the claims of a namespace whose pods may now run
// elsewhere than before: those that wait, and those with which pods wait.
func (f *Flow) namespaceChanged(old, obj any) {
	before, _ := old.(*corev1.Namespace)
	after, _ := obj.(*corev1.Namespace)
	if before == nil || after == nil || sameOpenness(before, after) {
		return
	}
	for _, claim := range f.waiting() {
		if claim.Namespace == after.Name {
			f.rouse(claim, "namespace "+after.Name)
		}
	}
	for _, claim := range f.Sources.boundOfWaitingPods(after.Name) {
		f.rouse(claim, "namespace "+after.Name)
	}
}

// RoomReleased is called when kube-scheduler asks for no room any more: it wakes
// the pods that wait for claims without a node.
func (f *Flow) RoomReleased() {
	for _, claim := range f.waiting() {
		if claim.Annotations[keys.SelectedNode] == "" {
			f.rouse(claim, "room")
		}
	}
}

func sameOpenness(a, b *corev1.Namespace) bool {
	before, narrowed := a.Annotations[keys.OffloadClusters]
	after, narrow := b.Annotations[keys.OffloadClusters]
	return a.Labels[keys.Offload] == b.Labels[keys.Offload] && narrowed == narrow && before == after
}

// rouse has a virtual claim touched once others have seen what changed.
func (f *Flow) rouse(claim *corev1.PersistentVolumeClaim, what string) {
	if claim.Spec.VolumeName != "" && f.Sources.virtual(claim.UID) == nil {
		return
	}
	if virtualclass.Is(one[storagev1.StorageClass](f.Sources.Classes, className(claim))) {
		f.memory.setChanged(claim.UID, what, time.Now().Add(settleTime))
		f.queue.AddAfter(claim.UID, settleTime+time.Millisecond)
	}
}
