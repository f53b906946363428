package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has what happens in a small world: home takes its next step, clusters do what they do, and things go wrong.

// happening is one thing that happens. It returns false if it cannot happen now.
type happening struct {
	name string
	// fault says that something goes wrong by it, of which there are only so many.
	fault bool
	do    func(s *small) bool
}

// goesOn is what clusters do by themselves, in the order in which they do where nothing goes wrong.
var goesOn = slices.Concat(requests, ofEast, ofWest, ofCopies)

// step is the next step of home.
func (s *small) step() (decide.Step, *smallRequest) {
	o := s.look()
	step := decide.Next(o)
	if step.Action == nil {
		return step, nil
	}
	request := &smallRequest{seen: o, action: step.Action, written: s.written}
	if len(o.Claims) > 0 && s.record != nil {
		if b := s.west.claimOf(s.record.Head.Name); b != nil {
			request.marks = b.marks
		}
	}
	return step, request
}

// homeSteps returns how home may take its next step, by what happens: the request is taken; or it comes late, while home goes on; or it
// comes once more later. Where there is none time passes.
func (s *small) homeSteps(each func(name string, next *small)) {
	next := s.clone()
	step, request := next.step()
	if request == nil {
		// What takes an hour though nothing is wrong is a fault, too.
		slow := next.record != nil && next.record.Point != nil && !next.isWrong()
		if step.Over || slow && s.faults == 0 {
			return
		}
		if next.pass(); slow {
			next.faults--
		}
		each(nameOf(step), next)
		return
	}
	name := nameOf(step)
	seen := next.clone()
	next.take(request, false)
	each(name, next)
	if s.faults == 0 || s.late != nil {
		return
	}
	seen.faults--
	seen.late = request
	each(name+" comes late", seen)
	switch request.action.(type) {
	case decide.Save, decide.BeginPoint, decide.Begin, decide.Adopt, decide.Leave, decide.Forget:
		// The second one is refused, or does nothing.
	default:
		again := next.clone()
		again.faults--
		again.late = request
		each(name+" comes twice", again)
	}
}

