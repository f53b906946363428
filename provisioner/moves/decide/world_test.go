// The model of the property tests: the objects, what each step does to them, and what all
// other programs do meanwhile. It is one file because its parts depend on each other.
package decide_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

const moveUID = types.UID("m1")

// world models everything that a move touches: the objects, the contents of both copies,
// and the programs that act by themselves.
type world struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	move   *v1alpha1.VolumeMove
	record []byte
	// last is the content of read, an earlier record.
	read   []byte
	last   *record.Record
	claims []*claim
	pods   []*pod
	made   int
	down   map[record.End]bool
	// gone are clusters that were deleted.
	gone map[record.End]bool
	// truth is what the application wrote last, for each claim.
	truth  []int
	log    []string
	calm   bool
	forced forced
	// within: both copies are in one remote cluster.
	within bool
	// open: nothing gates new pods.
	open bool
	// adopts: nothing is copied, and the target has newer data.
	adopts bool
	// version is that of a replica which the claim gets; nil: it gets a copy of its source.
	version *version
	// group is the snapshot of all claims of which one is taken at one moment; nil if there is no class for it.
	group *group
	// keeper is an earlier move into whose copies this one goes back; nil if the targets are made.
	keeper *keeper
}

type claim struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	at     map[record.End]*side
	mover  moverapi.Status
	alive  bool
	// single: the claim is ReadWriteOncePod. Snapshots of it can be taken if snap is not
	// nil.
	single bool
	snap   *snap
	// basis is the version of a replica that the target begins with; nil if there is none.
	basis *basis
	// attaches: its volume at home is attached to the node of its pods. attached: it is,
	// under the name of the virtual volume.
	attaches, attached bool
}

type side struct {
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	content int
	mover   movers.State
	// released: the mover writes nothing more.
	released bool
}

// pod runs at one end of all claims once it is bound.
type pod struct {
	steps.Pod
	at record.End
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, seed uint64, claims int) *world {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), now: start, down: map[record.End]bool{}}
	w.move = &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m", UID: moveUID},
		Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove}}
	for i := range claims {
		w.claims = append(w.claims, newClaim(i))
		w.claims[i].single = (seed/3+uint64(i))%3 == 1 || seed%6 == 5
		w.claims[i].attaches = seed%2 == 0
		if w.claims[i].single && seed%4 > 0 {
			w.claims[i].snap = &snap{}
		}
		w.truth = append(w.truth, 0)
	}
	if seed%5 > 0 {
		w.group = &group{}
	}
	return w
}

// refs are the real claims by their names, and as annotations have them: they are asked for in each step.
var refs, encodedRefs = map[record.End][]backing.Ref{}, map[record.End][]string{}

func init() {
	for _, end := range []record.End{record.Source, record.Target, record.Snapped} {
		for i := range 3 {
			its := backing.Ref{Cluster: map[record.End]string{record.Source: keys.Home, record.Target: "west"}[end], Namespace: "n",
				Name: fmt.Sprintf("%s-%d", end, i), UID: types.UID(fmt.Sprintf("%s-%d", end, i))}
			refs[end], encodedRefs[end] = append(refs[end], its), append(encodedRefs[end], its.String())
		}
	}
}

func ref(end record.End, i int) backing.Ref { return refs[end][i] }

func virtual(i int, end record.End) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-u%d", i), Annotations: map[string]string{keys.Backing: encodedRefs[end][i],
			keys.Generation: map[record.End]string{record.Source: "1", record.Target: "2"}[end]}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(fmt.Sprintf("u%d", i))}},
	}
}

func newClaim(i int) *claim {
	c := &claim{at: map[record.End]*side{record.Source: {}, record.Target: {content: -1}, record.Snapped: {content: -1}}}
	c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-%d", i),
		UID: types.UID(fmt.Sprintf("u%d", i)), Labels: map[string]string{}, Annotations: map[string]string{}}}
	c.claim.Status.Phase = corev1.ClaimBound
	c.volume = virtual(i, record.Source)
	c.volume.UID, c.volume.Status.Phase = "v0", corev1.VolumeBound
	s := c.at[record.Source]
	s.backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: ref(record.Source, i).Name, UID: ref(record.Source, i).UID,
		Labels: map[string]string{}, Finalizers: []string{keys.BackingFinalizer}}}
	s.real = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete}}
	return c
}

func (w *world) decoded() *record.Record {
	if w.record == nil {
		return nil
	}
	if !bytes.Equal(w.record, w.read) {
		r, err := record.Decode(w.record)
		require.NoError(w.t, err)
		w.read, w.last = w.record, r
	}
	return w.last
}

