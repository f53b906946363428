package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// GroupObservation is the state, from caches, of one content of our driver of several volumes, and of
// its snapshot.
type GroupObservation struct {
	Content *volumesnapshot.GroupContent
	// HomeID is the ID of this home.
	HomeID string
	// Cluster and Namespace are where all its volumes are; without one such place they are empty.
	Cluster, Namespace string
	State
	// Absent says that the cluster has no such snapshots at all.
	Absent bool
	// There is the snapshot in the remote cluster, nil if there is none.
	There *volumesnapshot.GroupSnapshot
	// Members are the volumes, in the order of the content.
	Members []GroupMember
}

// GroupMember is a volume of a content of several.
type GroupMember struct {
	// Ref is the backing claim, with its UID at the time the volume was created.
	Ref backing.Ref
	// Virtual is its virtual volume, Shadow and Real are the backing claim and its volume; nil if
	// there is none.
	Virtual *corev1.PersistentVolume
	Shadow  *corev1.PersistentVolumeClaim
	Real    *corev1.PersistentVolume
	// Taken are the snapshots that say that they are of this claim and part of There.
	Taken []*volumesnapshot.Snapshot
	// Waiting names a backing claim that is still to be made from one of these.
	Waiting string
}

// GroupStep is the next action for a content of several volumes.
type GroupStep = StepOf[volumesnapshot.GroupContentStatus]

// GroupName is the name of a content's snapshot in the remote cluster.
func GroupName(content *volumesnapshot.GroupContent) string {
	return "groupsnapshot-" + string(content.UID)
}

// GroupLabel is the label of the claims of which the snapshot of a content is taken.
func GroupLabel(content *volumesnapshot.GroupContent) string {
	return keys.GroupPrefix + string(content.UID)
}

