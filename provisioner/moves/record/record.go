// Package record is the stored state of a move. A Record is kept in a Secret that no tenant
// can write, because a forged one could bind a claim to another tenant's volume. It is
// written before each side effect, as the intent. The package is pure: no client, no clock.
// Start with Record; state.go has the questions that others ask of it.
package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// version is the version of the stored format, ofGroup that of a failover of several claims, and ofSlots that of one that takes slots: a
// program that knows only the first one would give all of them what the version has of the first, or delete a slot.
const (
	version = 1
	ofGroup = 2
	ofSlots = 3
)

// Record is the state of one move.
type Record struct {
	Version   int       `json:"version"`
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Phase is the phase whose side effects may have begun.
	Phase v1alpha1.MovePhase `json:"phase"`
	// Began has, for each phase, when it last began.
	Began map[v1alpha1.MovePhase]time.Time `json:"began"`
	// Target is the cluster and class that the data moves to.
	Target v1alpha1.MovePlace  `json:"target"`
	Verify v1alpha1.MoveVerify `json:"verify"`
	Passes int32               `json:"passes"`
	// Limit is the maximum rate in bytes per second; 0: unlimited.
	Limit int64 `json:"limit,omitempty"`
	// Why says why the move was rolled back or never began, or the result of a dry run;
	// Refused that nobody asked for that; Cause classifies it, but is empty in records of
	// earlier versions.
	Why     string `json:"why,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Cause   Cause  `json:"cause,omitempty"`
	// Down is when pods could no longer use the claims, Up when they could again.
	Down time.Time `json:"down,omitzero"`
	Up   time.Time `json:"up,omitzero"`
	// Known are those who may have the volumes.
	proof.Known
	// Stalled is since when the copy has made no progress while pods are stopped for it;
	// zero while it makes progress.
	Stalled time.Time `json:"stalled,omitzero"`
	// Intruded says that somebody used a source after it had been fenced: what was copied
	// and compared since cannot be trusted.
	Intruded bool `json:"intruded,omitempty"`
	// Freed says that a move that is rolled back or committed has released its claims: what is
	// left of it, such as the copy that it keeps, touches neither the claims nor their pods, and
	// another move may begin.
	Freed bool `json:"freed,omitempty"`
	// MovedOn says that a later move has given all claims volumes elsewhere, so that the copy at
	// the source is not kept any longer.
	MovedOn bool `json:"movedOn,omitempty"`
	// GivenUp are the ends that are left as they are, because their cluster is gone for
	// good. No further requests are sent there.
	GivenUp []End `json:"givenUp,omitempty"`
	// LongStop says that pods may be stopped for as long as a whole copy takes.
	LongStop bool `json:"longStop,omitempty"`
	// Adopts says that nothing is copied: the claim gets a real claim that is at the target already, with newer data of
	// it. That is never removed, and the source is kept.
	Adopts bool `json:"adopts,omitempty"`
	// Failover is the version that the claim gets in place of its volume; nil: its data is copied.
	Failover *Failover `json:"failover,omitempty"`
	// HandedTo is the later move that takes the copies at the source as its targets; empty: none. They are not this move's
	// any more once they bear the mark of that one.
	HandedTo types.UID `json:"handedTo,omitempty"`
	// StaysLocked says that the claims stay locked when the move is rolled back, because newer data of them exists.
	StaysLocked bool `json:"staysLocked,omitempty"`

	Claims []Claim `json:"claims,omitempty"`
	// Group is one snapshot of all claims that have a Snapshot; nil: each gets one of its own.
	Group *Group `json:"group,omitempty"`
}

// Failover is the sealed version of a replica of which the target of a move is made, without a copy of the source.
type Failover struct {
	// Replica is the name of the VolumeReplica, and Cut the moment that the version is of.
	Replica string    `json:"replica"`
	Cut     time.Time `json:"cut"`
	// Slots is the UID of the VolumeReplica if its versions are in real claims, without snapshots: these become the targets. Empty: the
	// targets are made of snapshots.
	Slots types.UID `json:"slots,omitempty"`
	// Sealed is what the version has of the first claim, Others of the others, in the order of the claims.
	Sealed
	Others []Sealed `json:"others,omitempty"`
	// Declared says that somebody vouches for a source whose cluster does not answer, Lease that its remote agent has promised to end pods
	// there, and Grace is the longest grace period, in seconds, of pods that were seen to be there. Fence is how it was known that nobody
	// writes to the source, once it was fenced.
	Declared bool                   `json:"declared,omitempty"`
	Lease    bool                   `json:"lease,omitempty"`
	Grace    int64                  `json:"grace,omitempty"`
	Fence    v1alpha1.FailoverFence `json:"fence,omitempty"`
}

// Sealed is what a version has of one claim.
type Sealed struct {
	// Version is the name of the VolumeSnapshot beside the target, UID its UID, and Volume the volume that it is of. With Slots the UID is
	// that of the real claim which is to be the target.
	Version string                `json:"version"`
	UID     types.UID             `json:"uid"`
	Volume  volumesnapshot.Volume `json:"volume"`
	// Deferred says that the storage of the target waits for the first pod.
	Deferred bool `json:"deferred,omitempty"`
}

// Basis is a sealed version of a replica, in the cluster of the target, that the target is made from: then only what differs travels. It
// may be old, or altered, and counts for nothing: all is copied and compared as into an empty target.
type Basis struct {
	// Replica is the name of the VolumeReplica.
	Replica string `json:"replica"`
	Sealed
	// Why says why the target is made empty after all; empty: it is not.
	Why string `json:"why,omitempty"`
}

// InUse says whether the target is made from it.
func (b *Basis) InUse() bool { return b != nil && b.Why == "" }

// At returns what the version has of the claim at an index.
func (f *Failover) At(i int) *Sealed {
	if i == 0 {
		return &f.Sealed
	}
	return &f.Others[i-1]
}

// Group is one snapshot of several sources, so that what is copied of all of them is of one moment.
type Group struct {
	// By is the VolumeGroupSnapshotClass, Version that of the API in the source's cluster.
	By      string `json:"by"`
	Version string `json:"version"`
	// Since is when its creation was first attempted; zero: never. Over is since when it is no longer
	// needed; Gone says that nothing of it is left.
	Since time.Time `json:"since,omitzero"`
	Over  time.Time `json:"over,omitzero"`
	Gone  bool      `json:"gone,omitempty"`
	// UID is the VolumeGroupSnapshot's, once it is known which snapshots were taken; Why says why it was
	// given up before.
	UID types.UID `json:"uid,omitempty"`
	Why string    `json:"why,omitempty"`
}

// MayExist says whether an object of it may exist.
func (g *Group) MayExist() bool { return g != nil && !g.Since.IsZero() && !g.Gone }

// Claim is one claim of a move.
type Claim struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Volume is the virtual volume as it was before the move, New as it is to be after the
	// move; New is nil before Commit.
	Volume *corev1.PersistentVolume `json:"volume"`
	New    *corev1.PersistentVolume `json:"new,omitempty"`
	Source Copy                     `json:"source"`
	Target Copy                     `json:"target"`
	// Kept is the copy that an earlier move keeps and that this one takes as its target; nil: the target is made.
	Kept *Kept `json:"kept,omitempty"`
	// Basis is the version that the target begins with; nil: it begins empty.
	Basis *Basis `json:"basis,omitempty"`
	// Generation is that of the copy at the target; 0 in records of earlier versions.
	Generation int64 `json:"generation,omitempty"`
	// Pass is the number of the last pass over the data; Settled says that no more are
	// needed before the application stops.
	Pass    int32 `json:"pass,omitempty"`
	Settled bool  `json:"settled,omitempty"`
	// Offline says that the source cannot be read while a pod uses it: it is read once
	// nobody has the volume. Snapshot is how its data is copied before that; nil if that is
	// not possible, and NoSnapshot says why. Then everything is copied while pods are
	// stopped.
	Offline    bool      `json:"offline,omitempty"`
	Snapshot   *Snapshot `json:"snapshot,omitempty"`
	NoSnapshot string    `json:"noSnapshot,omitempty"`
	// Level is the SELinux level in the security context of pods that use the source; empty
	// if none has one.
	Level string `json:"level,omitempty"`
	// User is as whom its movers in remote clusters run; nil: as root.
	User *movers.User `json:"user,omitempty"`
	// Yields counts how often the mover at the source was deleted to make way for pods on
	// another node, Yielded is when last, and YieldedBy is the UID of that mover's pod.
	Yields    int       `json:"yields,omitempty"`
	Yielded   time.Time `json:"yielded,omitzero"`
	YieldedBy types.UID `json:"yieldedBy,omitempty"`
	// Prepared says that the movers found nothing that prevents the copy.
	Prepared bool `json:"prepared,omitempty"`
	// Expect is what the mover at the source must find there again: it shows an empty or
	// wrong mount.
	Expect json.RawMessage `json:"expect,omitempty"`
	// Try counts how often the last pass was begun; Instance is the mover that ran it.
	Try      int    `json:"try,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Sent is how many bytes were sent from mover to mover, Stored how many through a
	// repository. Counted is the last task whose bytes are included.
	Sent       int64  `json:"sent,omitempty"`
	Stored     int64  `json:"stored,omitempty"`
	Counted    string `json:"counted,omitempty"`
	SourceRoot string `json:"sourceRoot,omitempty"`
	TargetRoot string `json:"targetRoot,omitempty"`
	// Released says that the mover at the target writes nothing more, although its pod may exist.
	Released bool `json:"released,omitempty"`
	// Keys are the one-time keys of this claim's movers.
	Keys map[moverapi.Role]moverapi.Files `json:"keys,omitempty"`
	// Store is the repository through which the content is transferred; nil: none.
	Store *Store `json:"store,omitempty"`
}