func (w *world) observe() steps.Observation {
	o := steps.Observation{Now: w.now, Settling: 10 * time.Second, Record: w.decoded(), MayBegin: true}
	if w.keeper != nil && !w.keeper.record.Over() {
		o.Earlier = w.keeper.record
	}
	o.Source.Gone, o.Target.Gone = w.gone[record.Source], w.gone[record.Target]
	if w.move != nil {
		o.Move = w.move.DeepCopy()
	}
	for end, down := range w.down {
		if down {
			o.At(end).Unusable, o.At(end).Away = "it does not answer", true
		}
	}
	o.Source.Silence = w.silence()
	if o.Record == nil {
		return o
	}
	for i, c := range w.claims {
		seen := steps.Claim{Source: w.side(c, record.Source), Target: w.side(c, record.Target),
			Overwritten: w.version != nil && w.version.overwritten}
		if seen.New = virtual(i, record.Target); seen.Target.Backing == nil || seen.Target.Real == nil {
			seen.New, seen.NewError = nil, "it is not bound"
		}
		if c.claim != nil {
			seen.Claim = c.claim.DeepCopy()
		}
		if c.volume != nil {
			seen.Volume = c.volume.DeepCopy()
		}
		if seen.Attached = c.attached; c.attached && !c.at[record.Source].mover.Exists {
			o.Attachments = append(o.Attachments, "node home-1, which it is attached to")
		}
		seen.NoBasis = w.seeBasis(o.Record, i)
		seen.Snapshot = w.seeSnapshot(o.Record, i)
		if seen.Snapshot.Exists && o.Record.Claims[i].Snapshot.Taken == "" {
			w.must(!c.snap.member, "a snapshot that was taken with others is taken for one that was not")
		}
		o.Claims = append(o.Claims, seen)
		if c.alive && c.at[record.Source].mover.Running && !w.down[record.Source] && decide.ReadEnd(o, i) == record.Source {
			o.Claims[i].Copy = w.said(c, c.mover)
		}
		if c.snap != nil && c.at[record.Snapped].mover.Running && !w.down[record.Source] && decide.ReadEnd(o, i) == record.Snapped {
			o.Claims[i].Copy = w.said(c, c.snap.mover)
		}
	}
	w.seeGroup(&o)
	for _, p := range w.pods {
		seen := p.Pod
		if seen.Held = !w.open; w.open {
			seen.NotHeld = "nothing gave it the gate"
		}
		o.Pods = append(o.Pods, seen)
	}
	w.seeForced(&o)
	return o
}

func (w *world) side(c *claim, end record.End) steps.Side {
	if w.down[end] {
		return steps.Side{}
	}
	s := c.at[end]
	seen := steps.Side{Mover: s.mover}
	if s.backing != nil {
		seen.Backing = s.backing.DeepCopy()
	}
	if s.real != nil {
		seen.Real = s.real.DeepCopy()
	}
	return seen
}

// current is the end that the virtual volume of a claim names; empty without a volume.
func (c *claim) current(i int) record.End {
	for _, end := range record.Ends {
		if c.volume != nil && c.volume.Annotations[keys.Backing] == encodedRefs[end][i] {
			return end
		}
	}
	return ""
}

// check checks the invariants that must hold at every moment.
func (w *world) check() {
	r := w.decoded()
	for i, c := range w.claims {
		at := c.current(i)
		for _, p := range w.pods {
			if p.Bound && at != "" {
				w.must(p.at == at, "a pod runs on the %s copy while the volume is the %s one", p.at, at)
			}
			w.must(!c.single || !p.Bound || !c.at[p.at].mover.Running, "a mover at the %s beside the only pod that may use claim %d", p.at, i)
		}
		s, d := c.at[record.Source], c.at[record.Target]
		if w.version != nil {
			w.checkVersion(c, at)
			continue
		}
		if w.adopts {
			w.must(s.backing != nil && d.backing != nil, "a copy is removed, and nobody knows what is in it")
			w.must(!s.mover.Exists && !d.mover.Exists, "something is to be copied")
			continue
		}
		whole := s.backing != nil && s.content == w.truth[i] || d.backing != nil && d.content == w.truth[i]
		w.must(whole || c.claim == nil, "no complete copy of claim %d is left", i)
		w.must(at != record.Target || d.content == w.truth[i], "the volume names a copy that is not whole")
		// A mover at the source only reads, and may be left if the cluster is unreachable.
		w.must(at != record.Target || !d.mover.Running || d.released || r == nil, "a mover writes to the volume that is in use")
		w.must(at != record.Source || s.backing != nil, "the volume names a copy that was removed")
	}
}

func (w *world) must(ok bool, format string, args ...any) {
	if !ok {
		tail := w.log[max(0, len(w.log)-60):]
		require.Fail(w.t, fmt.Sprintf(format, args...), "%v", tail)
	}
}

func (w *world) save(r *record.Record) {
	data, err := record.Encode(r)
	require.NoError(w.t, err)
	w.record = data
}

