package decide_test

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has the state of a small world of which each state that can be reached is visited: see explore_test.go for how,
// smallhome_test.go for what home sees and does in it, smallevents_test.go for what else happens, and smallchecks_test.go for what must
// hold. It is a value, so that one can go on from it in several ways.

// small is one claim in cluster east, its standby in cluster west, and home.
type small struct {
	// now is what home's clock says.
	now time.Time
	// faults is how many more things may go wrong.
	faults int
	// slots says that the standby has no snapshots.
	slots bool

	// replica is the VolumeReplica. record is what home has written, and is never changed; written counts how often it was.
	replica smallReplica
	record  *record.Record
	written int
	memory  smallMemory
	// late is a request that has not come to its API server yet, or comes there once more.
	late *smallRequest

	claim      smallClaim
	failover   smallFailover
	east, west smallCluster
	// drill is the name of the version that a drill makes a claim of.
	drill string
	uids  int
	// newest is what the application has written last, inEast what the real claim in east has, and cuts are what was made
	// of the snapshot of a point's source had, by number.
	newest, inEast smallContent
	cuts           []smallCut
	// seals counts the versions that were sealed. hadVersion says that one was, and nobody has deleted one since.
	seals              int
	hadVersion, jumped bool
}

// smallContent is what a volume has: how much the application has written, as a number that grows. Each primary begins with another
// thousand.
type smallContent int

const (
	torn    smallContent = -1
	anEpoch              = 1000
	aTick                = 61 * time.Minute
	aJump                = 31 * 24 * time.Hour
)

func (c smallContent) epoch() int { return int(c) / anEpoch }

func (c smallContent) String() string { return strconv.Itoa(int(c)) }

// smallReplica is the VolumeReplica; it is gone once it is deleted and has no finalizer.
type smallReplica struct{ finalizer, paused, deleted bool }

func (r smallReplica) isGone() bool { return r.deleted && !r.finalizer }

// smallMemory is what the process of home remembers. Zero times are unknown.
type smallMemory struct {
	refused            decide.Refusal
	refusedAt, reached time.Time
	copyOf             int64
	advanced           time.Time
	cleared            bool
	kept               []string
}

// smallRequest is a write that home has decided on from what it saw.
type smallRequest struct {
	seen    decide.Observation
	action  decide.Action
	written int
	// marks is how often the claim was changed that the request is for, where it changes one that it has seen.
	marks int
}

// smallClaim is the virtual claim.
type smallClaim struct {
	gone bool
	// uid is its UID, at the cluster that has its data, and real the UID of its real claim in east.
	uid  types.UID
	at   string
	real types.UID
}

// smallFailover is a failover of the claim to a version.
type smallFailover struct {
	stage  failoverStage
	chosen record.Version
	// began is when it began.
	began time.Time
	// seen says that home has looked at the replica since. The move of a failover and one that brings the claim back take longer than that.
	seen bool
}

type failoverStage int

const (
	noFailover failoverStage = iota
	// chosenOne: it has read which versions there are, and the replica does not know of it.
	chosenOne
	// beganOne: home holds the claim, and the volume is not made yet.
	beganOne
	// madeOne: the volume is made, and not in use.
	madeOne
	// committed: the claim has it, and is still held; usedOne: it is not held any more, and the source is kept.
	committed
	usedOne
	// returning: a move brings it back to east.
	returning
)

// holds says whether a move holds the claim.
func (f smallFailover) holds() bool {
	return f.stage == beganOne || f.stage == madeOne || f.stage == committed || f.stage == returning
}

type smallCut struct {
	number int64
	has    smallContent
}

// smallCluster is a cluster and what is there of the replica.
type smallCluster struct {
	// away says that it does not answer, noClass that no snapshot can be taken, full that a quota lets nothing be made, and keeps that its
	// owner lets no version go.
	away, noClass, full, keeps bool
	snaps                      []smallSnap
	claims                     []smallReal
	movers                     []smallMover
}

type smallSnap struct {
	name string
	uid  types.UID
	// of is the real claim whose volume it was taken of, has what that had.
	of types.UID
	// number is that of the point that it was taken for, claim the name of the real claim, and late says that the request came late.
	number               int64
	claim                string
	has                  smallContent
	taken, leaving, late bool
}

type smallReal struct {
	name, from string
	uid        types.UID
	has        smallContent
	// volume says that it has a volume. mark is what it says of the version that it has, with slots, and marks counts changes of it.
	volume, leaving, late bool
	mark                  string
	marks                 int
	// taken says that a failover has given it to the claim.
	taken bool
}

type smallMover struct {
	name   string
	number int64
	role   moverapi.Role
	claim  string
	// running says that it has its volume, whether it is to end or not.
	started, running, ended, leaving, late bool
	task                                   *moverapi.TaskStatus
}

func newSmall(faults int, slots bool) *small {
	s := &small{now: noon, faults: faults, slots: slots, newest: 1, inEast: 1, claim: smallClaim{uid: smallUID, at: "east", real: "s0"}}
	s.memory.reached = s.now
	return s
}

const smallUID = types.UID("0f7b153b-4645-44d9-9d0e-f64b2f68c8b0")

// clone returns a state that may be changed.
func (s *small) clone() *small {
	next := *s
	next.memory.kept, next.cuts = slices.Clone(s.memory.kept), slices.Clone(s.cuts)
	next.east, next.west = s.east.clone(), s.west.clone()
	return &next
}

func (c smallCluster) clone() smallCluster {
	c.snaps, c.claims, c.movers = slices.Clone(c.snaps), slices.Clone(c.claims), slices.Clone(c.movers)
	return c
}

func (s *small) uid() types.UID {
	s.uids++
	return types.UID("u" + strconv.Itoa(s.uids))
}

func (c *smallCluster) snap(name string) *smallSnap {
	for i := range c.snaps {
		if c.snaps[i].name == name {
			return &c.snaps[i]
		}
	}
	return nil
}

func (c *smallCluster) claimOf(name string) *smallReal {
	for i := range c.claims {
		if c.claims[i].name == name {
			return &c.claims[i]
		}
	}
	return nil
}

func (c *smallCluster) mover(name string) *smallMover {
	for i := range c.movers {
		if c.movers[i].name == name {
			return &c.movers[i]
		}
	}
	return nil
}

// isUsed says whether a mover has a claim.
func (c *smallCluster) isUsed(claim string) bool {
	return slices.ContainsFunc(c.movers, func(m smallMover) bool { return m.claim == claim })
}
