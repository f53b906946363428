// Package decide has the decisions about snapshots of volumes in remote clusters: Next for a content
// of one volume (decide.go), NextOfGroup for one of several (group.go). Both take what was observed
// and return the one next step. The package is pure: no client, no clock.
package decide

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Observation is the state, from caches, of one content of our driver and of its snapshot.
type Observation struct {
	Content *volumesnapshot.Content
	// Ref is the backing claim to take a snapshot of, with its UID at the time the volume
	// was created. For a content with a snapshot handle (a pre-provisioned snapshot) it is
	// that snapshot. It is empty if the content names neither.
	Ref backing.Ref
	// Virtual is the virtual volume of that backing claim, nil if there is none. Its
	// annotation has the backing claim's present UID.
	Virtual *corev1.PersistentVolume
	State
	// There is the snapshot in the remote cluster, nil if there is none.
	There *volumesnapshot.Snapshot
	// Shadow and Real are the backing claim and its volume.
	Shadow *corev1.PersistentVolumeClaim
	Real   *corev1.PersistentVolume
	// Waiting names a backing claim that is still to be made from the snapshot.
	Waiting string
	// HomeID is the ID of this home.
	HomeID string
}

// Verb names the action of a step.
type Verb string

// The verbs of a step.
const (
	// Idle does nothing until something changes.
	Idle Verb = "Idle"
	// Take creates the snapshot in the remote cluster.
	Take Verb = "Take"
	// Mark records on the remote snapshot that home knows of it: from then on it is deleted
	// only when the user asks for it.
	Mark Verb = "Mark"
	// Report writes the content's status.
	Report Verb = "Report"
	// Delete deletes the snapshot in the remote cluster.
	Delete Verb = "Delete"
	// Release removes our finalizer from the content; with Gone the snapshot must first be
	// proven gone.
	Release Verb = "Release"
)

// Step is the next action for a content.
type Step = StepOf[volumesnapshot.ContentStatus]

// StepOf is the next action for a content with a status S.
type StepOf[S any] struct {
	Verb Verb
	// Status is set for Report.
	Status S
	// Taken is set for the Report that tells which snapshots of several volumes were taken: the labels by
	// which the claims were found have served.
	Taken bool
	// Gone is set for Release.
	Gone bool
	// After is when to decide again even if nothing changes; 0 means never.
	After time.Duration
}

// slow is when to decide again although an event should have come before.
const slow = 10 * time.Second

// Name is the name of a content's snapshot in the remote cluster.
func Name(content *volumesnapshot.Content) string { return "snapshot-" + string(content.UID) }

// Next returns the next step for a content.
func Next(o Observation) Step {
	if o.Content.DeletionTimestamp != nil {
		return leave(o)
	}
	if member(o.Content) && ptr.Deref(o.Content.Status.SnapshotHandle, "") == "" {
		// It is taken with others; the snapshot controller writes which one it is.
		return Step{Verb: Idle}
	}
	if o.Ref.Cluster == "" || o.Ref.Cluster == keys.Home {
		return Fail(o, "it names nothing in a remote cluster that Lodestone made: make the snapshot anew")
	}
	if step, blocked := unreachable(o); blocked {
		return step
	}
	switch {
	case Given(o.Content):
		return follow(o)
	case o.There != nil && !ours(o):
		return Fail(o, "VolumeSnapshot %s/%s in cluster %s is another's: let its administrator delete it, then this snapshot is taken",
			o.Ref.Namespace, o.There.Name, o.Ref.Cluster)
	case o.There != nil && o.There.Annotations[keys.Unpublished] != "":
		return Step{Verb: Mark}
	case o.There != nil || ptr.Deref(o.Content.Status.SnapshotHandle, "") != "":
		// It outlives its volume and is never taken a second time.
		return follow(o)
	case o.Virtual == nil || o.Virtual.Spec.ClaimRef == nil || o.Virtual.Spec.ClaimRef.Namespace != o.Content.Spec.Snapshot.Namespace:
		return Fail(o, "its volume is not that of a claim of namespace %q: make the snapshot anew", o.Content.Spec.Snapshot.Namespace)
	case o.Shadow == nil || o.Shadow.DeletionTimestamp != nil:
		return Fail(o, "real claim %s in cluster %s is gone or being deleted: a snapshot of it cannot be taken", o.Ref.Key(), o.Ref.Cluster)
	case o.Shadow.UID == "" || o.Shadow.UID != Source(o).UID:
		return Fail(o, "real claim %s in cluster %s is not the one that PersistentVolume %s names: if it was made anew and has the same "+
			"volume, that is noted soon, and then the snapshot is taken", o.Ref.Key(), o.Ref.Cluster, o.Virtual.Name)
	case o.Shadow.Status.Phase != corev1.ClaimBound || o.Real == nil:
		return Fail(o, "real claim %s in cluster %s has no volume yet: it gets one when its first pod starts there; the snapshot is taken then",
			o.Ref.Key(), o.Ref.Cluster)
	case o.Real.Spec.CSI == nil:
		return Fail(o, "the volume of real claim %s in cluster %s has no CSI driver, and only those take snapshots", o.Ref.Key(), o.Ref.Cluster)
	}
	return Step{Verb: Take, After: slow}
}

