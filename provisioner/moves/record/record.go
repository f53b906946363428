// Package record is what the provisioner remembers of a move. It is kept in a Secret
// that no tenant can write, because whoever forged it could bind a claim to another's
// volume. It is written before each side effect that it is the intent of. It is pure.
package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// version is that of the form of a record.
const version = 1

// Record is one move.
type Record struct {
	Version   int       `json:"version"`
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Phase is the one whose side effects may have begun.
	Phase v1alpha1.MovePhase `json:"phase"`
	// Began are the times at which phases began, for the last time.
	Began map[v1alpha1.MovePhase]time.Time `json:"began"`
	// Target is where the data goes.
	Target v1alpha1.MovePlace  `json:"target"`
	Verify v1alpha1.MoveVerify `json:"verify"`
	Passes int32               `json:"passes"`
	// Limit is how many bytes a second may travel; 0: as many as can.
	Limit int64 `json:"limit,omitempty"`
	// Why is why the move went back or never began, or what a dry run found; Refused that
	// it is not the user's wish; Cause says the same in a word, which records of earlier
	// versions do not have.
	Why     string `json:"why,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Cause   Cause  `json:"cause,omitempty"`
	// Down is since when pods could not use the claims, Up until when.
	Down time.Time `json:"down,omitzero"`
	Up   time.Time `json:"up,omitzero"`
	// Ran are the nodes on which pods used the claims: who cannot be asked may still
	// write.
	Ran []Node `json:"ran,omitempty"`
	// Pods are those that may write: those that are there, and those that are gone and were
	// not seen to end.
	Pods []Pod `json:"pods,omitempty"`
	// Stalled is since when the copy stands still although pods wait for it; zero while
	// it goes on.
	Stalled time.Time `json:"stalled,omitzero"`
	// Intruded says that somebody had a source after it had been fenced off: what was copied
	// and compared since is not to be trusted.
	Intruded bool `json:"intruded,omitempty"`
	// Freed says, of a move that goes back, that the claims are free for anything else: of
	// the move only its clean-up is left, which touches neither them nor their pods.
	Freed bool `json:"freed,omitempty"`
	// GivenUp are the ends at which everything stays as it is, since nobody answers there.
	// Nothing is asked of them any more.
	GivenUp []End `json:"givenUp,omitempty"`
	// LongStop says that pods may stand still for as long as a whole copy takes.
	LongStop bool `json:"longStop,omitempty"`

	Claims []Claim `json:"claims,omitempty"`
}

// Claim is one claim of a move.
type Claim struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Volume is its virtual volume as it was before the move, New as it is to be after
	// it; New is nil before Commit.
	Volume *corev1.PersistentVolume `json:"volume"`
	New    *corev1.PersistentVolume `json:"new,omitempty"`
	Source Copy                     `json:"source"`
	Target Copy                     `json:"target"`
	// Pass is the last pass over the data that was begun; Settled says that no more are
	// needed before the application stops.
	Pass    int32 `json:"pass,omitempty"`
	Settled bool  `json:"settled,omitempty"`
	// Offline says that nothing may read the source beside a pod: it is read once nobody
	// has the volume. Snapshot is how its data is copied before, nil where it cannot be, as
	// NoSnapshot says in words; all is copied then while pods stand still.
	Offline    bool      `json:"offline,omitempty"`
	Snapshot   *Snapshot `json:"snapshot,omitempty"`
	NoSnapshot string    `json:"noSnapshot,omitempty"`
	// Level is the SELinux level that pods which use the source state; empty where none did.
	Level string `json:"level,omitempty"`
	// Yields counts how often the mover at the source made way for pods on another node,
	// Yielded is when it last did, and YieldedBy the pod of that mover.
	Yields    int       `json:"yields,omitempty"`
	Yielded   time.Time `json:"yielded,omitzero"`
	YieldedBy types.UID `json:"yieldedBy,omitempty"`
	// Prepared says that nothing forbids the copy.
	Prepared bool `json:"prepared,omitempty"`
	// Expect tells the source from an empty or wrong mount.
	Expect json.RawMessage `json:"expect,omitempty"`
	// Try counts how often the last pass was begun, Instance is the mover that made it.
	Try      int    `json:"try,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Sent is how many bytes have travelled from mover to mover, and Stored through a
	// repository, with the task Counted and before it.
	Sent       int64  `json:"sent,omitempty"`
	Stored     int64  `json:"stored,omitempty"`
	Counted    string `json:"counted,omitempty"`
	SourceRoot string `json:"sourceRoot,omitempty"`
	TargetRoot string `json:"targetRoot,omitempty"`
	// Keys are the one-time keys of this claim's movers.
	Keys map[movekeys.Role]movekeys.Files `json:"keys,omitempty"`
	// Store is the repository that its content travels through; nil: none.
	Store *Store `json:"store,omitempty"`
}

