// Package record is the stored state of a replica. A Record is kept in a Secret that no tenant can write, because a forged one
// could have another tenant's volume copied or promoted. It is written before each side effect, as the intent. The package is
// pure: no client, no clock.
package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// format is the version of the stored format, ofGroup that of a record of several claims, withSlots that of one whose versions are in
// slots, withFreeze that of one whose point may have an application frozen, and withLeft that of one of which something is left in a
// cluster: a program that knows only the first one must not take it for one of a single claim, look for snapshots, leave the application
// frozen, or forget what is left.
const (
	format     = 1
	ofGroup    = 2
	withSlots  = 3
	withFreeze = 4
	withLeft   = 5
)

// Record is the state of one replica.
type Record struct {
	Format    int       `json:"format"`
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Part is the first claim, and Others are the others, in the order of the spec: each version has all of them, of one moment. All
	// heads are in one namespace of one cluster.
	Part
	Others []Part `json:"others,omitempty"`
	// Slots says that versions are in real claims, without snapshots; see slots.go. Named counts the names that those were given.
	Slots bool `json:"slots,omitempty"`
	Named int  `json:"named,omitempty"`
	// Epoch counts the primaries: it grows with each failover. FailedOver is when the last one began that it counts.
	Epoch      int64     `json:"epoch"`
	FailedOver time.Time `json:"failedOver,omitzero"`
	// Sealed are the versions, the oldest first.
	Sealed []Version `json:"sealed,omitempty"`
	// Last is the number of the last point that began, Point the one that is being made; nil: none is.
	Last  int64  `json:"last,omitempty"`
	Point *Point `json:"point,omitempty"`
	// Left are points that are over, and have left something in a cluster that did not answer; see left.go.
	Left []Point `json:"left,omitempty"`
	// Failures counts points that failed since the last one that did not, Failed is when the last one did, and Why says why.
	Failures int       `json:"failures,omitempty"`
	Failed   time.Time `json:"failed,omitzero"`
	Why      string    `json:"why,omitempty"`
	// Scrubbed is when the last scrub had compared all, and Found what was found since the one before it; see scrub.go.
	Scrubbed time.Time `json:"scrubbed,omitzero"`
	Found    []Finding `json:"found,omitempty"`
	// Change is the abnormal share of changes because of which versions are pinned; nil: none are. See change.go.
	Change *Change `json:"change,omitempty"`
}

// Part is one claim and its copy at the standby.
type Part struct {
	// Claim and ClaimUID are the virtual claim.
	Claim    string    `json:"claim"`
	ClaimUID types.UID `json:"claimUID"`
	// Head is the real claim at the standby that is written to, without a UID until it is known to exist. While a point is being
	// made it is no copy of anything: only what is sealed is. Class is its real class.
	Head  backing.Ref `json:"head"`
	Class string      `json:"class"`
	// Slot is the other one of two real claims, with Slots: it has the newest sealed version, if there is one.
	Slot backing.Ref `json:"slot,omitzero"`
	// Known is what real claims at the standby had when they were last compared, and have; see scrub.go.
	Known []Known `json:"known,omitempty"`
	// Held is what real claims at the standby had when they were last sealed; see change.go.
	Held []Held `json:"held,omitempty"`
	// Whole says that the head is made empty from now on: what it was to begin with did not serve; see basis.go.
	Whole bool `json:"whole,omitempty"`
}

// Version is a sealed version. It has the name of its first VolumeSnapshot.
type Version struct {
	Number int64 `json:"number"`
	Epoch  int64 `json:"epoch"`
	// Content is what it has of the first claim, Others of the others.
	Content
	Others []Content `json:"others,omitempty"`
	// Cut is the moment that it is of, by home's clock and rather too early. Took is how long it took to make it.
	Cut  time.Time     `json:"cut"`
	Took time.Duration `json:"took"`
	// Made says how it was made; empty: as after a loss of power.
	Made v1alpha1.VersionConsistency `json:"made,omitempty"`
	// Going says that it is being removed.
	Going bool `json:"going,omitempty"`
	// Pinned says that it stays until somebody says that what changed after it is in order; see change.go.
	Pinned bool `json:"pinned,omitempty"`
	// Unready says why no claim can be made of it now; empty: one can. It counts as none as long as that is so, and stays.
	Unready string `json:"unready,omitempty"`
}