// Copy is one of the two copies of the data.
type Copy struct {
	// Ref is its backing claim, without a UID until that is known to exist.
	Ref backing.Ref `json:"ref"`
	// Real is the name of the real volume, once known. Policy is its reclaim policy before
	// the move, if the move changed it.
	Real   string                               `json:"real,omitempty"`
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy,omitempty"`
	Class  string                               `json:"class,omitempty"`
	// Stays is the name of a real volume that, because of its reclaim policy, is kept with
	// its data when its claim is deleted.
	Stays string `json:"stays,omitempty"`
	// Node is the node on which its mover must run; empty: any.
	Node string `json:"node,omitempty"`
}

// Kept is a copy at the source of a committed move.
type Kept struct {
	// By is that move, and Name its name. UID is that of the backing claim.
	By   types.UID `json:"by"`
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Snapshot names what that move keeps of it as it was before this move writes to it; empty: nothing, and NoSnapshot says
	// why. Both are empty until that move has handed the copy over.
	Snapshot string `json:"snapshot,omitempty"`
	// Stays says that the snapshot is kept after this move, until that one is finalized: it was a failover.
	Stays      bool   `json:"stays,omitempty"`
	NoSnapshot string `json:"noSnapshot,omitempty"`
}

// End is one end of a copy.
type End string

