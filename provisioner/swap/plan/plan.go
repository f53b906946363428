// Package plan says how the virtual volume of a claim gets from one backing to another, and back: the claim stays, with
// its UID, and its volume is deleted and made anew under the same name, for another source. The claim is first released
// (Release, Unbind), which needs a proof that nobody has the volume, and then bound (Make, Bind). The package is pure: no
// client, no clock. Package swap does it.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Swap is the swap of one claim's volume.
type Swap struct {
	// Claim is the name of the claim.
	Claim string
	// Placeholder is the name of a claim that does not exist, which a released volume names.
	Placeholder string
	// Part names the part of the swap that is done now, Began is when it began.
	Part  string
	Began time.Time
	Now   time.Time
}

// Seen is the claim and the volume of its name, as they were just read; nil if there is none.
type Seen struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
}

// Action is one write of a swap.
type Action int

// The writes of a swap.
const (
	// Nothing is to be written.
	Nothing Action = iota
	// Delete deletes the volume, and has it name the placeholder.
	Delete
	// Free removes the finalizers of the volume that nobody else needs.
	Free
	// Create makes the volume.
	Create
	// Touch writes Text on the claim, so that kube-controller-manager processes it.
	Touch
	// TouchUnbound is Touch, and the claim is no longer one that was bound, but waits for the volume that it names.
	TouchUnbound
)

// Step is the next step of a swap.
type Step struct {
	Action Action
	Text   string
	// Wait says what is awaited; empty if nothing is. Replaced says that somebody made another volume of that name.
	Wait     string
	Replaced bool
}

// unclaimSoon is how long kube-controller-manager may take to see that a volume which is deleted is
// no longer that of its claim. If it does not, it warns that the data is lost, and no more.
const unclaimSoon = 10 * time.Second

// Release is the step by which a volume goes; before is the one that is to go.
func Release(s Swap, seen Seen, before *corev1.PersistentVolume) Step {
	switch v := seen.Volume; {
	case v == nil:
		return Step{}
	case v.UID != before.UID:
		return Step{Replaced: true}
	case v.DeletionTimestamp == nil || !s.isUnclaimed(v) && s.isSoonAfterDeletion(v):
		return Step{Action: Delete}
	case foreignFinalizer(v) != "":
		return Step{Wait: held(v)}
	case v.Status.Phase != corev1.VolumeReleased && s.isSoonAfterDeletion(v):
		return Step{Wait: fmt.Sprintf("waiting until it is known that volume %s is no longer that of the claim", v.Name)}
	}
	return Step{Action: Free}
}

// Unbind is the step by which a claim whose volume is gone is seen to have none.
func Unbind(s Swap, seen Seen) Step {
	touch := s.touch(seen.Volume)
	switch {
	case hasNoVolume(seen):
		return Step{}
	case seen.Claim.Annotations[keys.MoveTouched] != touch:
		return Step{Action: TouchUnbound, Text: touch}
	}
	return Step{Wait: s.notUnbound()}
}

// WhyNotReleased says what a release that takes long waits for; empty if it waits for nothing.
func WhyNotReleased(s Swap, seen Seen) string {
	switch {
	case seen.Volume != nil && seen.Volume.DeletionTimestamp != nil && foreignFinalizer(seen.Volume) != "":
		return held(seen.Volume)
	case seen.Volume == nil && !hasNoVolume(seen):
		return s.notUnbound()
	}
	return ""
}

// Make is the step by which a claim without a volume gets the wanted one, or one that was to go makes way for it.
func Make(s Swap, seen Seen, want *corev1.PersistentVolume) Step {
	v := seen.Volume
	// One that no longer names its claim would stay for ever, although somebody deleted the claim.
	goes := v != nil && v.DeletionTimestamp != nil && (seen.Claim != nil || s.isUnclaimed(v))
	switch {
	case v == nil:
		return Step{Action: Create}
	case goes && foreignFinalizer(v) != "":
		return Step{Wait: held(v)}
	case goes:
		return Step{Action: Free}
	case seen.Claim == nil:
		// Somebody deleted the claim, and so decided about its volume too.
	case v.Annotations[keys.Backing] != want.Annotations[keys.Backing]:
		return Step{Replaced: true}
	}
	return Step{}
}

// Bind is the step by which a claim is bound to its volume, which exists.
func Bind(s Swap, seen Seen) Step {
	touch := s.touch(seen.Volume)
	switch {
	case seen.Claim == nil || seen.Claim.Status.Phase == corev1.ClaimBound && seen.Volume.Status.Phase == corev1.VolumeBound:
		return Step{}
	case seen.Claim.Annotations[keys.MoveTouched] != touch:
		return Step{Action: Touch, Text: touch}
	}
	return Step{Wait: "waiting until claim " + s.Claim + " is bound again"}
}

