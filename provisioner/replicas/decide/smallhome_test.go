package decide_test

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what home sees of a small world, as the controller observes it, and what the writes do that it decides on, as API servers
// take them: creates by name, deletes by UID, changes by resource version.

// look is what home sees. It also notes what its process remembers of that.
func (s *small) look() decide.Observation {
	o := decide.Observation{Now: s.now, MayBegin: true, Record: s.record, Refused: s.memory.refused, RefusedAt: s.memory.refusedAt}
	if !s.replica.isGone() {
		o.Replica = s.replica.object()
	}
	if s.record == nil {
		return o
	}
	r, p := s.record, s.record.Point
	if !s.claim.gone && s.claim.uid == r.ClaimUID {
		o.At = s.claim.at
		if o.Moving = s.failover.holds(); s.failover.stage >= beganOne {
			o.FailedOver, s.failover.seen = s.failover.began, true
		}
	}
	if number := s.copied(); number != s.memory.copyOf {
		s.memory.copyOf, s.memory.advanced = number, s.now
	}
	o.Claims = make([]decide.Claim, 1)
	seen := &o.Claims[0]
	if o.Standby = s.west.seen("west"); o.Standby.Unusable == "" {
		s.lookAtStandby(&o, seen)
	}
	if p == nil {
		for i := range r.Left {
			left := decide.Observation{Now: o.Now, Record: r.OfLeft(i), Claims: make([]decide.Claim, 1)}
			s.lookAtSource(&left, &left.Claims[0])
			if o.Left = &left; left.Source.Unusable == "" {
				break
			}
		}
		return o
	}
	s.lookAtSource(&o, seen)
	switch {
	case o.Source.Unusable != "" || o.Standby.Unusable != "":
		s.memory.reached, o.Reached = time.Time{}, s.now
	case s.memory.reached.IsZero():
		s.memory.reached, o.Reached = s.now, s.now
	default:
		o.Reached = s.memory.reached
	}
	if p.Stage != record.Copy || p.Root != "" {
		return o
	}
	seen.Advanced, seen.CopyError = s.memory.advanced, "it does not run"
	if seen.Reader.Running {
		reader, writer := s.east.mover(r.MoverName(0, moverapi.Sender)), s.west.mover(r.MoverName(0, moverapi.Receiver))
		seen.Copy, seen.CopyError = &moverapi.Status{Connected: writer != nil && writer.running, Task: reader.task}, ""
	}
	return o
}

// copied is the number of the point that is being copied, 0 for none.
func (s *small) copied() int64 {
	if p := s.record.Point; p != nil && p.Stage == record.Copy {
		return p.Number
	}
	return 0
}

// smallSpec is that of each VolumeReplica.
var smallSpec = v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}},
	RPO: &metav1.Duration{Duration: 10 * time.Minute}, Versions: v1alpha1.ReplicaVersions{Keep: 2}}

func (r smallReplica) object() *v1alpha1.VolumeReplica {
	replica := &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{UID: "r1"}, Spec: smallSpec}
	if replica.Spec.Paused = r.paused; r.finalizer {
		replica.Finalizers = []string{keys.ReplicaFinalizer}
	}
	if r.deleted {
		replica.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	return replica
}

func (c *smallCluster) seen(name string) (seen decide.Cluster) {
	if c.away {
		seen.Unusable = "cluster " + name + " does not answer"
	}
	return seen
}

func (s *small) lookAtStandby(o *decide.Observation, seen *decide.Claim) {
	r, p := s.record, s.record.Point
	if p == nil {
		for _, m := range s.west.movers {
			o.Strays = append(o.Strays, decide.Stray{Name: m.name, Leaving: m.leaving})
		}
	}
	if p == nil && !s.slots {
		o.Sealed = map[string]types.UID{}
		for _, snap := range s.west.snaps {
			if !snap.leaving {
				o.Sealed[snap.name] = snap.uid
			}
		}
		if s.drill != "" {
			o.Used = []string{s.drill}
		}
		s.askKept(*o)
	}
	if len(s.memory.kept) > 0 {
		o.Kept = map[string]string{}
		for _, name := range s.memory.kept {
			o.Kept[name] = "its owner keeps it"
		}
	}
	if seen.Head = s.west.claimOf(r.Head.Name).object(); seen.Head != nil && s.west.claimOf(r.Head.Name).volume {
		seen.HeadVolume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: string(seen.Head.UID)}}}}
	}
	if s.slots {
		seen.Slot = s.west.claimOf(r.Slot.Name).object()
	}
	if p == nil {
		return
	}
	seen.Writer = s.west.mover(r.MoverName(0, moverapi.Receiver)).state()
	if basis := p.Basis; basis != nil {
		seen.Basis = s.west.look(basis.Name, types.UID(basis.Volume.Handle))
	}
	if seen.SealBy = "by"; s.west.noClass {
		seen.SealBy, seen.NoSeal = "", "there is no class of snapshots"
	}
	if p.SealBy != "" {
		seen.Seal = s.west.look(r.SealName(0), types.UID(p.Head.Handle))
	}
}