// The ends of a copy.
const (
	Source End = "source"
	Target End = "target"
	// Snapped is a claim created from a snapshot of the source, which is copied instead of
	// the source while pods use that.
	Snapped End = "snapshot"
)

// At returns the copy at an end. Do not call it with Snapped for a claim without a
// snapshot.
func (c *Claim) At(end End) *Copy {
	switch end {
	case Source:
		return &c.Source
	case Snapped:
		return &c.Snapshot.Copy
	default: // Target
		return &c.Target
	}
}

// Snapshot is used for a source that cannot be read while its pod uses it: a snapshot is
// taken, a claim is created from it, and that claim is copied. The result is only the start
// of a copy: the source itself is read once nobody uses it. One that Keeps is not copied: it is taken of the copy that a
// committed move keeps, before a later move writes to that.
type Snapshot struct {
	// Copy is the claim created from the snapshot; it has no UID, since its name is unique
	// to the move.
	Copy
	// By is the VolumeSnapshotClass. Driver and Handle identify the volume that the
	// snapshot must be of.
	By     string `json:"by"`
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Taken is the name of the VolumeSnapshot if it was taken as part of the record's Group; empty: it
	// has the name of the claim that is created from it.
	Taken string `json:"taken,omitempty"`
	// Since is when its creation was first attempted; zero: never. Over is since when it is
	// no longer needed; Gone says that nothing of it is left.
	Since time.Time `json:"since,omitzero"`
	Over  time.Time `json:"over,omitzero"`
	Gone  bool      `json:"gone,omitempty"`
	// Prepared says that the mover found nothing that prevents the copy, Copied that all of
	// it was copied, Why why it never will be.
	Prepared bool   `json:"prepared,omitempty"`
	Copied   bool   `json:"copied,omitempty"`
	Why      string `json:"why,omitempty"`
	Keeps    bool   `json:"keeps,omitempty"`
}

