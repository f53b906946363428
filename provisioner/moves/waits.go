package moves

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
)

// patient is how long a move waits for the same thing before an event says so.
const patient = 10 * time.Second

// waiting is what a move waits for.
type waiting struct {
	text  string
	since time.Time
	told  bool
}

// lasts says, once for each thing that a move waits for, that it has lasted long enough
// to be told.
func (w *waiting) lasts(now time.Time, step decide.Step, status v1alpha1.VolumeMoveStatus) bool {
	if step.Verb != decide.Idle || step.Say == "" || status.Phase == v1alpha1.MoveRetain {
		*w = waiting{}
		return false
	}
	if w.text != status.Message {
		*w = waiting{text: status.Message, since: now}
	}
	if w.told || now.Sub(w.since) < patient {
		return false
	}
	w.told = true
	return true
}

// aboutMove is what events on a VolumeMove are about.
func aboutMove(move *v1alpha1.VolumeMove) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeMove", Namespace: move.Namespace, Name: move.Name, UID: move.UID,
	}
}