// askKept asks the owner of west which of the versions that nobody wants may go.
func (s *small) askKept(o decide.Observation) {
	if !s.west.keeps || o.Replica == nil || o.Replica.DeletionTimestamp != nil || o.Moving {
		return
	}
	for _, i := range decide.Surplus(o) {
		s.keep(o.Record.Sealed[i].Name)
	}
}

func (s *small) keep(name string) {
	if !slices.Contains(s.memory.kept, name) {
		s.memory.kept = append(s.memory.kept, name)
	}
}

func (s *small) lookAtSource(o *decide.Observation, seen *decide.Claim) {
	if o.Source = s.east.seen("east"); o.Source.Unusable != "" {
		return
	}
	r := o.Record
	if s.claim.real != "" {
		seen.Origin = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: s.claim.real}}
	}
	seen.Snapshot = s.east.look(r.PointName(0), r.Point.Source.UID)
	seen.Clone = s.east.claimOf(r.PointName(0)).object()
	seen.Reader = s.east.mover(r.MoverName(0, moverapi.Sender)).state()
}

// look is what is seen of a snapshot that is to be of a real claim.
func (c *smallCluster) look(name string, of types.UID) (seen decide.Snapshot) {
	snap := c.snap(name)
	switch {
	case snap == nil:
		return seen
	case snap.taken && snap.of != of:
		seen.Problem, seen.Wrong = "it is of another volume", true
	case !snap.taken && c.noClass:
		seen.Problem = "there is no class of snapshots"
	}
	seen.Exists, seen.UID, seen.Leaving = true, snap.uid, snap.leaving
	seen.Taken = snap.taken && !seen.Wrong
	seen.Ready = seen.Taken
	return seen
}

func (b *smallReal) object() *corev1.PersistentVolumeClaim {
	if b == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: b.name, UID: b.uid}}
	if !b.taken {
		claim.Labels = map[string]string{keys.ReplicaOf: "r1"}
	}
	if b.mark != "" {
		claim.Annotations = map[string]string{keys.Seal: b.mark}
	}
	if b.from != "" {
		claim.Spec.DataSource = frozen.From(b.from)
	}
	if b.leaving {
		claim.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	return claim
}

func (m *smallMover) state() movers.State {
	if m == nil {
		return movers.State{}
	}
	return movers.State{Exists: true, Unstarted: !m.started, Running: m.running && !m.leaving, Ended: m.ended, Leaving: m.leaving}
}

// refuse notes why a write was refused. Home does not learn that of one that comes late.
func (s *small) refuse(late bool, reason, text string) {
	if !late {
		s.memory.refused, s.memory.refusedAt = decide.Refusal{Reason: reason, Text: text}, s.now
	}
}

// take has a request come to its API server.
func (s *small) take(request *smallRequest, late bool) {
	s.takeFor(request, request.seen, request.action, late)
}