// Ours says whether a finalizer of a virtual volume is one that the volume has because
// it is Lodestone's or a volume at all, and not because somebody else needs it.
func Ours(finalizer string) bool {
	return finalizer == "kubernetes.io/pv-protection" || finalizer == "external-provisioner.volume.kubernetes.io/finalizer"
}

// Attacher says whether a finalizer is that of a CSI attacher, which comes and goes with
// attachments.
func Attacher(finalizer string) bool { return strings.HasPrefix(finalizer, "external-attacher/") }

// Copy is one of the two copies of the data.
type Copy struct {
	// Ref is its backing claim; without a UID while that is not known to be made.
	Ref backing.Ref `json:"ref"`
	// Real is the name of the real volume, once known, and Policy the reclaim policy
	// that it had before the move, where that was changed.
	Real   string                               `json:"real,omitempty"`
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy,omitempty"`
	Class  string                               `json:"class,omitempty"`
	// Stays is the name of the real volume that outlives its claim when that is removed,
	// with its data: its reclaim policy says so.
	Stays string `json:"stays,omitempty"`
	// Node is where its mover must run; empty: anywhere.
	Node string `json:"node,omitempty"`
}

// order is that of the phases of a move that goes forward.
var order = []v1alpha1.MovePhase{
	v1alpha1.MovePrepare, v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFence,
	v1alpha1.MoveFinalSync, v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain,
	v1alpha1.MoveFinalize, v1alpha1.MoveDone,
}

// Order is that of all phases.
var Order = append(slices.Clone(order), v1alpha1.MoveRollBack, v1alpha1.MoveAborted, v1alpha1.MoveFailed, v1alpha1.MoveChecked)

// Before says whether a phase of a move that goes forward comes before another one.
func Before(a, b v1alpha1.MovePhase) bool {
	i := slices.Index(order, a)
	return i >= 0 && i < slices.Index(order, b)
}

// Clone returns a copy that can be changed; the volumes in it must not be.
func (r *Record) Clone() *Record {
	next := *r
	next.Claims = slices.Clone(r.Claims)
	for i := range next.Claims {
		if s := next.Claims[i].Snapshot; s != nil {
			own := *s
			next.Claims[i].Snapshot = &own
		}
	}
	next.Began = map[v1alpha1.MovePhase]time.Time{}
	for phase, at := range r.Began {
		next.Began[phase] = at
	}
	return &next
}

// Enter begins a phase.
func (r *Record) Enter(phase v1alpha1.MovePhase, now time.Time) *Record {
	next := r.Clone()
	next.Phase = phase
	next.Began[phase] = now
	if next.Over() {
		next.disarm()
	}
	return next
}

// Encode writes a record.
func Encode(r *Record) ([]byte, error) {
	r.Version = version
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of move %s/%s: %w", r.Namespace, r.Name, err)
	}
	return data, nil
}

// roomy is how many bytes a record of a move that goes forward may have. What is in a
// Secret is at most 1 MiB: whatever becomes of the move, its end can be written too.
const roomy = 512 << 10

// Fits says whether a record leaves room for what going on, or back, adds to it.
func (r *Record) Fits() bool {
	data, err := Encode(r)
	return err == nil && len(data) <= roomy
}

// Decode reads what Encode wrote. One of a later version is an error: what it means
// is not known.
func Decode(data []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decode record of a move: %w", err)
	}
	if r.Version != version || r.UID == "" || r.Phase == "" {
		return nil, fmt.Errorf("decode record of a move: version %d is not one that this program writes", r.Version)
	}
	return r, nil
}

// SecretName is the name of the Secret that holds the record of the move with a UID.
func SecretName(uid types.UID) string { return "move-" + string(uid) }

// MoverName is the name of a mover and its Secret, of the claim at an index of the
// record, at the source or the target.
func (r *Record) MoverName(claim int, end End) string {
	return fmt.Sprintf("move-%s-%d-%s", r.UID, claim, end)
}

// KeysOf is what the keys of the claim at an index are bound to.
func (r *Record) KeysOf(claim int) string { return fmt.Sprintf("%s-%d", r.UID, claim) }