// first is the record that an inspection would write.
func (w *world) first() *record.Record {
	r := &record.Record{UID: moveUID, Namespace: "shop", Name: "m", Phase: v1alpha1.MovePrepare, Passes: 2, LongStop: w.mayStandStill(),
		Verify: v1alpha1.VerifyQuick, Began: map[v1alpha1.MovePhase]time.Time{}}
	for i, c := range w.claims {
		if w.adopts {
			r.Adopts = true
			r.Claims = append(r.Claims, record.Claim{Name: c.claim.Name, UID: c.claim.UID, Volume: c.volume, Generation: 1,
				Source: record.Copy{Ref: ref(record.Source, i)}, Target: record.Copy{Ref: ref(record.Target, i)}})
			continue
		}
		target := ref(record.Target, i)
		target.UID = ""
		if w.version != nil {
			w.version.first(r, c, target)
			continue
		}
		source := record.Copy{Ref: ref(record.Source, i), Policy: corev1.PersistentVolumeReclaimDelete}
		if w.within {
			// Only policies at home are changed.
			source.Ref.Cluster, source.Policy = target.Cluster, ""
		}
		r.Claims = append(r.Claims, record.Claim{
			Name: c.claim.Name, UID: c.claim.UID, Volume: c.volume, Source: source, Target: record.Copy{Ref: target}, Offline: c.single,
			Snapshot: c.snapshot(r, i, source),
		})
		if w.keeper != nil {
			w.keeper.inspected(&r.Claims[i])
		}
		if c.basis != nil {
			r.Claims[i].Basis = &record.Basis{Replica: "data", Sealed: record.Sealed{Version: aVersion, UID: "s1"}}
		}
	}
	if w.group != nil && len(w.snapped()) > 1 {
		r.Group = &record.Group{By: "together", Version: "v1"}
	}
	return r
}

func drop(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return f == keys.MoveFinalizer })
}

// apply takes the action of a step as the API servers would.
func (w *world) apply(step steps.Step) {
	on := step.Subject()
	w.log = append(w.log, fmt.Sprintf("%s %d %s %s", step.Verb(), on.Claim, on.End, step.Say))
	var c *claim
	if on.Claim < len(w.claims) {
		c = w.claims[on.Claim]
	}
	r := w.decoded()
	switch a := step.Action.(type) {
	case nil:
	case steps.Adopt:
		w.move.Finalizers = append(w.move.Finalizers, keys.MoveFinalizer)
	case steps.Inspect:
		w.save(w.first())
	case steps.Save:
		w.log = append(w.log, "phase "+string(a.Record.Phase))
		w.agreed(a.Record)
		w.settle(a.Record)
		w.save(a.Record)
	case steps.HoldClaim:
		c.claim.Finalizers = append(c.claim.Finalizers, keys.MoveFinalizer)
	case steps.Lock:
		c.claim.Labels[keys.Moving], c.claim.Annotations[keys.Move] = keys.MovingNow, string(moveUID)
	case steps.Unlock:
		// The claim's pods could not start beside it.
		w.must(!c.single || w.down[record.Source] || c.current(a.Claim) != record.Source || !c.at[record.Source].mover.Exists,
			"pods go on while a mover has their volume")
		if !a.StaysLocked {
			delete(c.claim.Labels, keys.Moving)
			delete(c.claim.Annotations, keys.Move)
		}
		delete(c.claim.Annotations, keys.MoveTouched)
		c.claim.Finalizers = drop(c.claim.Finalizers)
	case steps.Touch:
		c.claim.Annotations[keys.MoveTouched] = a.Text
	case steps.Keep:
		c.at[record.Source].real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	case steps.Restore:
		c.at[a.End].real.Spec.PersistentVolumeReclaimPolicy = r.Claims[a.Claim].At(a.End).Policy
	case steps.MakeTarget:
		if r.Claims[a.Claim].Basis.InUse() {
			w.makeOfBasis(a.Claim)
			return
		}
		w.must(c.at[record.Target].backing == nil && (w.version == nil || !w.version.slots), "a second target")
		c.at[record.Target].backing = copyOf(a.Claim)
		if c.at[record.Target].content = -1; w.version != nil {
			c.at[record.Target].content = w.version.content
		}
	case steps.TakeKept:
		w.keeper.take(a.Claim)
	case steps.TakeSlot:
		w.must(w.version.slots && !w.version.overwritten, "a slot is taken that the replica writes to")
		c.at[record.Target].backing.Labels[keys.MoveOf] = string(moveUID)
	case steps.ReturnSlot:
		w.must(c.current(a.Claim) != record.Target, "the slot in use is given back")
		c.at[record.Target].backing = slotOf(a.Claim)
	case steps.Publish:
		b := c.at[a.End].backing
		delete(b.Labels, keys.ReplicaOf)
		delete(b.Annotations, keys.ReplacedBy)
		delete(b.Labels, keys.MoveOf)
		delete(b.Annotations, keys.Unpublished)
	case steps.Shelve:
		c.at[record.Source].backing.Labels[keys.MoveOf] = string(moveUID)
	case steps.DropBacking:
		w.must(a.End == record.Source || w.version == nil || !w.version.slots, "a version is removed")
		w.must(c.current(a.Claim) != a.End, "the copy in use removed")
		w.must(w.keeper == nil || c.at[a.End].backing.Labels[keys.MoveOf] != keeperUID, "a copy is removed that another move keeps")
		w.must(w.version == nil || a.End == record.Target || w.move.Spec.Action != v1alpha1.ActionMove,
			"what had diverged is removed, and nobody said so")
		w.must(!isOfBasis(c.at[a.End].backing) || !c.at[a.End].mover.Exists, "a target is removed that a mover has")
		c.at[a.End].backing, c.at[a.End].real, c.at[a.End].content = nil, nil, -1
	case steps.MakeGroup, steps.DropGroup:
		w.applyGroup(step.Action)
	case steps.Unlabel:
		delete(c.at[record.Source].backing.Labels, r.GroupLabel())
	case steps.MakeSnapshot:
		w.must(!c.snap.exists && !c.snap.refused, "a second snapshot")
		c.snap.exists, c.snap.content = true, c.at[record.Source].content
	case steps.MakeClone:
		at := c.at[record.Snapped]
		w.must(at.backing == nil && c.snap.ready, "a claim of no snapshot")
		at.backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("clone-%d", a.Claim))}}
		at.content = c.snap.content
	case steps.DropClone:
		w.must(!c.at[record.Snapped].mover.Exists, "a claim is removed that is in use")
		c.at[record.Snapped].backing.DeletionTimestamp = &metav1.Time{Time: w.now}
	case steps.DropSnapshot:
		w.must(c.at[record.Snapped].backing == nil, "a snapshot is removed before what was made of it")
		w.must(!c.snap.member, "a snapshot is removed from its group")
		c.snap.leaving = true
	case steps.EnsureMover:
		w.must(w.keeper == nil || a.End != record.Target || w.keeper.isTaken(a.Claim), "a mover for a copy that another move keeps")
		c.at[a.End].mover, c.at[a.End].released = movers.State{Exists: true, Unstarted: true}, false
	case steps.StartMover:
		if m := &c.at[a.End].mover; m.Exists {
			m.Unstarted = false
			// An earlier request to delete its Secret takes effect late.
			m.Keyless = w.r.IntN(100) < 5
		}
	case steps.GiveKeys:
		c.at[a.End].mover.Keyless = false
	case steps.DropMover:
		c.at[a.End].mover.Leaving = true
	case steps.Start:
		if decide.ReadEnd(w.observe(), a.Claim) == record.Snapped {
			w.startSnapshot(c, a)
			return
		}
		if s := r.Claims[a.Claim].Snapshot; s != nil && s.Copied && a.Task.Kind == moverapi.Prepare && !r.Claims[a.Claim].Prepared {
			w.must(string(a.Task.Expect) == string(snapshotOf(a.Claim)), "what its snapshot had is not compared with a source: %s",
				a.Task.Expect)
		}
		if a.Task.Kind != moverapi.Prepare && a.Task.Kind != moverapi.Release {
			w.must(string(a.Task.Expect) == string(sourceOf(a.Claim)), "a mover is not told which source it must see: %s", a.Task.Expect)
		}
		w.must(a.Task.Kind != moverapi.Pass || !c.single, "a pass over what nothing may read beside a pod")
		w.must(c.mover.Task == nil || c.mover.Task.State != moverapi.Running, "a task beside another one")
		c.mover.Task = &moverapi.TaskStatus{Task: a.Task, State: moverapi.Running}
	case steps.DeletePod:
		w.must(!w.open, "a pod is stopped, and nothing holds the next one back")
		w.find(a.Pod.UID).Leaving = true
	case steps.ReleasePod:
		w.release(a.Pod.UID)
	case steps.Ungate:
		w.find(a.Pod.UID).Gated = false
	case steps.DeleteVolume:
		c.volume = c.volume.DeepCopy()
		c.volume.DeletionTimestamp = &metav1.Time{Time: w.now}
		if w.calm || w.r.IntN(100) < 80 {
			c.volume.Spec.ClaimRef.Name = record.SecretName(moveUID)
		}
	case steps.FreeVolume:
		w.must(!slices.Contains(c.volume.Finalizers, attacher), "a volume is taken from its attacher")
		c.volume = nil
	case steps.MakeVolume:
		w.must(c.volume == nil, "a second volume")
		c.volume = a.Volume.DeepCopy()
		w.made++
		c.volume.UID = types.UID(fmt.Sprintf("v%d", w.made))
	case steps.DeleteMove:
		w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
	case steps.Forget:
		w.record = nil
	case steps.Leave:
		if w.move.Finalizers = nil; w.move.DeletionTimestamp != nil {
			w.move = nil
		}
	default:
		w.must(false, "unknown action %T", a)
	}
}