func (s *small) takeFor(request *smallRequest, o decide.Observation, action decide.Action, late bool) {
	r := o.Record
	switch a := action.(type) {
	case decide.Adopt:
		s.replica.finalizer = s.replica.finalizer || !s.replica.deleted
	case decide.Leave:
		s.replica.finalizer = false
	case decide.Begin:
		s.begin(request, late)
	case decide.BeginPoint:
		s.beginPoint(request, late)
	case decide.Save:
		s.save(request, a.Record)
	case decide.Forget:
		s.checkRemoved(late)
		s.record, s.written = nil, s.written+1
	case decide.CleanLeft:
		s.takeFor(request, *a.Of, a.Action, late)
	case decide.TakeSnapshot:
		s.east.take(s, smallSnap{name: r.PointName(0), number: r.Point.Number, claim: "data"}, late)
	case decide.DropSnapshot:
		s.east.dropSnap(r.PointName(0), o.Claims[0].Snapshot.UID)
	case decide.MakeClone:
		if snap := s.east.snap(r.PointName(0)); snap != nil && snap.taken {
			if s.east.make(s, smallReal{name: r.PointName(0), from: r.PointName(0), has: snap.has, volume: true}, late) {
				s.cuts = append(slices.DeleteFunc(s.cuts, func(cut smallCut) bool { return cut.number == r.Point.Number }),
					smallCut{r.Point.Number, snap.has})
			}
		}
	case decide.DropClone:
		s.east.dropClaim(r.PointName(0), o.Claims[0].Clone.UID)
	case decide.MakeHead:
		s.makeHead(r, late)
	case decide.DropHead:
		s.west.dropClaim(r.Head.Name, o.Claims[0].Head.UID)
	case decide.DropSlot:
		s.west.dropClaim(r.Slot.Name, o.Claims[0].Slot.UID)
	case decide.MakeMover:
		its, name := &s.west, r.Head.Name
		if a.Role == moverapi.Sender {
			its, name = &s.east, r.PointName(0)
		}
		if its.full {
			s.refuse(late, decide.Refused, "a quota is exceeded")
		} else if its.mover(r.MoverName(0, a.Role)) == nil {
			its.movers = append(its.movers, smallMover{name: r.MoverName(0, a.Role), number: r.Point.Number, role: a.Role, claim: name, late: late})
		}
	case decide.StartMover:
		if m := s.moverOf(r, a.Role); m != nil {
			m.started = true
		}
	case decide.DropMover:
		if m := s.moverOf(r, a.Role); m != nil {
			m.leaving = true
		}
	case decide.DropStray:
		if m := s.west.mover(a.Name); m != nil {
			m.leaving = true
		}
	case decide.Start:
		s.start(r, a.Task)
	case decide.TakeSeal:
		if s.slots {
			s.mark(request, r.Head.Name, sealText(r.Point.Number, r.Point.Moment(), r.Point.Root))
			return
		}
		s.west.take(s, smallSnap{name: r.SealName(0), number: r.Point.Number, claim: r.Head.Name}, late)
	case decide.Unseal:
		s.mark(request, r.Head.Name, "")
	case decide.DropVersion:
		s.dropVersion(a, late)
	default:
		fail("nobody takes %T", action)
	}
}

func (s *small) moverOf(r *record.Record, role moverapi.Role) *smallMover {
	if role == moverapi.Sender {
		return s.east.mover(r.MoverName(0, role))
	}
	return s.west.mover(r.MoverName(0, role))
}

func (c *smallCluster) take(s *small, snap smallSnap, late bool) {
	if c.full {
		s.refuse(late, decide.Refused, "a quota is exceeded")
	} else if c.snap(snap.name) == nil {
		snap.uid, snap.late = s.uid(), late
		c.snaps = append(c.snaps, snap)
	}
}

func (c *smallCluster) make(s *small, b smallReal, late bool) bool {
	switch {
	case c.full:
		s.refuse(late, decide.Refused, "a quota is exceeded")
		return false
	case c.claimOf(b.name) != nil:
		return false
	}
	b.uid, b.late = s.uid(), late
	c.claims = append(c.claims, b)
	return true
}

func (c *smallCluster) dropSnap(name string, uid types.UID) {
	if snap := c.snap(name); snap != nil && snap.uid == uid {
		snap.leaving = true
	}
}

func (c *smallCluster) dropClaim(name string, uid types.UID) {
	if b := c.claimOf(name); b != nil && b.uid == uid {
		must(!b.taken, "what a claim got is deleted")
		b.leaving = true
	}
}

func (s *small) makeHead(r *record.Record, late bool) {
	if s.isLocked(r) {
		s.refuse(late, decide.ClaimGone, "there is no such claim, or it is locked")
		return
	}
	b := smallReal{name: r.Head.Name}
	if basis := r.Point.Basis; basis != nil {
		if snap := s.west.snap(basis.Name); snap == nil || !snap.taken {
			return
		}
		b.from = basis.Name
	}
	s.west.make(s, b, late)
}

// isLocked says whether nothing can be begun for the claim of a replica.
func (s *small) isLocked(r *record.Record) bool {
	return s.claim.gone || s.claim.uid != r.ClaimUID || s.failover.holds()
}

// mark has a real claim say what it has, if it was not changed since it was looked at.
func (s *small) mark(request *smallRequest, name, mark string) {
	if b := s.west.claimOf(name); b != nil && b.uid == request.seen.Claims[0].Head.UID && b.marks == request.marks {
		b.mark, b.marks = mark, b.marks+1
	}
}

