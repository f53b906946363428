package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func recordOf(move types.UID, phase v1alpha1.MovePhase, claims ...types.UID) *record.Record {
	r := &record.Record{UID: move, Name: string(move), Phase: phase}
	for _, uid := range claims {
		r.Claims = append(r.Claims, record.Claim{UID: uid})
	}
	return r
}

func TestAClaimBelongsToOneMoveAtATime(t *testing.T) {
	r := NewRecords()
	assert.Nil(t, r.begin(recordOf("first", v1alpha1.MovePrepare, "a", "b")))
	assert.Equal(t, "first", r.begin(recordOf("second", v1alpha1.MovePrepare, "c", "b")).Name)
	assert.False(t, r.Holds("c"), "nothing is held of a move that does not begin")
	assert.Nil(t, r.begin(recordOf("first", v1alpha1.MovePrepare, "a", "b")), "it may be written again")
	assert.Nil(t, r.begin(recordOf("refused", v1alpha1.MoveFailed, "a")), "one that is over from the start holds nothing")

	r.set("first", recordOf("first", v1alpha1.MoveRetain, "a", "b"))
	assert.False(t, r.Holds("a"), "the claim can be used")
	assert.NotNil(t, r.begin(recordOf("third", v1alpha1.MovePrepare, "a")), "but its source is still kept")
	assert.Equal(t, []types.UID(nil), r.set("first", recordOf("first", v1alpha1.MoveDone, "a", "b")))
	assert.Nil(t, r.begin(recordOf("third", v1alpha1.MovePrepare, "a")))
	assert.Equal(t, []types.UID{"a"}, r.set("third", nil))
}

func recordIn(phase v1alpha1.MovePhase) *record.Record {
	return &record.Record{UID: "m1", Name: "m", Phase: phase, Claims: []record.Claim{{
		Name: "data", UID: "u1",
		Source: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1"}},
		Target: record.Copy{Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data"}},
	}}}
}

func TestWhoTakesTheCopiesOfAMove(t *testing.T) {
	r := NewRecords()
	keeper := recordOf("keeper", v1alpha1.MoveRetain, "a")
	r.set("keeper", keeper)
	assert.Empty(t, r.takerOf("keeper"))
	assert.Same(t, keeper, r.named("", "keeper"))
	taker := recordOf("taker", v1alpha1.MovePrepare, "a")
	taker.Claims[0].Kept = &record.Kept{By: "keeper"}
	r.set("taker", taker)
	assert.EqualValues(t, "taker", r.takerOf("keeper"))
	assert.Same(t, keeper, r.keeperOf(taker))
	assert.Nil(t, r.keeperOf(keeper))
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveRollBack, v1alpha1.MoveDone} {
		back := *taker
		back.Phase = phase
		r.set("taker", &back)
		assert.Empty(t, r.takerOf("keeper"), "one that goes back, or is over, takes no more")
	}
	r.set("keeper", recordOf("keeper", v1alpha1.MoveDone, "a"))
	assert.Nil(t, r.keeperOf(taker))
	assert.Nil(t, r.named("", "keeper"))
}

func TestTheFailoverThatIsUnderWayIsTheLast(t *testing.T) {
	now := time.Now()
	failover := func(name types.UID, phase v1alpha1.MovePhase, began time.Time) *record.Record {
		r := recordOf(name, phase, "a")
		r.Failover, r.Began = &record.Failover{}, map[v1alpha1.MovePhase]time.Time{v1alpha1.MovePrepare: began}
		return r
	}
	r := NewRecords()
	assert.Zero(t, r.FailedOver("a"))
	r.set("first", failover("first", v1alpha1.MoveRetain, now.Add(time.Hour)))
	assert.Equal(t, now.Add(time.Hour), r.FailedOver("a"))
	assert.Zero(t, r.FailedOver("b"))
	r.set("move", recordOf("move", v1alpha1.MovePrepare, "a"))
	assert.Equal(t, now.Add(time.Hour), r.FailedOver("a"), "that is no failover")
	r.set("move", nil)
	r.set("second", failover("second", v1alpha1.MovePrepare, now))
	assert.Equal(t, now, r.FailedOver("a"), "the clock was ahead when the first one began")
}