func (w *world) find(uid types.UID) *pod {
	for _, p := range w.pods {
		if p.UID == uid {
			return p
		}
	}
	w.must(false, "a step for a pod that is not there")
	return nil
}

// live makes the other programs act.
func (w *world) live() {
	chance := func(percent int) bool { return w.r.IntN(100) < percent }
	passed := time.Duration(w.r.IntN(2000)) * time.Millisecond
	w.now = w.now.Add(passed)
	w.forcedLive(passed, chance)
	for i, c := range w.claims {
		w.basisLives(i, c, chance)
		w.bind(c)
		w.detach(c, chance)
		w.moverLives(i, c, chance)
	}
	w.groupLives(chance)
	w.podsLive(chance)
	if w.calm {
		return
	}
	for _, end := range record.Ends {
		if chance(3) {
			w.down[end] = !w.down[end]
		}
	}
	if w.within {
		w.down[record.Target] = w.down[record.Source]
	}
	if w.version != nil && w.version.lost {
		w.down[record.Source] = true
	}
	for _, c := range w.claims {
		if s := c.at[record.Source]; chance(2) && s.mover.Running {
			w.log = append(w.log, "the sender dies")
			s.mover = movers.State{Exists: true, Ended: true}
			c.alive = false
		}
	}
}

// bind acts as kube-controller-manager.
func (w *world) bind(c *claim) {
	switch {
	case c.claim == nil:
	case c.volume == nil:
		c.claim.Status.Phase = corev1.ClaimLost
	case c.volume.Spec.ClaimRef.Name != "" && (w.calm || w.r.IntN(100) < 70):
		c.volume.Status.Phase = corev1.VolumeReleased
	case c.volume.DeletionTimestamp == nil:
		c.claim.Status.Phase, c.volume.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
	}
}