// RefsOf returns the backing claims that a content of our driver names.
func RefsOf(c *volumesnapshot.GroupContent) []backing.Ref {
	if c.Spec.Driver != keys.Driver {
		return nil
	}
	var refs []backing.Ref
	for _, handle := range c.Spec.Source.VolumeHandles {
		if ref, err := backing.ParseRef(handle); err == nil && ref.Cluster != keys.Home {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Place returns the backing claims of a content, all in one namespace of one remote cluster, or why
// there is no such place.
func Place(c *volumesnapshot.GroupContent) (refs []backing.Ref, why string) {
	if c.Spec.Source.Handles != nil {
		return nil, "it names snapshots that were taken before, and of volumes in remote clusters those are not taken over together: make a " +
			"VolumeSnapshotContent of each instead"
	}
	refs = RefsOf(c)
	if len(refs) == 0 || len(refs) != len(c.Spec.Source.VolumeHandles) {
		return nil, "it names nothing in a remote cluster that Lodestone made: make the group snapshot anew"
	}
	if clusters := distinct(refs, func(r backing.Ref) string { return r.Cluster }); len(clusters) > 1 {
		return nil, fmt.Sprintf("its claims have their data in several clusters, %s, and volumes can be taken at one moment in one cluster "+
			"only: select claims of one cluster, or move the others there with kubectl lodestone move, and make the group snapshot anew",
			strings.Join(clusters, ", "))
	}
	if namespaces := distinct(refs, func(r backing.Ref) string { return r.Namespace }); len(namespaces) > 1 {
		return nil, fmt.Sprintf("its claims have their real claims in several namespaces of cluster %s, %s, and volumes can be taken at one "+
			"moment in one namespace only: take a VolumeSnapshot of each", refs[0].Cluster, strings.Join(namespaces, ", "))
	}
	return refs, ""
}

// InSeveralPlaces says why no snapshot can be taken at one moment of the claims that a group snapshot
// of the home cluster selects: their data is in several clusters. Empty if it is not, or if that is not
// known. Claims that are not virtual have their data at home.
func InSeveralPlaces(s *volumesnapshot.GroupSnapshot, claims []*corev1.PersistentVolumeClaim,
	volumeNamed func(string) *corev1.PersistentVolume) string {
	if s.Spec.Source.Selector == nil {
		return ""
	}
	// As the snapshot controller selects: by labels alone.
	selector := labels.SelectorFromSet(s.Spec.Source.Selector.MatchLabels)
	in := map[string][]string{}
	for _, claim := range claims {
		if !selector.Matches(labels.Set(claim.Labels)) || claim.Spec.VolumeName == "" {
			continue
		}
		volume := volumeNamed(claim.Spec.VolumeName)
		if volume == nil {
			continue
		}
		place := keys.Home
		if ref, err := backing.RefOf(volume); err == nil {
			place = ref.Cluster
		}
		in[place] = append(in[place], claim.Name)
	}
	if len(in) < 2 {
		return ""
	}
	var places []string
	for _, place := range slices.Sorted(maps.Keys(in)) {
		names := in[place]
		slices.Sort(names)
		where := "cluster " + place
		if place == keys.Home {
			where = "the home cluster"
		}
		text := fmt.Sprintf("%s of %s", where, names[0])
		if len(names) > 1 {
			text = fmt.Sprintf("%s of %s and %d more", where, names[0], len(names)-1)
		}
		places = append(places, text)
	}
	return fmt.Sprintf("the claims that it selects have their data in several clusters, %s, and volumes can be taken at one moment in one "+
		"cluster only: make a VolumeGroupSnapshot for the claims of each, with labels that select these alone, or move claims to one cluster "+
		"with kubectl lodestone move", strings.Join(places, ", "))
}

func distinct(refs []backing.Ref, of func(backing.Ref) string) []string {
	var found []string
	for _, ref := range refs {
		found = append(found, of(ref))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// NextOfGroup returns the next step for a content of several volumes.
func NextOfGroup(o GroupObservation) GroupStep {
	if o.Content.DeletionTimestamp != nil {
		return leaveGroup(o)
	}
	if _, why := Place(o.Content); why != "" {
		return FailGroup(o, why)
	}
	switch why := o.State.why(o.Cluster); {
	case why != "":
		step := FailGroup(o, why)
		step.After = slow
		return step
	case !o.Seen:
		return GroupStep{Verb: Idle, After: slow}
	case o.There != nil && !ourGroup(o):
		return FailGroup(o, fmt.Sprintf("VolumeGroupSnapshot %s/%s in cluster %s is another's: let its administrator delete it, then this "+
			"snapshot is taken", o.Namespace, o.There.Name, o.Cluster))
	case o.There != nil && o.There.Annotations[keys.Unpublished] != "":
		return GroupStep{Verb: Mark}
	case o.There != nil || ptr.Deref(o.Content.Status.Handle, "") != "":
		// It outlives its volumes and is never taken a second time.
		return followGroup(o)
	}
	for _, m := range o.Members {
		if why := unfitMember(o, m); why != "" {
			return FailGroup(o, why)
		}
	}
	if driver := o.Members[0].Real.Spec.CSI.Driver; slices.ContainsFunc(o.Members, func(m GroupMember) bool {
		return m.Real.Spec.CSI.Driver != driver
	}) {
		return FailGroup(o, fmt.Sprintf("the volumes of its claims in cluster %s are of several CSI drivers, and one driver takes them at one "+
			"moment: select claims of one driver, and make the group snapshot anew", o.Cluster))
	}
	return GroupStep{Verb: Take, After: slow}
}

// unfitMember says why no snapshot can be taken of a volume; empty if one can.
func unfitMember(o GroupObservation, m GroupMember) string {
	switch {
	case m.Virtual == nil || m.Virtual.Spec.ClaimRef == nil || m.Virtual.Spec.ClaimRef.Namespace != o.Content.Spec.Snapshot.Namespace:
		return fmt.Sprintf("volume %s is not that of a claim of namespace %q: make the group snapshot anew", m.Ref,
			o.Content.Spec.Snapshot.Namespace)
	case m.Shadow == nil || m.Shadow.DeletionTimestamp != nil:
		return fmt.Sprintf("real claim %s in cluster %s is gone or being deleted: make the group snapshot anew, of the claims that are left",
			m.Ref.Key(), o.Cluster)
	case m.Shadow.UID == "" || m.Shadow.UID != m.Source().UID:
		return fmt.Sprintf("real claim %s in cluster %s is not the one that PersistentVolume %s names: if it was made anew and has the same "+
			"volume, that is noted soon, and then the snapshot is taken", m.Ref.Key(), o.Cluster, m.Virtual.Name)
	case m.Shadow.Status.Phase != corev1.ClaimBound || m.Real == nil:
		return fmt.Sprintf("real claim %s in cluster %s has no volume yet: it gets one when its first pod starts there; the snapshot is taken "+
			"then", m.Ref.Key(), o.Cluster)
	case m.Real.Spec.CSI == nil:
		return fmt.Sprintf("the volume of real claim %s in cluster %s has no CSI driver, and only those take snapshots: select other claims",
			m.Ref.Key(), o.Cluster)
	}
	return ""
}

// Source is the backing claim that the virtual volume names now, as Source says for one volume.
func (m GroupMember) Source() backing.Ref {
	return Source(Observation{Ref: m.Ref, Virtual: m.Virtual})
}

// ourGroup says whether the snapshot in the remote cluster was taken for this content.
func ourGroup(o GroupObservation) bool {
	return o.There.Labels[keys.ContentUID] == string(o.Content.UID) && o.There.Labels[keys.HomeID] == o.HomeID
}

// followGroup reports the state of the remote snapshot on the content: which snapshots were taken at
// once, when all of them can be used.
func followGroup(o GroupObservation) GroupStep {
	have := o.Content.Status
	if o.There == nil {
		return lostGroup(o)
	}
	handle := backing.Ref{Cluster: o.Cluster, Namespace: o.There.Namespace, Name: o.There.Name, UID: o.There.UID}.String()
	said := o.There.Status
	ready := ptr.Deref(said.ReadyToUse, false) && o.There.DeletionTimestamp == nil
	want := volumesnapshot.GroupContentStatus{ReadyToUse: &ready, CreationTime: said.CreationTime}
	switch recorded := ptr.Deref(have.Handle, ""); {
	case recorded != "" && recorded != handle:
		return lostGroup(o)
	case recorded != "":
		want.Handle, want.Members, want.CreationTime = have.Handle, have.Members, have.CreationTime
	case ready:
		members, why := takenOf(o)
		if why != "" {
			return tellGroup(o, why)
		}
		want.Handle, want.Members = &handle, members
	}
	if message := failure(said.Error); message != "" && !ready {
		want.Error = &volumesnapshot.Failure{Time: said.Error.Time, Message: ptr.To("cluster " + o.Cluster + ": " + message)}
	}
	step := reportGroup(o, want)
	step.Taken = step.Verb == Report && have.Handle == nil && want.Handle != nil
	return step
}

// takenOf returns the snapshots that were taken: one of each volume, or why there are none.
func takenOf(o GroupObservation) ([]volumesnapshot.Member, string) {
	var members []volumesnapshot.Member
	for i, m := range o.Members {
		claim := fmt.Sprintf("real claim %s in cluster %s", m.Ref.Key(), o.Cluster)
		if len(m.Taken) == 0 {
			return nil, fmt.Sprintf("VolumeGroupSnapshot %s/%s has been taken without a snapshot of %s, or that is not seen yet: if it stays so, "+
				"make the group snapshot anew", o.Namespace, o.There.Name, claim)
		}
		if len(m.Taken) > 1 {
			return nil, fmt.Sprintf("%d VolumeSnapshots say that they are the one of %s in VolumeGroupSnapshot %s/%s: delete those that somebody "+
				"else made there", len(m.Taken), claim, o.Namespace, o.There.Name)
		}
		s := m.Taken[0]
		if s.DeletionTimestamp != nil || s.UID == "" {
			return nil, fmt.Sprintf("VolumeSnapshot %s/%s, of %s, is being deleted: make the group snapshot anew", s.Namespace, s.Name, claim)
		}
		if !ptr.Deref(s.Status.ReadyToUse, false) {
			why := failure(s.Status.Error)
			return nil, strings.TrimSuffix(fmt.Sprintf("waiting until VolumeSnapshot %s/%s, of %s, is ready: %s", s.Namespace, s.Name, claim,
				why), ": ")
		}
		taken := volumesnapshot.Member{
			VolumeHandle:   o.Content.Spec.Source.VolumeHandles[i],
			SnapshotHandle: backing.Ref{Cluster: o.Cluster, Namespace: s.Namespace, Name: s.Name, UID: s.UID}.String(),
			ReadyToUse:     ptr.To(true),
		}
		if s.Status.CreationTime != nil {
			taken.CreationTime = ptr.To(s.Status.CreationTime.UnixNano())
		}
		if s.Status.RestoreSize != nil && s.Status.RestoreSize.Sign() >= 0 {
			taken.RestoreSize = ptr.To(s.Status.RestoreSize.Value())
		}
		members = append(members, taken)
	}
	return members, ""
}

// lostGroup reports that a snapshot that was taken is gone; it is never taken again.
func lostGroup(o GroupObservation) GroupStep {
	return tellGroup(o, fmt.Sprintf("cluster %s has its snapshot no more, and with it the data is gone: delete this one too", o.Cluster))
}

// FailGroup reports on a content why its snapshot is not ready. One that was ready stays so while its
// cluster is unavailable.
func FailGroup(o GroupObservation, text string) GroupStep {
	if ptr.Deref(o.Content.Status.ReadyToUse, false) {
		return GroupStep{Verb: Idle, After: slow}
	}
	return tellGroup(o, text)
}

func tellGroup(o GroupObservation, text string) GroupStep {
	want := o.Content.Status
	want.ReadyToUse, want.Error = notReady(text)
	step := reportGroup(o, want)
	step.After = slow
	return step
}

func reportGroup(o GroupObservation, want volumesnapshot.GroupContentStatus) GroupStep {
	have := o.Content.Status
	return reportStatus(want, ptr.Equal(have.Handle, want.Handle) && ptr.Equal(have.ReadyToUse, want.ReadyToUse) &&
		have.CreationTime.Equal(want.CreationTime) && failure(have.Error) == failure(want.Error))
}

// leaveGroup is the step for a content that is being deleted.
func leaveGroup(o GroupObservation) GroupStep {
	c := o.Content
	_, wanted := c.Annotations[volumesnapshot.GroupBeingDeleted]
	switch {
	case !slices.Contains(c.Finalizers, volumesnapshot.GroupContentFinalizer) || !wanted:
		return GroupStep{Verb: Idle}
	case c.Spec.DeletionPolicy != volumesnapshot.Delete || o.Cluster == "":
		return GroupStep{Verb: Release}
	case o.Known && o.Usable && o.Absent && ptr.Deref(c.Status.Handle, "") == "":
		// Nothing was ever taken.
		return GroupStep{Verb: Release, Gone: true, After: slow}
	case !o.Known || !o.Usable || !o.Seen:
		return GroupStep{Verb: Idle, After: slow}
	case o.There == nil || !ourGroup(o):
		return GroupStep{Verb: Release, Gone: true, After: slow}
	case o.There.DeletionTimestamp != nil || slices.ContainsFunc(o.Members, func(m GroupMember) bool { return m.Waiting != "" }):
		// The volume of a claim that waits may already be bound at home, and would never get its data.
		return GroupStep{Verb: Idle, After: slow}
	}
	return GroupStep{Verb: Delete, After: slow}
}

// WantedGroup returns the VolumeGroupSnapshot to create for a content, in this version and with this class of the remote
// cluster; empty means its default class.
func WantedGroup(o GroupObservation, version schema.GroupVersion, class string) *volumesnapshot.GroupSnapshot {
	s := &volumesnapshot.GroupSnapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: version.String(), Kind: volumesnapshot.GroupKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: GroupName(o.Content),
			Labels: map[string]string{keys.HomeID: o.HomeID, keys.ContentUID: string(o.Content.UID)},
			Annotations: map[string]string{
				keys.Content: o.Content.Name, keys.MadeBy: o.Members[0].Real.Spec.CSI.Driver, keys.Unpublished: "true",
			},
		},
		Spec: volumesnapshot.GroupSnapshotSpec{Source: volumesnapshot.GroupSnapshotSource{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{GroupLabel(o.Content): "true"}},
		}},
	}
	if class != "" {
		s.Spec.ClassName = &class
	}
	return s
}