// isSoonAfterDeletion says whether a volume was deleted not long ago. The time of its deletion is that of an API server's
// clock, which may be wrong.
func (s Swap) isSoonAfterDeletion(volume *corev1.PersistentVolume) bool {
	since := s.Began
	if deleted := volume.DeletionTimestamp.Time; deleted.After(since) && deleted.Sub(s.Now) < unclaimSoon {
		since = deleted
	}
	return s.Now.Sub(since) < unclaimSoon
}

// isUnclaimed says whether a virtual volume names another claim than its own, one that does not exist.
// When it goes, kube-controller-manager then does not look at its claim, and so does not write that the
// claim is Lost and its data, too; once it is gone the claim is made one that waits for its volume.
func (s Swap) isUnclaimed(volume *corev1.PersistentVolume) bool {
	return volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Name == s.Placeholder
}

// held describes a virtual volume that is awaited to be gone.
func held(volume *corev1.PersistentVolume) string {
	return fmt.Sprintf("waiting until volume %s is let go by who put finalizer %s on it", volume.Name, foreignFinalizer(volume))
}

// notUnbound describes a claim that kube-controller-manager has not seen without its volume yet.
func (s Swap) notUnbound() string {
	return "waiting until it is known that claim " + s.Claim + " has no volume for now"
}

// hasNoVolume says whether a claim certainly has no volume.
func hasNoVolume(seen Seen) bool {
	return seen.Volume == nil && seen.Claim != nil && seen.Claim.Status.Phase != corev1.ClaimBound
}

// touchEvery is after what time a claim that is not in the wanted state is touched again.
const touchEvery = 3 * time.Second

// touch is the text of a touch of its own: another one in each part, for each phase of the volume, and from time to time.
// kube-controller-manager binds a claim only to a volume that is in its cache, and by itself retries claims only every 15
// seconds, also after a conflict: a claim that was touched too early would wait for that.
func (s Swap) touch(volume *corev1.PersistentVolume) string {
	phase := corev1.PersistentVolumePhase("")
	if volume != nil {
		phase = volume.Status.Phase
	}
	return fmt.Sprintf("%s-%d-%d-%s", s.Part, s.Began.UnixMilli(), s.Now.Sub(s.Began)/touchEvery, phase)
}

// OwnFinalizers are those that a virtual volume has because it is Lodestone's or because it is
// a volume, and not because another program needs it.
var OwnFinalizers = []string{protection, "external-provisioner.volume.kubernetes.io/finalizer"}

// protection is the finalizer that the API server adds to each volume.
const protection = "kubernetes.io/pv-protection"

// IsOwnFinalizer says whether a finalizer of a virtual volume is one of those.
func IsOwnFinalizer(finalizer string) bool { return slices.Contains(OwnFinalizers, finalizer) }

// IsAttacherFinalizer says whether a finalizer belongs to a CSI attacher, which adds and
// removes it with attachments.
func IsAttacherFinalizer(finalizer string) bool {
	return strings.HasPrefix(finalizer, "external-attacher/")
}

// foreignFinalizer returns a finalizer of a virtual volume that a swap must not remove,
// such as that of an attacher whose volume is not detached yet.
func foreignFinalizer(volume *corev1.PersistentVolume) string {
	for _, finalizer := range volume.Finalizers {
		if !IsOwnFinalizer(finalizer) {
			return finalizer
		}
	}
	return ""
}

// Successor copies to a new volume of a claim what an administrator chose for the one before, and what
// does not depend on where the data is.
func Successor(next, before *corev1.PersistentVolume) *corev1.PersistentVolume {
	next.Finalizers = slices.Clone(before.Finalizers)
	next.Spec.PersistentVolumeReclaimPolicy = before.Spec.PersistentVolumeReclaimPolicy
	next.Spec.StorageClassName = before.Spec.StorageClassName
	next.Spec.ClaimRef = claimRef(before.Spec.ClaimRef)
	for key, value := range before.Labels {
		if _, ours := next.Labels[key]; !ours {
			next.Labels[key] = value
		}
	}
	for key, value := range before.Annotations {
		if _, ours := next.Annotations[key]; !ours && !slices.Contains(locationAnnotations, key) {
			next.Annotations[key] = value
		}
	}
	return next
}

// locationAnnotations are the annotations of a virtual volume that depend on where its data
// is.
var locationAnnotations = []string{keys.Backing, keys.BackingVolume, keys.ClusterUID, keys.Healing, keys.Lost}

func claimRef(ref *corev1.ObjectReference) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// Remembered returns the part of a volume that is to be stored, so that it can be made again as it was.
func Remembered(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name, UID: volume.UID, Labels: maps.Clone(volume.Labels),
			Annotations: maps.Clone(volume.Annotations)},
		Spec: *volume.Spec.DeepCopy(),
	}
	for _, finalizer := range volume.Finalizers {
		// The API server adds its own finalizer, and an attacher adds its own with each
		// attachment.
		if IsOwnFinalizer(finalizer) && finalizer != protection {
			kept.Finalizers = append(kept.Finalizers, finalizer)
		}
	}
	kept.Spec.ClaimRef = claimRef(volume.Spec.ClaimRef)
	return kept
}