// attacher is the finalizer of an attacher.
const attacher = "external-attacher/disk-example-com"

// detach acts as the attach-detach controller, which detaches what no pod of the node uses
// under whatever name, and as the attacher.
func (w *world) detach(c *claim, chance func(int) bool) {
	used := c.at[record.Source].mover.Exists || slices.ContainsFunc(w.pods, w.reading)
	if c.attached && !used && chance(40) {
		c.attached = false
	}
	if v := c.volume; v != nil && v.DeletionTimestamp != nil && !c.attached {
		v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == attacher })
	}
}

// moverLives acts as the node of each mover, and as the mover.
func (w *world) moverLives(i int, c *claim, chance func(int) bool) {
	w.snapshotLives(i, c, chance)
	for _, end := range []record.End{record.Source, record.Target, record.Snapped} {
		m := &c.at[end].mover
		switch {
		case m.Exists && m.Leaving && chance(50):
			*m = movers.State{}
			if end == record.Source {
				c.alive = false
			}
		case end == record.Target && c.basis != nil && isOfBasis(c.at[end].backing) && c.at[end].real == nil:
			// It gets its volume first; see basisLives.
		case m.Exists && !m.Leaving && !m.Ended && !m.Unstarted && !m.Keyless && !m.Running && chance(60):
			m.Running = true
			if end == record.Target {
				// The class binds with the first pod.
				if m.Node = "target-1"; c.at[end].real == nil {
					c.at[end].real = &corev1.PersistentVolume{}
				}
			}
			if end == record.Snapped {
				c.snap.mover = moverapi.Status{Instance: "snapshot"}
			}
			if end == record.Source {
				w.made++
				c.alive, c.mover = true, moverapi.Status{Instance: fmt.Sprintf("i%d", w.made)}
			}
		}
	}
	task := c.mover.Task
	if !c.alive || task == nil || task.State != moverapi.Running || !c.at[record.Source].mover.Running || !c.at[record.Target].mover.Running ||
		chance(50) {
		return
	}
	s, d := c.at[record.Source], c.at[record.Target]
	w.must(!d.released || task.Kind == moverapi.Release || w.decoded().Phase == v1alpha1.MoveRollBack, "a task for a target that was let go")
	task.State = moverapi.Done
	switch task.Kind {
	case moverapi.Fingerprint:
		w.must(false, "no move asks for fingerprints")
	case moverapi.Prepare:
		task.Prepared = &moverapi.Prepared{Bytes: 1, Source: sourceOf(i)}
	case moverapi.Pass:
		d.content = s.content
		task.Passed = &moverapi.Passed{}
	case moverapi.Final:
		if r := w.decoded(); r == nil || r.Phase == v1alpha1.MoveRollBack {
			// Its result is not used any more.
			return
		}
		for _, p := range w.pods {
			w.must(!p.Bound || p.at != record.Source, "the last pass while a pod writes")
		}
		w.must(c.volume == nil, "the last pass while the volume can be mounted")
		d.content = s.content
		if !w.calm && chance(10) {
			d.content = -2 // the disk is corrupt
		}
	case moverapi.Release:
		w.must(!c.single, "a mover beside the only pod that may use the claim")
		d.released = true
	case moverapi.Verify:
		task.Verified = &moverapi.Verified{SourceRoot: fmt.Sprint(s.content), TargetRoot: fmt.Sprint(d.content), Equal: s.content == d.content}
	}
}

// sourceOf is what Prepare reports of the source of a claim.
func sourceOf(i int) json.RawMessage { return fmt.Appendf(nil, `{"entries":%d}`, i) }

// podsLive acts as the owner of the pods, as the scheduler, which may not know of a lock
// yet, as the nodes, and as the application.
func (w *world) podsLive(chance func(int) bool) {
	here := false
	var kept []*pod
	for _, p := range w.pods {
		here = here || !p.Leaving
		away := w.forced.silent || w.version != nil && w.down[record.Source]
		if p.Leaving && (!p.Bound || chance(40) && !(w.reading(p) && away)) {
			w.goneWell(p)
			continue
		}
		kept = append(kept, p)
	}
	w.pods = kept
	stale := !w.calm && chance(10)
	if !here && chance(70) && w.claims[0].claim != nil {
		w.made++
		p := &pod{Pod: steps.Pod{Name: "db-0", UID: types.UID(fmt.Sprintf("p%d", w.made)), Owned: true, Grace: grace}}
		for _, c := range w.claims {
			p.Gated = p.Gated || c.claim.Labels[keys.Moving] != "" && !stale && !w.open
		}
		w.pods = append(w.pods, p)
	}
	for _, p := range w.pods {
		if !p.Bound && !p.Leaving && !p.Gated && chance(60) {
			w.schedule(p, stale)
		}
		if p.Bound && chance(80) {
			p.Ready = true
			for i, c := range w.claims {
				w.truth[i]++
				c.at[p.at].content = w.truth[i]
			}
		}
	}
}