// nameOf says what a step does.
func nameOf(step decide.Step) string {
	switch a := step.Action.(type) {
	case nil:
		return "time passes: " + step.Say
	case decide.Save:
		if a.Record.Point != nil {
			return fmt.Sprintf("Save %s %s", a.Record.Point.Stage, a.Record.Point.Why)
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", step.Action), "decide.")
}

// isWrong says whether something keeps points from being made.
func (s *small) isWrong() bool {
	return s.east.away || s.west.away || s.east.noClass || s.west.noClass || s.east.full || s.west.full || s.west.keeps
}

// pass has an hour pass in which nothing happens.
func (s *small) pass() {
	s.now = s.now.Add(aTick)
	s.memory.kept = nil
}

// requests are what becomes of the request that is late.
var requests = []happening{
	{name: "the late request is taken", do: func(s *small) bool {
		request := s.late
		if request == nil || s.east.away || s.west.away {
			return false
		}
		s.late = nil
		s.take(request, true)
		return true
	}},
}

var ofEast = []happening{
	{name: "snapshot in east is taken", do: func(s *small) bool {
		return s.east.eachSnap(func(snap *smallSnap) bool {
			if snap.taken || snap.leaving || s.east.noClass || s.claim.real == "" {
				return false
			}
			// The application always writes, on both sides.
			s.inEast++
			if s.claim.at == "east" && !s.claim.gone {
				s.newest = s.inEast
			}
			snap.taken, snap.has, snap.of = true, s.inEast, s.claim.real
			return true
		})
	}},
	{name: "mover in east runs", do: func(s *small) bool {
		return s.east.run(func(m *smallMover) bool { return s.east.claimOf(m.claim) != nil })
	}},
	{name: "mover in east is gone", do: func(s *small) bool { return s.east.endMover() }},
	{name: "claim in east is gone", do: func(s *small) bool { return s.east.endClaim() }},
	{name: "snapshot in east is gone", do: func(s *small) bool { return s.east.endSnap() }},
}

var ofWest = []happening{
	{name: "snapshot in west is taken", do: func(s *small) bool {
		return s.west.eachSnap(func(snap *smallSnap) bool {
			head := s.west.claimOf(snap.claim)
			if snap.taken || snap.leaving || s.west.noClass || head == nil || !head.volume {
				return false
			}
			s.checkSeal(snap)
			snap.taken, snap.has, snap.of = true, head.has, head.uid
			return true
		})
	}},
	{name: "mover in west runs", do: func(s *small) bool {
		return s.west.run(func(m *smallMover) bool {
			head := s.west.claimOf(m.claim)
			if head == nil || head.leaving && !head.volume {
				return false
			}
			if head.volume {
				return true
			}
			if head.from != "" {
				// Of a snapshot that is gone no volume is ever made.
				snap := s.west.snap(head.from)
				if snap == nil || !snap.taken {
					return false
				}
				head.has = snap.has
			}
			head.volume = true
			return true
		})
	}},
	{name: "mover in west is gone", do: func(s *small) bool { return s.west.endMover() }},
	{name: "claim in west is gone", do: func(s *small) bool { return s.west.endClaim() }},
	{name: "snapshot in west is gone", do: func(s *small) bool { return s.west.endSnap() }},
}

var ofCopies = []happening{{name: "the movers are done", do: func(s *small) bool {
	reader, head, clone := s.pair()
	if reader == nil || reader.task.State != moverapi.Running {
		return false
	}
	task := *reader.task
	switch task.State = moverapi.Done; task.Kind {
	case moverapi.Prepare:
		task.Prepared = &moverapi.Prepared{Source: []byte(`"s"`)}
	case moverapi.Final:
		if head.has != clone.has {
			s.write(head, clone.has)
		}
	case moverapi.Verify:
		task.Verified = &moverapi.Verified{Equal: head.has == clone.has, SourceRoot: clone.has.String(), TargetRoot: head.has.String()}
	default:
		fail("nobody asks for %s", task.Kind)
	}
	reader.task = &task
	return true
}}}

// pair returns movers that run and reach each other, and what they copy; nil if there are none with a task.
func (s *small) pair() (reader *smallMover, head, clone *smallReal) {
	for i := range s.east.movers {
		reader = &s.east.movers[i]
		if !reader.running || reader.task == nil {
			continue
		}
		for j := range s.west.movers {
			writer := &s.west.movers[j]
			if writer.number == reader.number && writer.running {
				if head, clone = s.west.claimOf(writer.claim), s.east.claimOf(reader.claim); head != nil && clone != nil {
					return reader, head, clone
				}
			}
		}
	}
	return nil, nil, nil
}

// eachSnap does something with the first snapshot with which it can be done.
func (c *smallCluster) eachSnap(do func(*smallSnap) bool) bool {
	for i := range c.snaps {
		if do(&c.snaps[i]) {
			return true
		}
	}
	return false
}

// run has the first mover run that may.
func (c *smallCluster) run(may func(*smallMover) bool) bool {
	for i := range c.movers {
		m := &c.movers[i]
		if m.started && !m.running && !m.ended && !m.leaving && may(m) {
			m.running = true
			return true
		}
	}
	return false
}

// endMover, endClaim and endSnap have what is leaving be gone.
func (c *smallCluster) endMover() bool {
	i := slices.IndexFunc(c.movers, func(m smallMover) bool { return m.leaving })
	if i < 0 {
		return false
	}
	c.movers = slices.Delete(c.movers, i, i+1)
	return true
}

func (c *smallCluster) endClaim() bool {
	i := slices.IndexFunc(c.claims, func(b smallReal) bool { return b.leaving && !c.isUsed(b.name) })
	if i < 0 {
		return false
	}
	c.claims = slices.Delete(c.claims, i, i+1)
	return true
}

func (c *smallCluster) endSnap() bool {
	i := slices.IndexFunc(c.snaps, func(snap smallSnap) bool { return snap.leaving })
	if i < 0 {
		return false
	}
	c.snaps = slices.Delete(c.snaps, i, i+1)
	return true
}

// flag is an event that sets what is so or not.
func flag(name string, fault, to bool, of func(s *small) *bool) happening {
	return happening{name: name, fault: fault, do: func(s *small) bool {
		is := of(s)
		if *is == to {
			return false
		}
		*is = to
		return true
	}}
}

// healing is how what is wrong ends. What users wish is among that but for spec.paused and what was deleted.
var healing = []happening{
	flag("east is back", false, false, func(s *small) *bool { return &s.east.away }),
	flag("west is back", false, false, func(s *small) *bool { return &s.west.away }),
	flag("east has a class again", false, false, func(s *small) *bool { return &s.east.noClass }),
	flag("west has a class again", false, false, func(s *small) *bool { return &s.west.noClass }),
	flag("the quota in east is lifted", false, false, func(s *small) *bool { return &s.east.full }),
	flag("the quota in west is lifted", false, false, func(s *small) *bool { return &s.west.full }),
	flag("the owner of west lets versions go", false, false, func(s *small) *bool { return &s.west.keeps }),
	{name: "the drill is over", do: func(s *small) bool {
		was := s.drill
		s.drill = ""
		return was != ""
	}},
	{name: "the failover goes on", do: func(s *small) bool { return s.failOver() }},
}

// failOver is the next step of a failover, as its move takes it.
func (s *small) failOver() bool {
	f := &s.failover
	switch f.stage {
	case chosenOne:
		f.stage, f.began = beganOne, s.now
	case beganOne:
		if s.west.away {
			return false
		}
		s.makeVersion()
	case madeOne:
		if s.slots {
			for i := range s.west.claims {
				if b := &s.west.claims[i]; b.uid == f.chosen.UID {
					s.checkMade(b.has)
				}
			}
		}
		f.stage, s.claim.at, s.newest = committed, "west", smallContent((s.newest.epoch()+1)*anEpoch)
		s.hadVersion = s.hadVersion && !s.slots // the claim may have got the only one
	case committed:
		f.stage = usedOne
	case usedOne:
		f.stage = returning
	case returning:
		if s.east.away || !f.seen && s.record != nil {
			return false
		}
		s.claim.at, s.claim.real = "east", s.uid()
		s.inEast, s.failover = s.newest, smallFailover{}
	default:
		return false
	}
	return true
}

// makeVersion makes the volume of the version, or takes the slot that has it. Where it is not there the failover goes back.
func (s *small) makeVersion() {
	f := &s.failover
	if !s.slots {
		snap := s.west.snap(f.chosen.Name)
		if snap == nil || snap.uid != f.chosen.UID || snap.leaving {
			s.failover = smallFailover{}
			return
		}
		s.checkMade(snap.has)
		f.stage = madeOne
		return
	}
	for i := range s.west.claims {
		b := &s.west.claims[i]
		if b.uid == f.chosen.UID && !b.leaving && s.record != nil && s.record.Version(f.chosen.Name) != nil {
			s.checkMade(b.has)
			b.taken, f.stage = true, madeOne
			return
		}
	}
	s.failover = smallFailover{}
}

// failing is what goes wrong, or is wished for.
var failing = []happening{
	{name: "home dies", fault: true, do: func(s *small) bool {
		s.memory = smallMemory{reached: s.now}
		return true
	}},
	{name: "home's clock jumps ahead", fault: true, do: func(s *small) bool { return s.jump(aJump) }},
	{name: "home's clock jumps back", fault: true, do: func(s *small) bool { return s.jump(-aJump) }},
	flag("east is away", true, true, func(s *small) *bool { return &s.east.away }),
	flag("west is away", true, true, func(s *small) *bool { return &s.west.away }),
	flag("east has no class of snapshots", true, true, func(s *small) *bool { return &s.east.noClass }),
	flag("west has no class of snapshots", true, true, func(s *small) *bool { return &s.west.noClass }),
	flag("a quota in east is exceeded", true, true, func(s *small) *bool { return &s.east.full }),
	flag("a quota in west is exceeded", true, true, func(s *small) *bool { return &s.west.full }),
	flag("the owner of west keeps versions", true, true, func(s *small) *bool { return &s.west.keeps }),
	flag("spec.paused is set", true, true, func(s *small) *bool { return &s.replica.paused }),
	flag("spec.paused is taken back", false, false, func(s *small) *bool { return &s.replica.paused }),
	flag("the VolumeReplica is deleted", true, true, func(s *small) *bool { return &s.replica.deleted }),
	{name: "a drill begins", fault: true, do: func(s *small) bool {
		if s.slots || s.record == nil || s.record.Newest() == nil || s.drill != "" {
			return false
		}
		s.drill = s.record.Newest().Name
		return true
	}},
	{name: "a failover to the newest version begins", fault: true, do: func(s *small) bool { return s.choose(false) }},
	{name: "a failover to the oldest version begins", fault: true, do: func(s *small) bool { return s.choose(true) }},
	{name: "the failover is aborted", do: func(s *small) bool {
		if s.failover.stage == noFailover || s.failover.stage > madeOne {
			return false
		}
		for i := range s.west.claims {
			s.west.claims[i].taken = s.west.claims[i].taken && s.west.claims[i].uid != s.failover.chosen.UID
		}
		s.failover = smallFailover{}
		return true
	}},
	{name: "the claim is deleted", fault: true, do: func(s *small) bool {
		if s.claim.gone || s.failover.holds() {
			return false
		}
		s.claim.gone, s.claim.real, s.failover = true, "", smallFailover{}
		return true
	}},
	{name: "the claim is made anew", do: func(s *small) bool {
		if !s.claim.gone {
			return false
		}
		s.claim = smallClaim{uid: "1f7b153b-4645-44d9-9d0e-f64b2f68c8b0", at: "east", real: s.uid()}
		s.newest = smallContent((s.newest.epoch() + 1) * anEpoch)
		s.inEast = s.newest
		return true
	}},
	{name: "the movers fail", fault: true, do: func(s *small) bool {
		reader, _, _ := s.pair()
		if reader == nil || reader.task.State != moverapi.Running {
			return false
		}
		task := *reader.task
		task.State, task.Error = moverapi.Failed, "it broke"
		reader.task = &task
		return true
	}},
	{name: "the mover in east ends", fault: true, do: func(s *small) bool { return s.east.endRunning() }},
	{name: "the mover in west ends", fault: true, do: func(s *small) bool { return s.west.endRunning() }},
	{name: "somebody deletes the snapshot in east", fault: true, do: func(s *small) bool { return s.east.deleteSnap() }},
	{name: "somebody deletes the newest snapshot in west", fault: true, do: func(s *small) bool {
		s.hadVersion = false
		return s.west.deleteSnap()
	}},
	{name: "somebody deletes the claim in east", fault: true, do: func(s *small) bool { return s.east.deleteClaim("") }},
	{name: "somebody deletes the head", fault: true, do: func(s *small) bool {
		return s.record != nil && s.west.deleteClaim(s.record.Head.Name)
	}},
	{name: "somebody deletes the slot", fault: true, do: func(s *small) bool {
		s.hadVersion = false
		return s.slots && s.record != nil && s.west.deleteClaim(s.record.Slot.Name)
	}},
}

// jump has somebody set home's clock. What a process remembers of moments follows that, since its clock does not jump; one that is set
// ahead is as one that stood still for so long.
func (s *small) jump(by time.Duration) bool {
	s.now, s.jumped = s.now.Add(by), true
	for _, moment := range []*time.Time{&s.memory.refusedAt, &s.memory.reached, &s.memory.advanced} {
		if by < 0 && !moment.IsZero() {
			*moment = moment.Add(by)
		}
	}
	return true
}

// choose has a failover begin to the newest version, or the oldest one.
func (s *small) choose(oldest bool) bool {
	if s.failover.stage != noFailover || s.claim.gone || s.record == nil || s.claim.uid != s.record.ClaimUID || s.replica.deleted {
		return false
	}
	chosen := s.record.Newest()
	if chosen == nil {
		return false
	}
	if oldest {
		i := slices.IndexFunc(s.record.Sealed, func(v record.Version) bool { return v.Counts() })
		if s.record.Sealed[i].Name == chosen.Name {
			return false
		}
		chosen = &s.record.Sealed[i]
	}
	s.failover = smallFailover{stage: chosenOne, chosen: *chosen}
	return true
}

// endRunning has a mover end though nobody asked for that.
func (c *smallCluster) endRunning() bool {
	for i := range c.movers {
		if m := &c.movers[i]; m.running && !m.leaving {
			m.running, m.ended, m.task = false, true, nil
			return true
		}
	}
	return false
}

// deleteSnap has somebody delete the newest snapshot, and deleteClaim a real claim, of a name if there is one.
func (c *smallCluster) deleteSnap() bool {
	if len(c.snaps) == 0 || c.snaps[len(c.snaps)-1].leaving {
		return false
	}
	c.snaps[len(c.snaps)-1].leaving = true
	return true
}

func (c *smallCluster) deleteClaim(name string) bool {
	i := slices.IndexFunc(c.claims, func(b smallReal) bool { return !b.leaving && !b.taken && (name == "" || b.name == name) })
	if i < 0 {
		return false
	}
	c.claims[i].leaving = true
	return true
}