// Key is the namespace and name of the VolumeSnapshot.
func (s *Snapshot) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Ref.Namespace, Name: cmp.Or(s.Taken, s.Ref.Name)}
}

// MayExist says whether an object of it may exist.
func (s *Snapshot) MayExist() bool { return s != nil && !s.Since.IsZero() && !s.Gone }

// InUse says whether the claim created from it is copied, or will be.
func (s *Snapshot) InUse() bool { return s.MayExist() && s.Over.IsZero() }

// CopiedInStop says whether all data of a claim is copied while pods are stopped.
func (c *Claim) CopiedInStop() bool { return c.Offline && (c.Snapshot == nil || !c.Snapshot.Copied) }

// Store is the object store, or the claim beside the movers, through which a claim's
// content is transferred.
type Store struct {
	// Cluster is the RemoteCluster that configures it.
	Cluster string `json:"cluster"`
	// Ticket is what the claim's movers get. It is kept as long as movers may exist.
	Ticket moverapi.Ticket `json:"ticket"`
}

// Describe returns a phrase about it for the end of a sentence.
func (s *Store) Describe() string {
	if s.Ticket.Claim != "" {
		return s.Ticket.Noun() + ", the repository of cluster " + s.Cluster
	}
	return s.Ticket.Noun() + " of cluster " + s.Cluster
}

// dropCredentials removes the credentials of repositories from a record for which no more
// movers are created.
func (r *Record) dropCredentials() {
	for i := range r.Claims {
		if known := r.Claims[i].Store; known != nil {
			r.Claims[i].Store = &Store{Cluster: known.Cluster}
		}
	}
}

// Cause classifies why a move was rolled back or never began, for metrics. Why is the text
// for people.
type Cause string

// The causes. The first four are somebody's decision.
const (
	Aborted      Cause = "Aborted"
	MoveDeleted  Cause = "MoveDeleted"
	ClaimDeleted Cause = "ClaimDeleted"
	GivenUp      Cause = "GivenUp"
	// Refused: it never began. AlreadyThere: it never began, because all data is at the
	// target already.
	Refused      Cause = "Refused"
	AlreadyThere Cause = "AlreadyThere"
	// NotStarted: movers did not run or did not reach each other. NotKept: the target
	// cannot store what is in the volume, or lacks the space. MoverFailed: a mover's task
	// failed. StoodStill: pods waited too long for a copy without progress.
	NotStarted  Cause = "NotStarted"
	NotKept     Cause = "NotKept"
	MoverFailed Cause = "MoverFailed"
	StoodStill  Cause = "StoodStill"
	// Differs: the two copies differed.
	Differs Cause = "Differs"
	// PodsInTheWay: there are pods that may not be stopped, or too many of them.
	// TargetChanged: the real claim at the target was deleted, belongs to somebody else, or
	// could not be used. VolumeReplaced: somebody created another virtual volume.
	PodsInTheWay   Cause = "PodsInTheWay"
	TargetChanged  Cause = "TargetChanged"
	VolumeReplaced Cause = "VolumeReplaced"
	// NotHeldBack: new pods would not have got the gate.
	NotHeldBack Cause = "NotHeldBack"
	// TooMuch: the record would exceed its size limit.
	TooMuch Cause = "TooMuch"
)

// Causes are all causes.
var Causes = []Cause{Aborted, MoveDeleted, ClaimDeleted, GivenUp, Refused, AlreadyThere, NotStarted, NotKept, MoverFailed, StoodStill,
	Differs, PodsInTheWay, TargetChanged, VolumeReplaced, NotHeldBack, TooMuch}