func (w *world) schedule(p *pod, stale bool) {
	at := record.End("")
	for i, c := range w.claims {
		// A node reads claim and volume just before it mounts.
		if c.claim == nil || c.claim.Status.Phase != corev1.ClaimBound || c.volume == nil || c.volume.DeletionTimestamp != nil ||
			c.claim.Annotations[keys.Move] != "" && !stale {
			return
		}
		if at != "" && at != c.current(i) {
			return
		}
		at = c.current(i)
		if m := c.at[at].mover; c.single && m.Exists && !m.Unstarted {
			return // the scheduler and the node prevent a second pod
		}
	}
	if p.Bound, p.at = true, at; w.version != nil {
		p.Cluster = map[record.End]string{record.Source: lostCluster, record.Target: "west"}[at]
		p.Hosted = !w.version.aliens || w.r.IntN(2) == 0
	}
	for _, c := range w.claims {
		if c.attaches && !w.within && at == record.Source && !c.attached {
			c.attached, c.volume.Finalizers = true, append(slices.Clone(c.volume.Finalizers), attacher)
		}
	}
}

const (
	// grace is the grace period of all pods, in seconds.
	grace = 60
	// margin is what a move adds to that for nodes; it is more than they need.
	margin = 8 * time.Second
)

// homeNode is the node of all pods whose data is at home.
var homeNode = proof.Node{Cluster: keys.Home, Name: "home-1"}

// forced is the state of force-deleted pods and of their node.
type forced struct {
	// silent: the node is not ready.
	silent bool
	// running are the pods that still write.
	running []*straggler
	// unended and ended are what a watch has observed.
	unended []proof.Pod
	ended   map[types.UID]bool
	happens int
}

// straggler is a pod that runs on for a time, counted while its node is ready.
type straggler struct {
	left  time.Duration
	alien bool
}

// node is the node of all pods whose data is at the source.
func (w *world) node() proof.Node {
	switch {
	case w.version != nil:
		return proof.Node{Cluster: lostCluster, Name: "lost-1"}
	case w.within:
		return proof.Node{Cluster: "west", Name: "west-1"}
	}
	return homeNode
}

func (w *world) writerOf(p *pod) proof.Pod {
	known := proof.Pod{UID: p.UID, Name: p.Name, Node: w.node().Name, Grace: grace}
	if known.Cluster = w.node().Cluster; known.Cluster == keys.Home {
		known.Cluster = ""
	}
	known.Hosted = p.Hosted
	return known
}

// reading says whether a pod runs on a node of the source.
func (w *world) reading(p *pod) bool { return p.Bound && p.at == record.Source }

// unseen says whether the nodes of the source cannot be observed now.
func (w *world) unseen() bool { return (w.within || w.version != nil) && w.down[record.Source] }

// seeForced adds the force-deleted pods to an observation.
func (w *world) seeForced(o *steps.Observation) {
	o.Margin, o.Ended, o.Nodes = margin, w.forced.ended, map[proof.Node]proof.Absence{}
	o.Unended = slices.Clone(w.forced.unended)
	for _, p := range w.pods {
		if w.reading(p) && !w.unseen() {
			o.Users, o.Writers = append(o.Users, w.node()), append(o.Writers, w.writerOf(p))
		}
	}
	if w.forced.silent || w.unseen() && w.r.IntN(2) == 0 {
		o.Nodes[w.node()] = proof.Absence{Why: "the node is not ready"}
	}
}

// goneWell is a pod that its node has ended.
func (w *world) goneWell(p *pod) {
	if w.reading(p) && !w.unseen() && (w.calm || w.r.IntN(10) > 0) {
		w.forced.ended[p.UID] = true
	}
}

// forcedLive acts as somebody who force-deletes pods, and as the pods that run on.
func (w *world) forcedLive(passed time.Duration, chance func(int) bool) {
	if w.forced.ended == nil {
		w.forced.ended = map[types.UID]bool{}
	}
	if w.forced.silent {
		w.forced.silent = !w.calm && !chance(10)
	} else {
		w.forced.silent = !w.calm && chance(2)
	}
	w.forced.running = slices.DeleteFunc(w.forced.running, func(s *straggler) bool {
		if !w.forced.silent {
			s.left -= passed
		}
		return s.left <= 0
	})
	for range w.forced.running {
		// Rarely, or every comparison would find it.
		if !chance(15) {
			continue
		}
		for i, c := range w.claims {
			if c.at[record.Source].backing == nil {
				continue
			}
			w.must(w.version == nil || w.version.declared || c.current(i) != record.Target,
				"a pod writes to what it takes for the volume, and nobody declared that it does not")
			w.truth[i]++
			c.at[record.Source].content = w.truth[i]
		}
	}
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool {
		if w.calm || !w.reading(p) || w.unseen() || !p.Leaving && !chance(10) || !chance(10) {
			return false
		}
		w.log = append(w.log, "somebody deletes a pod by force")
		// Its node learns of that only after a while.
		w.forced.running = append(w.forced.running, &straggler{left: time.Duration(w.r.IntN(int(grace*time.Second + margin/2))),
			alien: !p.Hosted})
		w.forced.unended = append(w.forced.unended, w.writerOf(p))
		w.forced.happens++
		return true
	})
	if r := w.decoded(); r != nil && !w.calm && chance(5) {
		// The provisioner restarts and knows only its record.
		w.forced.ended = map[types.UID]bool{}
		w.forced.unended = slices.DeleteFunc(w.forced.unended, func(pod proof.Pod) bool {
			return slices.ContainsFunc(r.Pods, func(known proof.Pod) bool { return known.UID == pod.UID })
		})
	}
}