// Content is what a version has of one claim: a VolumeSnapshot of the head, beside it. With Slots it has the UID of the slot that it is in,
// and a name that no object has.
type Content struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	Root string    `json:"root"`
	Sent int64     `json:"sent"`
	// Volume is that of the head.
	Volume volumesnapshot.Volume `json:"volume"`
}

// Stage is how far a point is.
type Stage string

// The stages of a point, in their order.
const (
	// Freezing: the application may be being frozen; see freeze.go. Points without a Freeze begin with Cut.
	Freezing Stage = "Freeze"
	// Cut: a snapshot of the source is taken, and a claim made of it. With a Freeze that is not over the application is frozen.
	Cut Stage = "Cut"
	// Thaw: the application is thawed, whether the snapshot was taken or the point failed. It goes on with Cut, or with Clean.
	Thaw Stage = "Thaw"
	// Copy: movers bring the head to what that claim has, and compare both.
	Copy Stage = "Copy"
	// Settle: the mover that writes ends, so that nobody has the head.
	Settle Stage = "Settle"
	// Seal: a snapshot of the head is taken.
	Seal Stage = "Seal"
	// Clean: what the point has made at the source is removed, whether it was sealed or failed.
	Clean Stage = "Clean"
)

// Point is the making of a version.
type Point struct {
	Number int64     `json:"number"`
	Stage  Stage     `json:"stage"`
	Since  time.Time `json:"since"`
	Cut    time.Time `json:"cut"`
	// FailedOver is when the failover began that was known last when the point began; zero: none was. A later one ends the point.
	FailedOver time.Time `json:"failedOver,omitzero"`
	// By is the class of the snapshot: a VolumeSnapshotClass, or with a Group a VolumeGroupSnapshotClass.
	By string `json:"by"`
	// Group is the one snapshot of all claims; nil for a single claim.
	Group *Group `json:"group,omitempty"`
	// Freeze is what is frozen for it; nil: nothing is.
	Freeze *Freeze `json:"freeze,omitempty"`
	// HomeEpoch is home's in the cluster of the standby when the heads began to be written; 0: that is not known. Another one says that
	// home or that cluster was restored from a backup since.
	HomeEpoch int64 `json:"homeEpoch,omitempty"`
	// Scrub says that it is a scrub; see scrub.go.
	Scrub bool `json:"scrub,omitempty"`
	// Changed says that one of several claims has changed, so that all are copied.
	Changed bool `json:"changed,omitempty"`
	// Session is that of the first claim, Others are those of the others.
	Session
	Others []Session `json:"others,omitempty"`
	// Why says why it failed; empty: it did not.
	Why string `json:"why,omitempty"`
}

// Group is one snapshot of several sources.
type Group struct {
	// Version is that of the API in the source's cluster, and UID the snapshot's, once it is known which it has taken.
	Version string    `json:"version"`
	UID     types.UID `json:"uid,omitempty"`
}