// IsWished says whether somebody asked for that: such a move has not failed.
func (c Cause) IsWished() bool {
	return c == Aborted || c == MoveDeleted || c == ClaimDeleted || c == GivenUp
}

// order is the order of the phases of a move that is not rolled back.
var order = []v1alpha1.MovePhase{
	v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFence,
	v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain,
	v1alpha1.MoveFinalize, v1alpha1.MoveDone,
}

// Order is the order of all phases.
var Order = append(slices.Clone(order), v1alpha1.MoveRollBack, v1alpha1.MoveAborted, v1alpha1.MoveFailed, v1alpha1.MoveChecked)

// Before says whether phase a comes before phase b in a move that is not rolled back.
func Before(a, b v1alpha1.MovePhase) bool {
	i := slices.Index(order, a)
	return i >= 0 && i < slices.Index(order, b)
}

// CopiesNothing says whether the data is at the target already, or is made there.
func (r *Record) CopiesNothing() bool { return r.Adopts || r.Failover != nil }

// TakesSlots says whether the targets are real claims that a replica keeps versions in.
func (r *Record) TakesSlots() bool { return r.Failover != nil && r.Failover.Slots != "" }

// Clone returns a copy that may be changed, except for the volumes in it.
func (r *Record) Clone() *Record {
	next := *r
	next.Claims = slices.Clone(r.Claims)
	for i := range next.Claims {
		if s := next.Claims[i].Snapshot; s != nil {
			own := *s
			next.Claims[i].Snapshot = &own
		}
		if b := next.Claims[i].Basis; b != nil {
			own := *b
			next.Claims[i].Basis = &own
		}
	}
	if r.Group != nil {
		own := *r.Group
		next.Group = &own
	}
	if r.Failover != nil {
		own := *r.Failover
		own.Others = slices.Clone(own.Others)
		next.Failover = &own
	}
	next.Began = map[v1alpha1.MovePhase]time.Time{}
	maps.Copy(next.Began, r.Began)
	return &next
}

// Enter returns a copy of the record in another phase, which begins now.
func (r *Record) Enter(phase v1alpha1.MovePhase, now time.Time) *Record {
	next := r.Clone()
	next.Phase = phase
	next.Began[phase] = now
	if next.Over() {
		next.dropCredentials()
	}
	return next
}

// Encode returns the stored form of a record.
func Encode(r *Record) ([]byte, error) {
	switch r.Version = version; {
	case r.TakesSlots():
		r.Version = ofSlots
	case r.Failover != nil && len(r.Failover.Others) > 0:
		r.Version = ofGroup
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of move %s/%s: %w", r.Namespace, r.Name, err)
	}
	return data, nil
}

// maxGoingOn is the maximum size, in bytes, of a record of a move that is not rolled back.
// A Secret can have 1 MiB: whatever happens to the move, there must be room to record its
// end.
const maxGoingOn = 512 << 10

// Fits says whether a record has room for what later phases or a rollback add to it.
func (r *Record) Fits() bool {
	data, err := Encode(r)
	return err == nil && len(data) <= maxGoingOn
}

// Decode parses what Encode returned. A later version is an error: its meaning is unknown.
func Decode(data []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decode record of a move: %w", err)
	}
	if r.Version < version || r.Version > ofSlots || r.UID == "" || r.Phase == "" {
		return nil, fmt.Errorf("decode record of a move: version %d is not one that this program writes", r.Version)
	}
	if f := r.Failover; f != nil && len(f.Others) != len(r.Claims)-1 && len(r.Claims) > 0 {
		return nil, fmt.Errorf("decode record of a move: it gives %d claims versions of %d", len(r.Claims), 1+len(f.Others))
	}
	return r, nil
}

// SecretName is the name of the Secret with the record of the move with this UID.
func SecretName(uid types.UID) string { return "move-" + string(uid) }

// MoverName is the name of the mover, and of its Secret, for the claim at an index of the
// record, at an end.
func (r *Record) MoverName(claim int, end End) string {
	return fmt.Sprintf("move-%s-%d-%s", r.UID, claim, end)
}