// Given says whether a content is for a snapshot that is not taken for it: a pre-provisioned one, or
// one that is taken with others.
func Given(c *volumesnapshot.Content) bool {
	return ptr.Deref(c.Spec.Source.SnapshotHandle, "") != "" || member(c)
}

// member says whether a content is for a snapshot that is taken with others: those are taken and
// deleted for their VolumeGroupSnapshotContent.
func member(c *volumesnapshot.Content) bool { return c.Annotations[volumesnapshot.MemberOf] != "" }

// ours says whether the snapshot in the remote cluster was taken for this content.
func ours(o Observation) bool {
	return o.There.Labels[keys.ContentUID] == string(o.Content.UID) && o.There.Labels[keys.HomeID] == o.HomeID
}

// unreachable is the step while no request can be sent to the remote cluster.
func unreachable(o Observation) (Step, bool) {
	switch why := o.State.why(o.Ref.Cluster); {
	case why != "":
		step := Fail(o, "%s", why)
		step.After = slow
		return step, true
	case !o.Seen:
		return Step{Verb: Idle, After: slow}, true
	}
	return Step{}, false
}

// State is whether a snapshot can be taken in a remote cluster, and whether what is there is seen.
type State struct {
	// Known says whether there is a RemoteCluster of that name, Usable whether requests may
	// be sent to it now; Message says why not.
	Known, Usable bool
	Message       string
	// Seen says whether what is there is up to date; Problem says why not.
	Seen    bool
	Problem string
}

// why says why no request can be sent to a cluster; empty if one can, or if it is not known yet.
func (s State) why(cluster string) string {
	switch {
	case !s.Known:
		return fmt.Sprintf("there is no RemoteCluster %q, which has the data: create it again", cluster)
	case !s.Usable:
		return fmt.Sprintf("cluster %s cannot be used now: %s; it is tried again", cluster, s.Message)
	case !s.Seen && s.Problem != "":
		return fmt.Sprintf("cluster %s cannot take it: %s", cluster, s.Problem)
	}
	return ""
}

// follow reports the state of the remote snapshot on the content.
func follow(o Observation) Step {
	if o.There == nil || Given(o.Content) && o.There.UID != o.Ref.UID {
		return lost(o)
	}
	handle := backing.Ref{Cluster: o.Ref.Cluster, Namespace: o.There.Namespace, Name: o.There.Name, UID: o.There.UID}.String()
	if have := ptr.Deref(o.Content.Status.SnapshotHandle, ""); have != "" && have != handle {
		return lost(o)
	}
	said := o.There.Status
	want := volumesnapshot.ContentStatus{SnapshotHandle: &handle, ReadyToUse: ptr.To(ptr.Deref(said.ReadyToUse, false) &&
		o.There.DeletionTimestamp == nil)}
	if said.CreationTime != nil {
		want.CreationTime = ptr.To(said.CreationTime.UnixNano())
	}
	if said.RestoreSize != nil && said.RestoreSize.Sign() >= 0 {
		want.RestoreSize = ptr.To(said.RestoreSize.Value())
	}
	if message := failure(said.Error); message != "" && !*want.ReadyToUse {
		want.Error = &volumesnapshot.Failure{Time: said.Error.Time, Message: ptr.To("cluster " + o.Ref.Cluster + ": " + message)}
	}
	return report(o, want)
}

// lost reports that a snapshot that was taken is gone. It is never taken again: a new one
// would have other data.
func lost(o Observation) Step {
	return tell(o, fmt.Sprintf("cluster %s has its snapshot no more, and with it the data is gone: delete this one too", o.Ref.Cluster))
}

// Fail reports on a content why its snapshot is not ready. A snapshot that was ready stays
// so while its cluster is unavailable.
func Fail(o Observation, text string, details ...any) Step {
	if ptr.Deref(o.Content.Status.ReadyToUse, false) {
		return Step{Verb: Idle, After: slow}
	}
	return tell(o, fmt.Sprintf(text, details...))
}