// Session is the copy of one claim for a point.
type Session struct {
	// Source is the real claim that the data is in, SourceClass its class, and Volume its volume.
	Source      backing.Ref           `json:"source"`
	SourceClass string                `json:"sourceClass"`
	Volume      volumesnapshot.Volume `json:"volume"`
	// Taken is the name of its snapshot in a Group, once that is known.
	Taken   string `json:"taken,omitempty"`
	Block   bool   `json:"block,omitempty"`
	Scratch int64  `json:"scratch"`
	// Node is the node that the claim made of the snapshot must be usable on; empty: any.
	Node string `json:"node,omitempty"`
	// Basis is what the head begins with, if this point makes it; nil: it begins empty.
	Basis *Basis `json:"basis,omitempty"`
	// Keys are the one-time keys of its movers.
	Keys map[moverapi.Role]moverapi.Files `json:"keys,omitempty"`
	// Expect is what the reading mover must find there again, once it has looked at it; Copied says that all was copied, and Root is
	// there once both were compared.
	Expect json.RawMessage `json:"expect,omitempty"`
	Copied bool            `json:"copied,omitempty"`
	Sent   int64           `json:"sent,omitempty"`
	// Wrote is how much of the head was written, at most; see change.go.
	Wrote int64  `json:"wrote,omitempty"`
	Root  string `json:"root,omitempty"`
	// Bytes and RootVersion say of what Root is: see moverapi.Verified.
	Bytes       int64 `json:"bytes,omitempty"`
	RootVersion int   `json:"rootVersion,omitempty"`
	// Was is what the head is to have before it is written to, nil if that is not known, and Looked says that nothing looks at that any
	// more; see scrub.go.
	Was    *Known `json:"was,omitempty"`
	Looked bool   `json:"looked,omitempty"`
	// Unchanged says that it was found to have what the point is of by fingerprints alone; Fingerprints are of what was compared.
	Unchanged    bool                  `json:"unchanged,omitempty"`
	Fingerprints moverapi.Fingerprints `json:"fingerprints,omitzero"`
	// SealBy is the VolumeSnapshotClass for the head, and Head its volume, once it is to be sealed.
	SealBy string                `json:"sealBy,omitempty"`
	Head   volumesnapshot.Volume `json:"head,omitzero"`
}

// Len is how many claims the replica has.
func (r *Record) Len() int { return 1 + len(r.Others) }

// At returns a claim and its copy, by its index.
func (r *Record) At(i int) *Part { return at(&r.Part, r.Others, i) }

// At returns what the version has of a claim.
func (v *Version) At(i int) *Content { return at(&v.Content, v.Others, i) }

// At returns the copy of a claim for the point.
func (p *Point) At(i int) *Session { return at(&p.Session, p.Others, i) }

func at[T any](first *T, others []T, i int) *T {
	if i == 0 {
		return first
	}
	return &others[i-1]
}

// Index returns which claim has a name, -1 for none.
func (r *Record) Index(claim string) int {
	for i := range r.Len() {
		if r.At(i).Claim == claim {
			return i
		}
	}
	return -1
}

// Claims are the names of the claims.
func (r *Record) Claims() (names []string) {
	for i := range r.Len() {
		names = append(names, r.At(i).Claim)
	}
	return names
}

// ClaimUIDs are the UIDs of the claims.
func (r *Record) ClaimUIDs() (uids []types.UID) {
	for i := range r.Len() {
		uids = append(uids, r.At(i).ClaimUID)
	}
	return uids
}

// AllSent is how many bytes travelled for the version.
func (v *Version) AllSent() (n int64) {
	for i := range 1 + len(v.Others) {
		n += v.At(i).Sent
	}
	return n
}

// Clone returns a copy that may be changed.
func (r *Record) Clone() *Record {
	next := *r
	next.Others, next.Sealed = slices.Clone(r.Others), slices.Clone(r.Sealed)
	if r.Point != nil {
		own := *r.Point
		own.Others = slices.Clone(own.Others)
		if own.Group != nil {
			group := *own.Group
			own.Group = &group
		}
		own.Freeze = own.Freeze.clone()
		next.Point = &own
	}
	return &next
}

// Enter returns a copy of the record with its point in another stage, which begins now.
func (r *Record) Enter(stage Stage, now time.Time) *Record {
	next := r.Clone()
	next.Point.Stage, next.Point.Since = stage, now
	return next
}

// Counts says whether a claim can be made of the version.
func (v *Version) Counts() bool { return !v.Going && v.Unready == "" }

// Newest returns the newest sealed version that counts, nil if there is none.
func (r *Record) Newest() *Version {
	for i := len(r.Sealed) - 1; i >= 0; i-- {
		if r.Sealed[i].Counts() {
			return &r.Sealed[i]
		}
	}
	return nil
}