func TestRegistry(t *testing.T) {
	for phase, want := range map[v1alpha1.MovePhase]struct {
		holds, busy, uses bool
		west, home        int
	}{
		v1alpha1.MovePrepare:   {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveFinalSync: {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveRollBack:  {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveResume:    {holds: true, busy: true, uses: true, home: 1},
		v1alpha1.MoveRetain:    {busy: true, uses: true, home: 1},
		v1alpha1.MoveFinalize:  {busy: true, uses: true, home: 1},
		v1alpha1.MoveDone:      {},
		v1alpha1.MoveAborted:   {},
		v1alpha1.MoveFailed:    {},
	} {
		t.Run(string(phase), func(t *testing.T) {
			r := NewRecords()
			assert.Empty(t, r.set("m1", recordIn(phase)))
			assert.Equal(t, want.holds, r.Holds("u1"))
			assert.False(t, r.Holds("u2"))
			assert.Equal(t, want.busy, r.blocking("m2", "u1") != nil)
			assert.Nil(t, r.blocking("m1", "u1"), "a move is not in its own way")
			assert.Equal(t, want.uses, r.Uses("west", "shop"))
			assert.False(t, r.Uses("west", "other"))
			assert.Equal(t, want.west, r.SpareCopiesIn("west"))
			assert.Equal(t, want.home, r.SpareCopiesIn(keys.Home))
			freed := r.set("m1", nil)
			assert.Equal(t, want.holds, len(freed) == 1, "whoever waits for the claim is told")
			assert.False(t, r.Holds("u1"))
		})
	}
	freed, r := recordIn(v1alpha1.MoveRollBack), NewRecords()
	freed.Freed = true
	r.set("m1", recordIn(v1alpha1.MoveRollBack))
	assert.Equal(t, []types.UID{"u1"}, r.set("m1", freed), "the claim can grow and be moved before all is cleaned up")
	assert.False(t, r.Holds("u1"))
	assert.Nil(t, r.blocking("m2", "u1"))
	assert.Equal(t, 1, r.SpareCopiesIn("west"), "its copy is still there")
	freed.GivenUp = []record.End{record.Target}
	assert.Zero(t, r.SpareCopiesIn("west"), "nobody waits for what was given up")
	assert.False(t, r.Uses("west", "shop"))

	kept := recordIn(v1alpha1.MoveRetain)
	kept.Freed = true
	r.set("m1", kept)
	assert.Nil(t, r.blocking("m2", "u1"), "the claim can be moved again although the copy at the source is kept")
	assert.Equal(t, 1, r.SpareCopiesIn(keys.Home))

	r = NewRecords()
	r.set("m1", recordIn(v1alpha1.MoveResume))
	assert.Equal(t, []types.UID{"u1"}, r.set("m1", recordIn(v1alpha1.MoveRetain)))
}

func TestWhatAMoveKeepsOfAClaim(t *testing.T) {
	r := NewRecords()
	kept := recordIn(v1alpha1.MoveRetain)
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveCommit, v1alpha1.MoveFinalize, v1alpha1.MoveRollBack, v1alpha1.MoveDone} {
		r.set("m1", recordIn(phase))
		_, ok := r.KeptAt("u1", keys.Home)
		assert.False(t, ok, phase)
	}
	r.set("m1", kept)
	ref, ok := r.KeptAt("u1", keys.Home)
	assert.True(t, ok)
	assert.Equal(t, kept.Claims[0].Source.Ref, ref)
	_, ok = r.KeptAt("u1", "west")
	assert.False(t, ok, "the claim has its volume there")
	_, ok = r.KeptAt("u2", keys.Home)
	assert.False(t, ok)
	given := recordIn(v1alpha1.MoveRetain)
	given.GivenUp = []record.End{record.Source}
	r.set("m1", given)
	_, ok = r.KeptAt("u1", keys.Home)
	assert.False(t, ok, "nobody knows what is there")
}