// settle does what the controller does once a record no longer has certain pods.
func (w *world) settle(next *record.Record) {
	before := w.decoded()
	if before == nil {
		return
	}
	w.forced.unended = slices.DeleteFunc(w.forced.unended, func(pod proof.Pod) bool {
		same := func(known proof.Pod) bool { return known.UID == pod.UID }
		return slices.ContainsFunc(before.Pods, same) && !slices.ContainsFunc(next.Pods, same)
	})
}

// snap is the snapshot of a source; the claim created from it and its mover are at
// record.Snapped.
type snap struct {
	exists, leaving, ready bool
	// member: it was taken with others.
	member bool
	// content is the source's content when it was taken.
	content int
	// stuck: it never becomes ready; refused: it is refused.
	stuck, refused bool
	mover          moverapi.Status
	copied         int
}

func (s *snap) gone() bool { return s == nil || !s.exists }

// mayStandStill says whether pods may be stopped for a whole copy: if no snapshot can be
// taken they must be.
func (w *world) mayStandStill() bool {
	for _, c := range w.claims {
		if c.single && c.snap == nil {
			return true
		}
	}
	return len(w.claims) == 1
}

// snapshot is the snapshot in a first record.
func (c *claim) snapshot(r *record.Record, i int, source record.Copy) *record.Snapshot {
	if c.snap == nil {
		return nil
	}
	return &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Cluster: source.Ref.Cluster, Namespace: source.Ref.Namespace,
		Name: r.MoverName(i, record.Snapped)}}}
}

// agreed checks that pods are not stopped for a whole copy that nobody allowed.
func (w *world) agreed(next *record.Record) {
	if next.Phase != v1alpha1.MoveQuiesce || w.decoded().Phase == v1alpha1.MoveQuiesce || next.LongStop {
		return
	}
	for i := range next.Claims {
		for _, p := range w.pods {
			w.must(!next.Claims[i].CopiedInStop() || !p.Bound || p.Leaving, "pods are stopped for all of claim %d, which nobody allowed", i)
		}
		w.must(!w.claims[i].at[record.Snapped].mover.Exists, "a snapshot is still copied when the pods are stopped")
	}
}

// said is the status that a mover reports.
func (w *world) said(c *claim, status moverapi.Status) *moverapi.Status {
	if status.Task != nil {
		task := *status.Task
		status.Task = &task
	}
	status.Connected = c.at[record.Target].mover.Running && !w.down[record.Target]
	return &status
}

func (w *world) seeSnapshot(r *record.Record, i int) (seen steps.Snapshot) {
	c := w.claims[i]
	if c.snap == nil || w.down[record.Source] || !r.Claims[i].Snapshot.MayExist() {
		return seen
	}
	seen.Side = w.side(c, record.Snapped)
	if c.snap.member && r.Claims[i].Snapshot.Taken == "" {
		// It has a name that is not known yet.
		return seen
	}
	seen.Exists, seen.Leaving, seen.Ready, seen.Refused = c.snap.exists, c.snap.leaving, c.snap.ready, c.snap.refused
	if seen.Exists {
		seen.UID = "s1"
	}
	if seen.Refused || c.snap.stuck {
		seen.Problem = "the pool is full"
	}
	return seen
}

// startSnapshot starts a task of the snapshot's mover.
func (w *world) startSnapshot(c *claim, a steps.Start) {
	w.must(a.Task.Kind == moverapi.Prepare || a.Task.Kind == moverapi.Pass, "the mover at a snapshot does %s", a.Task.Kind)
	w.must(a.Task.Kind == moverapi.Prepare || string(a.Task.Expect) == string(snapshotOf(a.Claim)),
		"it is not told what it must see: %s", a.Task.Expect)
	c.snap.mover.Task = &moverapi.TaskStatus{Task: a.Task, State: moverapi.Running}
}

// snapshotOf is what Prepare reports of a snapshot.
func snapshotOf(i int) json.RawMessage { return fmt.Appendf(nil, `{"copied":true,"entries":%d}`, i) }