// Version returns the sealed version of a name, the newest for none; nil if there is none, or it does not count.
func (r *Record) Version(name string) *Version {
	if name == "" {
		return r.Newest()
	}
	i := slices.IndexFunc(r.Sealed, func(v Version) bool { return v.Name == name && v.Counts() })
	if i < 0 {
		return nil
	}
	return &r.Sealed[i]
}

const (
	// fewVersions always fit, whatever they are of.
	fewVersions = 50
	// mostBytes is how large a record may be before a point is made, whose own part comes to it: a Secret holds twice as much.
	mostBytes = 512 << 10
)

// Full says whether there is no room for one more version, because the standby's owner keeps so many.
func (r *Record) Full() bool {
	if len(r.Sealed) <= fewVersions {
		return false
	}
	data, err := Encode(r)
	return err != nil || len(data) > mostBytes
}

// numbered is the name of what there is for a claim: those after the first one have their index.
func numbered(i int, format string, args ...any) string {
	name := fmt.Sprintf(format, args...)
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i)
	}
	return name
}

// PointName is the name of the snapshot of a point's source and of the claim that is made of it; that of the first claim is also the one
// of a snapshot of all. The moment is part of it: numbers are counted again after home was restored from a backup, and what an earlier
// point of that number has left is not this one's.
func (r *Record) PointName(i int) string {
	return numbered(i, "replica-%s-%d-%d", r.UID, r.Point.Number, r.Point.Cut.Unix())
}

// SealName is the name of the snapshot that seals a point of a claim.
func (r *Record) SealName(i int) string {
	return numbered(i, "replica-%s-v%d-%d", r.UID, r.Point.Number, r.Point.Cut.Unix())
}

// MoverName is the name of a mover of the point: of the one that reads, or of the one that writes.
func (r *Record) MoverName(i int, role moverapi.Role) string {
	return numbered(i, "replica-%s-%d-%s", r.UID, r.Point.Number, role)
}

// SessionOf is the identity to which the keys of a claim's movers are bound.
func (r *Record) SessionOf(i int) string { return numbered(i, "%s-%d", r.UID, r.Point.Number) }

// GroupLabel is the label of the real claims that a snapshot of all is taken of.
func (r *Record) GroupLabel() string { return keys.GroupPrefix + string(r.UID) }

// HeadName is the name of the head of a claim of the replica with this UID.
func HeadName(uid types.UID, i int) string { return numbered(i, "replica-%s", uid) }

// SecretName is the name of the Secret with the record of the replica with this UID.
func SecretName(uid types.UID) string { return "replica-" + string(uid) }

// Encode returns the stored form of a record.
func Encode(r *Record) ([]byte, error) {
	switch r.Format = format; {
	case len(r.Left) > 0:
		r.Format = withLeft
	case r.Point != nil && r.Point.Freeze != nil:
		r.Format = withFreeze
	case r.Slots:
		r.Format = withSlots
	case len(r.Others) > 0:
		r.Format = ofGroup
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of replica %s/%s: %w", r.Namespace, r.Name, err)
	}
	return data, nil
}

// Decode parses what Encode returned. A later version is an error: its meaning is unknown.
func Decode(data []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decode record of a replica: %w", err)
	}
	if r.Format < format || r.Format > withLeft || r.UID == "" || r.Epoch < 1 {
		return nil, fmt.Errorf("decode record of a replica: format %d is not one that this program writes", r.Format)
	}
	if p := r.Point; p != nil && len(p.Others) != len(r.Others) {
		return nil, fmt.Errorf("decode record of a replica: its point is of %d claims, and it is of %d", 1+len(p.Others), r.Len())
	}
	for i := range r.Left {
		if len(r.Left[i].Others) != len(r.Others) {
			return nil, fmt.Errorf("decode record of a replica: point %d is of another number of claims than it is", r.Left[i].Number)
		}
	}
	for i := range r.Sealed {
		if len(r.Sealed[i].Others) != len(r.Others) {
			return nil, fmt.Errorf("decode record of a replica: version %s is of another number of claims than it is", r.Sealed[i].Name)
		}
	}
	return r, nil
}
