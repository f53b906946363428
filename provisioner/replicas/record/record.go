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

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// format is the version of the stored format.
const format = 1

// Record is the state of one replica.
type Record struct {
	Format    int       `json:"format"`
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Claim and ClaimUID are the virtual claim.
	Claim    string    `json:"claim"`
	ClaimUID types.UID `json:"claimUID"`
	// Epoch counts who was the primary.
	Epoch int64 `json:"epoch"`
	// Head is the real claim at the standby that is written to, without a UID until it is known to exist. While a point is being
	// made it is no copy of anything: only what is sealed is. Class is its real class.
	Head  backing.Ref `json:"head"`
	Class string      `json:"class"`
	// Sealed are the versions, the oldest first.
	Sealed []Version `json:"sealed,omitempty"`
	// Last is the number of the last point that began, Point the one that is being made; nil: none is.
	Last  int64  `json:"last,omitempty"`
	Point *Point `json:"point,omitempty"`
	// Failures counts points that failed since the last one that did not, Failed is when the last one did, and Why says why.
	Failures int       `json:"failures,omitempty"`
	Failed   time.Time `json:"failed,omitzero"`
	Why      string    `json:"why,omitempty"`
}

// Version is a sealed version: a VolumeSnapshot of the head, beside it.
type Version struct {
	Number int64     `json:"number"`
	Epoch  int64     `json:"epoch"`
	Name   string    `json:"name"`
	UID    types.UID `json:"uid"`
	// Cut is the moment that it is of, by home's clock and rather too early. Took is how long it took from there until it was
	// sealed.
	Cut  time.Time     `json:"cut"`
	Took time.Duration `json:"took"`
	Root string        `json:"root"`
	Sent int64         `json:"sent"`
	// Volume is that of the head.
	Volume volumesnapshot.Volume `json:"volume"`
	// Going says that it is being removed.
	Going bool `json:"going,omitempty"`
}

// Stage is how far a point is.
type Stage string

// The stages of a point, in their order.
const (
	// Cut: a snapshot of the source is taken, and a claim made of it.
	Cut Stage = "Cut"
	// Copy: movers bring the head to what that claim has, and compare both.
	Copy Stage = "Copy"
	// Settle: both movers end, so that nobody has the head.
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
	// Source is the real claim that the data is in, SourceClass its class. By is the VolumeSnapshotClass for it, and Volume its
	// volume.
	Source      backing.Ref           `json:"source"`
	SourceClass string                `json:"sourceClass"`
	By          string                `json:"by"`
	Volume      volumesnapshot.Volume `json:"volume"`
	Block       bool                  `json:"block,omitempty"`
	Scratch     int64                 `json:"scratch"`
	// Node is the node that the claim made of the snapshot must be usable on; empty: any.
	Node string `json:"node,omitempty"`
	// Keys are the one-time keys of its movers.
	Keys map[moverapi.Role]moverapi.Files `json:"keys,omitempty"`
	// Expect is what the reading mover must find there again, once it has looked at it; Copied says that all was copied.
	Expect json.RawMessage `json:"expect,omitempty"`
	Copied bool            `json:"copied,omitempty"`
	Sent   int64           `json:"sent,omitempty"`
	Root   string          `json:"root,omitempty"`
	// SealBy is the VolumeSnapshotClass for the head, and Head its volume, once it is to be sealed.
	SealBy string                `json:"sealBy,omitempty"`
	Head   volumesnapshot.Volume `json:"head,omitzero"`
	// Why says why it failed; empty: it did not.
	Why string `json:"why,omitempty"`
}

// Clone returns a copy that may be changed.
func (r *Record) Clone() *Record {
	next := *r
	next.Sealed = slices.Clone(r.Sealed)
	if r.Point != nil {
		own := *r.Point
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

// Newest returns the newest sealed version, nil if there is none.
func (r *Record) Newest() *Version {
	for i := len(r.Sealed) - 1; i >= 0; i-- {
		if !r.Sealed[i].Going {
			return &r.Sealed[i]
		}
	}
	return nil
}

// Version returns the sealed version of a name, the newest for none; nil if there is none, or it is being removed.
func (r *Record) Version(name string) *Version {
	if name == "" {
		return r.Newest()
	}
	i := slices.IndexFunc(r.Sealed, func(v Version) bool { return v.Name == name && !v.Going })
	if i < 0 {
		return nil
	}
	return &r.Sealed[i]
}

// PointName is the name of the snapshot of a point's source and of the claim that is made of it. The moment is part of it: numbers are
// counted again after home was restored from a backup, and what an earlier point of that number has left is not this one's.
func (r *Record) PointName() string {
	return fmt.Sprintf("replica-%s-%d-%d", r.UID, r.Point.Number, r.Point.Cut.Unix())
}

// SealName is the name of the snapshot that seals a point.
func (r *Record) SealName() string {
	return fmt.Sprintf("replica-%s-v%d-%d", r.UID, r.Point.Number, r.Point.Cut.Unix())
}

// MoverName is the name of a mover of the point: of the one that reads, or of the one that writes.
func (r *Record) MoverName(role moverapi.Role) string {
	return fmt.Sprintf("replica-%s-%d-%s", r.UID, r.Point.Number, role)
}

// Session is the identity to which the keys of a point are bound.
func (r *Record) Session() string { return fmt.Sprintf("%s-%d", r.UID, r.Point.Number) }

// HeadName is the name of the head of the replica with this UID.
func HeadName(uid types.UID) string { return "replica-" + string(uid) }

// SecretName is the name of the Secret with the record of the replica with this UID.
func SecretName(uid types.UID) string { return "replica-" + string(uid) }

// Encode returns the stored form of a record.
func Encode(r *Record) ([]byte, error) {
	r.Format = format
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
	if r.Format != format || r.UID == "" || r.Epoch < 1 {
		return nil, fmt.Errorf("decode record of a replica: format %d is not one that this program writes", r.Format)
	}
	return r, nil
}