// GroupName is the name of the VolumeGroupSnapshot of a move.
func (r *Record) GroupName() string { return fmt.Sprintf("move-%s-%s", r.UID, Snapped) }

// GroupLabel is the label of the real claims that the VolumeGroupSnapshot is taken of.
func (r *Record) GroupLabel() string { return keys.GroupPrefix + string(r.UID) }

// SourceNamespace is where the real claims at the source are that have a Snapshot; in a move with a
// Group all are in one.
func (r *Record) SourceNamespace() string { return r.Claims[0].Source.Ref.Namespace }

// KeysOf is the identity to which the keys of the claim at an index are bound.
func (r *Record) KeysOf(claim int) string { return fmt.Sprintf("%s-%d", r.UID, claim) }

// Ends are the ends that every copy has.
var Ends = []End{Source, Target}

// Over says whether the move is finished.
func (r *Record) Over() bool {
	return r.Phase == v1alpha1.MoveDone || r.Phase == v1alpha1.MoveAborted || r.Phase == v1alpha1.MoveFailed || r.Phase == v1alpha1.MoveChecked
}

// Holds says whether no other program part may change the claims, their volumes or their
// backing claims.
func (r *Record) Holds() bool {
	return r.Phase == v1alpha1.MoveRollBack && !r.Freed || Before(r.Phase, v1alpha1.MoveRetain)
}

// Busy says whether no other move may begin with the claims.
func (r *Record) Busy() bool { return !r.Over() && !r.Freed }

// WasCommitted says whether the move has been in Commit, which changes the marks of the
// backing claims at both ends.
func (r *Record) WasCommitted() bool { return !r.Began[v1alpha1.MoveCommit].IsZero() }

// GaveUp says whether an end was given up.
func (r *Record) GaveUp(end End) bool { return slices.Contains(r.GivenUp, end) }

// ClusterOf is the cluster of an end: all claims of a move have the same.
func (r *Record) ClusterOf(end End) string { return r.Claims[0].At(end).Ref.Cluster }

// LeftBehind describes what the move has left at the ends that were given up; empty if none
// was.
func (r *Record) LeftBehind() string {
	var said []string
	for _, end := range r.GivenUp {
		var left []string
		for i := range r.Claims {
			ref := r.Claims[i].At(end).Ref
			mover := fmt.Sprintf("the ShadowPod and the Secret %s/%s", ref.Namespace, r.MoverName(i, end))
			if end == Target || r.Phase == v1alpha1.MoveFinalize || r.Phase == v1alpha1.MoveDone {
				left = append(left, "real claim "+ref.Key().String())
			}
			left = append(left, mover)
			if end == Source && r.Claims[i].Snapshot.MayExist() {
				// They have the name of the snapshot's mover.
				left = append(left, fmt.Sprintf("the VolumeSnapshot, the claim, the ShadowPod and the Secret %s/%s", ref.Namespace,
					r.MoverName(i, Snapped)))
			}
		}
		if end == Source && r.Group.MayExist() {
			left = append(left, fmt.Sprintf("the VolumeGroupSnapshot %s/%s", r.SourceNamespace(), r.GroupName()))
		}
		said = append(said, fmt.Sprintf("cluster %s was given up; if it comes back, remove by hand what is there of the move: %s",
			r.Claims[0].At(end).Ref.Cluster, strings.Join(left, ", ")))
	}
	return strings.Join(said, "; ")
}

// KeptVolumes describes the real volumes that are kept with their data although the move
// has deleted their claims; empty if there is none.
func (r *Record) KeptVolumes() string {
	var said []string
	for i := range r.Claims {
		ends := Ends
		if r.Claims[i].Snapshot != nil {
			ends = append([]End{Snapped}, ends...)
		}
		for _, end := range ends {
			if copied := r.Claims[i].At(end); copied.Stays != "" && !r.GaveUp(end) {
				said = append(said, fmt.Sprintf("%s in cluster %s (claim %s, %s)", copied.Stays, copied.Ref.Cluster, r.Claims[i].Name, end))
			}
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "what the reclaim policy Retain keeps stays with its data, for an administrator to remove: real volume " +
		strings.Join(said, ", real volume ")
}