func (s *small) start(r *record.Record, task moverapi.Task) {
	reader, writer := s.east.mover(r.MoverName(0, moverapi.Sender)), s.west.mover(r.MoverName(0, moverapi.Receiver))
	if reader == nil || !reader.running || reader.task != nil && (reader.task.ID == task.ID || reader.task.State == moverapi.Running) {
		return
	}
	reader.task = &moverapi.TaskStatus{Task: task, State: moverapi.Running}
	head, clone := s.west.claimOf(r.Head.Name), s.east.claimOf(r.PointName(0))
	// What is there already is not written again.
	if task.Kind == moverapi.Final && writer != nil && writer.running && head != nil && clone != nil && head.has != clone.has {
		s.write(head, torn)
	}
}

func (s *small) begin(request *smallRequest, late bool) {
	switch {
	case s.record != nil || s.written != request.written || s.replica.isGone():
	case s.claim.gone:
		s.refuse(late, decide.ClaimGone, "there is no claim")
	case s.west.away:
		s.refuse(late, decide.ClusterAway, "cluster west does not answer")
	case s.west.noClass && !s.slots:
		s.refuse(late, decide.NoSnapshots, "no version can be sealed")
	default:
		r := &record.Record{UID: "r1", Namespace: "shop", Name: "data", Epoch: 1, Part: record.Part{Claim: "data", ClaimUID: s.claim.uid,
			Head: backing.Ref{Cluster: "west", Namespace: "shop", Name: "replica-r1"}}}
		if r.Slots = s.slots; s.slots {
			r.Head, r.Slot = r.NameSlot(0), r.NameSlot(0)
		}
		s.record, s.written, s.memory.refused = r, s.written+1, decide.Refusal{}
	}
}

func (s *small) beginPoint(request *smallRequest, late bool) {
	r := request.seen.Record
	basis := !r.Slots && !r.Whole && r.Head.UID == "" && r.Newest() != nil
	switch {
	case s.written != request.written:
	case s.claim.gone || s.claim.uid != r.ClaimUID:
		s.refuse(late, decide.ClaimGone, "there is no such claim")
	case s.failover.holds():
		s.refuse(late, decide.Moving, "the claim is locked as for a move")
	case s.claim.at == "west":
		s.refuse(late, decide.SameCluster, "the data is where its copy is")
	case r.LeftIn("east"):
		s.refuse(late, decide.Waiting, "what an earlier point has left is removed first")
	case s.east.away || s.west.away && (basis || r.Head.UID != ""):
		s.refuse(late, decide.ClusterAway, "a cluster does not answer")
	case s.east.noClass:
		s.refuse(late, decide.NoSnapshots, "no snapshot can be taken")
	default:
		next := r.Clone()
		next.Last++
		next.Point = &record.Point{Number: next.Last, Stage: record.Cut, Since: s.now, Cut: s.now, FailedOver: request.seen.FailedOver,
			Session: record.Session{Source: backing.Ref{Cluster: "east", Namespace: "shop", Name: "data", UID: s.claim.real}}}
		if newest := r.Newest(); basis {
			next.Point.Basis = &record.Basis{Name: newest.Name, Volume: newest.Volume}
		}
		s.record, s.written, s.memory.refused = next, s.written+1, decide.Refusal{}
		// What goes of earlier points has gone by then at the latest: no decision depends on it.
		for s.west.endSnap() {
		}
		// An owner keeps versions for some time.
		s.west.keeps = s.west.keeps && len(r.Sealed) < 5
	}
}

func (s *small) save(request *smallRequest, next *record.Record) {
	if s.written != request.written || s.record == nil {
		return
	}
	s.checkSave(next)
	if s.record.Point != nil && next.Point == nil && !s.memory.cleared {
		s.clearSource()
	}
	if n := len(next.Sealed); n > 0 && !next.Sealed[n-1].Going && s.record.Point != nil && next.Point != nil &&
		s.record.Point.Stage == record.Seal && next.Point.Stage == record.Clean && next.Point.Why == "" {
		s.seals, s.hadVersion = s.seals+1, true
	}
	s.record, s.written, s.memory.refused = next, s.written+1, decide.Refusal{}
	s.cuts = slices.DeleteFunc(s.cuts, func(cut smallCut) bool {
		return (next.Point == nil || next.Point.Number != cut.number) &&
			!slices.ContainsFunc(next.Sealed, func(v record.Version) bool { return v.Number == cut.number })
	})
}

// clearSource removes what points have left that home does not know, as the controller does once in the life of its process.
func (s *small) clearSource() {
	if s.east.away {
		return
	}
	for i := range s.east.movers {
		s.east.movers[i].leaving = true
	}
	for i := range s.east.claims {
		s.east.claims[i].leaving = true
	}
	for i := range s.east.snaps {
		s.east.snaps[i].leaving = true
	}
	s.memory.cleared = true
}