func tell(o Observation, text string) Step {
	want := o.Content.Status
	want.ReadyToUse, want.Error = notReady(text)
	step := report(o, want)
	step.After = slow
	return step
}

func report(o Observation, want volumesnapshot.ContentStatus) Step {
	have := o.Content.Status
	return reportStatus(want, ptr.Equal(have.SnapshotHandle, want.SnapshotHandle) && ptr.Equal(have.ReadyToUse, want.ReadyToUse) &&
		ptr.Equal(have.CreationTime, want.CreationTime) && ptr.Equal(have.RestoreSize, want.RestoreSize) &&
		failure(have.Error) == failure(want.Error))
}

// notReady returns what a status says of a snapshot that is not ready, and why.
func notReady(why string) (*bool, *volumesnapshot.Failure) {
	return ptr.To(false), &volumesnapshot.Failure{Message: ptr.To(sentence.Cut(why, maxMessage))}
}

// reportStatus is the step that writes a status, unless a content has it already.
func reportStatus[S any](want S, written bool) StepOf[S] {
	if written {
		return StepOf[S]{Verb: Idle}
	}
	return StepOf[S]{Verb: Report, Status: want}
}

// maxMessage bounds, in bytes, a text of a remote cluster that is written at home.
const maxMessage = 1024

func failure(f *volumesnapshot.Failure) string {
	if f == nil {
		return ""
	}
	return sentence.Cut(ptr.Deref(f.Message, ""), maxMessage)
}

// leave is the step for a content that is being deleted.
func leave(o Observation) Step {
	c := o.Content
	_, wanted := c.Annotations[volumesnapshot.BeingDeleted]
	unbound := Given(c) && c.Spec.Snapshot.UID == ""
	switch {
	case !slices.Contains(c.Finalizers, volumesnapshot.ContentFinalizer) || !wanted && !unbound:
		return Step{Verb: Idle}
	case c.Spec.DeletionPolicy != volumesnapshot.Delete || unbound || member(c) || o.Ref.Cluster == "" || o.Ref.Cluster == keys.Home:
		return Step{Verb: Release}
	case !o.Known || !o.Usable || !o.Seen:
		return Step{Verb: Idle, After: slow}
	case o.There == nil || !Given(c) && !ours(o) || Given(c) && o.There.UID != o.Ref.UID:
		return Step{Verb: Release, Gone: true, After: slow}
	case o.Waiting != "" || o.There.DeletionTimestamp != nil:
		// Its volume may already be bound at home, and would never get its data.
		return Step{Verb: Idle, After: slow}
	}
	return Step{Verb: Delete, After: slow}
}

// Source is the backing claim to take a snapshot of: the one that the virtual volume names
// now. It differs from the volume's handle if it was recreated. Empty if there is no
// volume, or if the volume names a claim in another cluster, namespace or name.
func Source(o Observation) backing.Ref {
	if o.Virtual == nil {
		return backing.Ref{}
	}
	ref, err := backing.RefOf(o.Virtual)
	if err != nil || ref.Cluster != o.Ref.Cluster || ref.Key() != o.Ref.Key() {
		return backing.Ref{}
	}
	return ref
}

// Wanted returns the VolumeSnapshot to create for a content, with this class of the remote
// cluster; empty means its default class.
func Wanted(o Observation, class string) *volumesnapshot.Snapshot {
	s := &volumesnapshot.Snapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Ref.Namespace, Name: Name(o.Content),
			Labels:      map[string]string{keys.HomeID: o.HomeID, keys.ContentUID: string(o.Content.UID)},
			Annotations: map[string]string{keys.Content: o.Content.Name, keys.MadeBy: o.Real.Spec.CSI.Driver, keys.Unpublished: "true"},
		},
		Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To(o.Ref.Name)}},
	}
	if class != "" {
		s.Spec.ClassName = &class
	}
	return s
}

// IsTaken says whether what has the name of a content's snapshot is that.
func (o Observation) IsTaken(found *unstructured.Unstructured) bool {
	if Given(o.Content) {
		return found.GetUID() == o.Ref.UID
	}
	return found.GetLabels()[keys.ContentUID] == string(o.Content.UID)
}

// HandleOf is the handle of the volume or snapshot that a content of our driver is for; empty for other drivers.
func HandleOf(c *volumesnapshot.Content) string {
	if c.Spec.Driver != keys.Driver {
		return ""
	}
	if handle := volumesnapshot.HandleOf(c); handle != "" && Given(c) {
		return handle
	}
	return ptr.Deref(c.Spec.Source.VolumeHandle, "")
}
