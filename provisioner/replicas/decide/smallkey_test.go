package decide_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has when two states of a small world are the same one: names, UIDs and contents count by which of them are the same, and
// moments by how long ago they are as decisions tell that apart.

// key writes what makes a state itself.
type key struct {
	b     []byte
	names []string
	now   time.Time
}

func (s *small) key(k *key) []byte {
	k.b, k.names, k.now = k.b[:0], k.names[:0], s.now
	k.bits(s.slots, s.replica.finalizer, s.replica.paused, s.replica.deleted, s.hadVersion, s.memory.cleared, s.claim.gone)
	k.record(s.record)
	if s.record != nil {
		k.bits(s.memory.copyOf == s.copied(), s.record.ClaimUID == s.claim.uid, s.failover.began.After(s.record.FailedOver),
			s.record.Point != nil && s.failover.began.After(s.record.Point.FailedOver))
	}
	k.word(s.memory.refused.Reason)
	k.ago(s.memory.refusedAt)
	k.ago(s.memory.reached)
	k.ago(s.memory.advanced)
	k.b = append(k.b, byte(len(s.memory.kept)))
	for _, name := range s.memory.kept {
		k.name(name)
	}
	k.word(s.claim.at)
	k.name(string(s.claim.real))
	k.b = append(k.b, byte(s.failover.stage))
	k.name(s.failover.chosen.Name)
	k.name(string(s.failover.chosen.UID))
	k.ago(s.failover.began)
	k.bits(s.failover.seen)
	k.name(s.drill)
	k.content(s.newest, s.newest)
	k.content(s.inEast, s.newest)
	k.cluster(&s.east, s.newest)
	k.cluster(&s.west, s.newest)
	for _, cut := range s.cuts {
		k.number(cut.number)
		k.content(cut.has, s.newest)
	}
	if k.bits(s.late != nil); s.late != nil {
		k.request(s)
	}
	return k.b
}

func (k *key) bits(bits ...bool) {
	for _, bit := range bits {
		if bit {
			k.b = append(k.b, '1')
		} else {
			k.b = append(k.b, '0')
		}
	}
}

// name stands for a name by when it first appeared.
func (k *key) name(name string) {
	if name == "" {
		k.b = append(k.b, 0xff)
		return
	}
	i := slices.Index(k.names, name)
	if i < 0 {
		i = len(k.names)
		k.names = append(k.names, name)
	}
	k.b = append(k.b, byte(i))
}

// word stands for itself.
func (k *key) word(word string) { k.b = append(append(k.b, byte(len(word))), word...) }

func (k *key) number(n int64) { k.name("#" + strconv.FormatInt(n, 10)) }

// content stands for what a volume has: whose primary wrote it counts, too.
func (k *key) content(has, newest smallContent) {
	k.name("=" + has.String())
	k.bits(has < 0, has == 0, has.epoch() == newest.epoch())
}

// ago stands for a moment.
func (k *key) ago(moment time.Time) {
	switch age := k.now.Sub(moment); {
	case moment.IsZero():
		k.b = append(k.b, 'z')
	case age < -time.Minute:
		k.b = append(k.b, 'f')
	case age < 10*time.Minute:
		k.b = append(k.b, '0')
	case age < time.Hour:
		k.b = append(k.b, '1')
	case age < 29*24*time.Hour:
		k.b = append(k.b, '2')
	default:
		k.b = append(k.b, '3')
	}
}

func (k *key) record(r *record.Record) {
	if k.bits(r == nil); r == nil {
		return
	}
	k.name(string(r.Head.UID))
	if r.Slots {
		k.name(r.Head.Name)
		k.name(r.Slot.Name)
		k.name(string(r.Slot.UID))
	}
	k.bits(r.Whole, r.Failures > 0, r.Failures > 6)
	k.ago(r.Failed)
	k.b = append(k.b, byte(len(r.Sealed)))
	for i := range r.Sealed {
		v := &r.Sealed[i]
		k.name(v.Name)
		k.name(string(v.UID))
		k.name("=" + v.Root)
		k.number(v.Number)
		k.bits(v.Going, v.Unready != "", v.Epoch == r.Epoch)
	}
	if newest := r.Newest(); newest != nil {
		k.ago(newest.Cut)
	}
	for i := range r.Left {
		k.number(r.Left[i].Number)
	}
	p := r.Point
	if k.bits(p == nil); p == nil {
		return
	}
	k.word(string(p.Stage))
	k.number(p.Number)
	k.ago(p.Since)
	k.ago(p.Cut)
	k.bits(p.Why != "", p.Expect != nil, p.Copied, p.SealBy != "")
	k.name("=" + p.Root)
	k.name(string(p.Source.UID))
	k.name(p.Head.Handle)
	if p.Basis != nil {
		k.name(p.Basis.Name)
	}
}

func (k *key) cluster(c *smallCluster, newest smallContent) {
	k.bits(c.away, c.noClass, c.full, c.keeps)
	k.b = append(k.b, byte(len(c.snaps)), byte(len(c.claims)), byte(len(c.movers)))
	for i := range c.snaps {
		snap := &c.snaps[i]
		k.name(snap.name)
		k.name(string(snap.uid))
		k.name(string(snap.of))
		k.content(snap.has, newest)
		k.bits(snap.taken, snap.leaving, snap.late)
	}
	for i := range c.claims {
		b := &c.claims[i]
		k.name(b.name)
		k.name(b.from)
		k.name(string(b.uid))
		k.content(b.has, newest)
		k.name(b.mark)
		k.bits(b.volume, b.leaving, b.late, b.taken)
	}
	for i := range c.movers {
		m := &c.movers[i]
		k.name(m.name)
		k.number(m.number)
		k.bits(m.started, m.running, m.ended, m.leaving, m.late)
		if k.bits(m.task != nil); m.task != nil {
			k.word(m.task.ID)
			k.word(string(m.task.State))
		}
	}
}

// request stands for the late request: what it would do, and whether it still could.
func (k *key) request(s *small) {
	request := s.late
	k.bits(request.written == s.written)
	action, of := request.action, request.seen
	if left, ok := action.(decide.CleanLeft); ok {
		action, of = left.Action, *left.Of
	}
	k.word(fmt.Sprintf("%T", action))
	r := of.Record
	if r != nil && r.Point != nil {
		k.number(r.Point.Number)
	}
	switch a := action.(type) {
	case decide.Save:
		if request.written == s.written {
			k.record(a.Record)
		}
	case decide.BeginPoint:
		k.bits(of.FailedOver.Equal(s.failover.began))
	case decide.DropVersion:
		k.name(a.Name)
		k.name(string(a.UID))
	case decide.MakeMover:
		k.word(string(a.Role))
	case decide.StartMover:
		k.word(string(a.Role))
	case decide.DropMover:
		k.word(string(a.Role))
	case decide.DropStray:
		k.name(a.Name)
	case decide.Start:
		k.word(string(a.Task.Kind))
	case decide.DropClone:
		k.name(string(of.Claims[0].Clone.UID))
	case decide.DropSnapshot:
		k.name(string(of.Claims[0].Snapshot.UID))
	case decide.DropHead:
		k.name(string(of.Claims[0].Head.UID))
	case decide.DropSlot:
		k.name(string(of.Claims[0].Slot.UID))
	case decide.TakeSeal, decide.Unseal:
		if b := s.west.claimOf(r.Head.Name); s.slots && b != nil {
			k.bits(b.uid == of.Claims[0].Head.UID, b.marks == request.marks)
		}
	}
}