// snapshotLives acts as the snapshot controller, as the provisioner of claims from
// snapshots, and as the mover.
func (w *world) snapshotLives(i int, c *claim, chance func(int) bool) {
	s, at := c.snap, c.at[record.Snapped]
	if s == nil {
		return
	}
	if !w.calm {
		s.refused = s.refused || !s.exists && chance(1)
		s.stuck = s.stuck || !s.ready && chance(2)
		if at.mover.Running && chance(3) {
			w.log = append(w.log, "the mover at the snapshot dies")
			at.mover = movers.State{Exists: true, Ended: true}
		}
		if at.backing != nil && chance(1) {
			w.log = append(w.log, "somebody deletes the claim made of a snapshot")
			at.backing.DeletionTimestamp = &metav1.Time{Time: w.now}
		}
		s.leaving = s.leaving || s.exists && chance(1)
	}
	if s.stuck && s.exists && len(w.forced.running) == 0 && chance(20) {
		// Nothing else happens meanwhile.
		w.now = w.now.Add(3 * time.Minute)
	}
	s.ready = s.exists && !s.leaving && (s.ready || !s.stuck && chance(40))
	if s.leaving && chance(40) {
		*s = snap{stuck: s.stuck, refused: s.refused, mover: s.mover, copied: s.copied}
	}
	if at.backing != nil && at.backing.DeletionTimestamp != nil && !at.mover.Exists && chance(40) {
		at.backing = nil
	}
	task := s.mover.Task
	if task == nil || task.State != moverapi.Running || !at.mover.Running || !c.at[record.Target].mover.Running || chance(50) {
		return
	}
	switch {
	case !w.calm && chance(5):
		task.State, task.Error = moverapi.Failed, "its disk is broken"
	case task.Kind == moverapi.Prepare:
		task.State, task.Prepared = moverapi.Done, &moverapi.Prepared{Source: snapshotOf(i)}
	default:
		w.must(record.Before(w.decoded().Phase, v1alpha1.MoveQuiesce) || w.decoded().Phase == v1alpha1.MoveRollBack,
			"a snapshot is copied in phase %s", w.decoded().Phase)
		task.State, task.Passed = moverapi.Done, &moverapi.Passed{}
		c.at[record.Target].content = at.content
		s.copied++
	}
}

// group is the snapshot of several sources at one moment. The snapshots that belong to it are those of
// the claims.
type group struct {
	exists, leaving, ready bool
	// stuck: it never becomes ready; refused: it is refused.
	stuck, refused bool
	taken          int
}

// snapped are the claims that are copied from snapshots.
func (w *world) snapped() (found []*claim) {
	for _, c := range w.claims {
		if c.snap != nil {
			found = append(found, c)
		}
	}
	return found
}

func (w *world) seeGroup(o *steps.Observation) {
	g := w.group
	if !o.Record.Group.MayExist() || w.down[record.Source] {
		return
	}
	o.Group = steps.Group{Exists: g.exists, Leaving: g.leaving, Ready: g.ready, Refused: g.refused}
	if g.exists {
		o.Group.UID = "g1"
	}
	if g.refused || g.stuck {
		o.Group.Problem = "the driver cannot do it"
	}
	if !g.ready || o.Record.Group.UID != "" {
		return
	}
	o.Group.Members = map[int]string{}
	for i, c := range w.claims {
		if c.snap != nil && c.snap.member {
			o.Group.Members[i] = fmt.Sprintf("member-%d", i)
		}
	}
}

func (w *world) applyGroup(action steps.Action) {
	g := w.group
	if action == (steps.DropGroup{}) {
		for _, c := range w.snapped() {
			w.must(c.at[record.Snapped].backing == nil, "a group is removed before what was made of it")
		}
		g.leaving = true
		return
	}
	w.must(!g.exists && !g.refused, "a second group")
	for _, c := range w.snapped() {
		w.must(!c.snap.exists, "a group beside a snapshot")
		c.at[record.Source].backing.Labels[w.decoded().GroupLabel()] = "true"
		if w.r.IntN(100) < 10 && !w.calm {
			// It stops before the group is made.
			return
		}
	}
	g.exists = true
	for _, c := range w.snapped() {
		c.snap.content = c.at[record.Source].content
	}
}

// groupLives acts as the snapshot controller, and as an administrator.
func (w *world) groupLives(chance func(int) bool) {
	g := w.group
	if g == nil {
		return
	}
	if !w.calm {
		g.refused = g.refused || !g.exists && chance(1)
		g.stuck = g.stuck || !g.ready && chance(1)
		g.leaving = g.leaving || g.exists && chance(1)
	}
	if g.stuck && g.exists && chance(20) {
		w.now = w.now.Add(3 * time.Minute)
	}
	if g.exists && !g.leaving && !g.ready && !g.stuck && chance(40) {
		g.ready = true
		g.taken++
		for _, c := range w.snapped() {
			w.must(!w.decoded().Group.Over.IsZero() || c.at[record.Source].backing.Labels[w.decoded().GroupLabel()] != "",
				"what a group is taken of has no label")
			c.snap.exists, c.snap.ready, c.snap.member = true, true, true
		}
	}
	if g.leaving && chance(40) {
		*g = group{stuck: g.stuck, refused: g.refused, taken: g.taken}
		for _, c := range w.snapped() {
			if c.snap.member {
				*c.snap = snap{stuck: c.snap.stuck, refused: c.snap.refused, mover: c.snap.mover, copied: c.snap.copied}
			}
		}
	}
}
