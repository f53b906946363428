package crash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is a call of a kind in a phase.
func at(phase, verb, object string, nth int) Call {
	return Call{Cluster: "home", Verb: verb, Object: object, Nth: nth, Phase: phase}
}

func TestEachCallOfAVolleyMeetsItsFaultOnce(t *testing.T) {
	first, second := at("Fence", "patch", "claim", 1), at("Fence", "patch", "claim", 2)
	for fault, verdicts := range map[Fault][]verdict{
		// What was refused is asked again, and gets through.
		Broken: {strike, pass, strike, pass, pass},
		Lost:   {strike, strike, pass, pass, pass},
	} {
		c := newCase(&Flow{Name: "f", Moves: true}, fault, Call{}, "crash-abcdefgh")
		c.Volley, c.moving.phase = []Call{first, second, at("Commit", "patch", "claim", 1)}, "Fence"
		c.act(nil)
		for i, want := range verdicts {
			assert.Equal(t, want, c.enter(1, true, at("", "patch", "claim", 0)), "%s, request %d", fault, i)
		}
		assert.Equal(t, []Call{at("Commit", "patch", "claim", 1)}, c.again().Volley)
		told := c.outcomes(nil)
		require.Len(t, told, 3)
		assert.True(t, told[1].Met)
		assert.False(t, told[2].Met)
		assert.Equal(t, "Commit", told[2].Phase)
		assert.Equal(t, "f,"+string(fault)+",writes", told[2].Case)
	}
}

func TestAWholeSweepOfMovesMeetsEachCall(t *testing.T) {
	calls := []Call{
		at("Fence", "get", "claim", 1), at("Fence", "get", "claim", 2), at("Fence", "get", "volume", 1), at("Fence", "update", "record", 1),
		at("Fence", "update", "volumemove.status", 1), at("Fence", "update", "volumemove.status", 2), at("Commit", "get", "claim", 1), at("Commit", "create", "event", 1),
		at("Retain", "update", "record", 1), {Cluster: "west", Verb: "get", Object: "shadow", Phase: "Fence", Nth: 1},
	}
	flows := moveFlows()[:1]
	planned := map[Fault][]Call{}
	moves := map[Fault]int{}
	for _, c := range (Options{}).plan(flows, map[string][]Call{flows[0].Name: calls}) {
		moves[c.Fault]++
		planned[c.Fault] = append(planned[c.Fault], c.Volley...)
		if len(c.Volley) == 0 {
			planned[c.Fault] = append(planned[c.Fault], c.Call)
		}
	}
	assert.Equal(t, 2, moves[Broken], "one for the reads, one for the writes")
	assert.Equal(t, 1, moves[Conflict], "a read knows none")
	assert.ElementsMatch(t, append([]Call{calls[0]}, calls[2:]...), planned[Broken], "each read of a phase once")
	assert.ElementsMatch(t, []Call{calls[0], calls[3], calls[4], calls[6], calls[8]}, planned[StopBefore], "each write, and a read of each phase")
	assert.ElementsMatch(t, []Call{calls[3], calls[4], calls[5]}, planned[KillSource], "where movers run, and in the middle of what they do")
	assert.Equal(t, calls[9:], planned[Absent], "where another cluster is asked")
	assert.Len(t, MoveFaults(), len(moves), "each fault is met")
}

func TestAProgramMeetsItsEndAtSeveralCallsOfOneMove(t *testing.T) {
	var calls []Call
	for n := range 2*atMost + 1 {
		calls = append(calls, at("Commit", "update", "record", n+1))
	}
	cases := series(&Flow{Name: "f", Moves: true}, StopBefore, calls)
	require.Len(t, cases, 3, "no move meets it more than %d times", atMost)
	var met []Call
	for _, c := range cases {
		met = append(met, c.Volley...)
	}
	assert.ElementsMatch(t, calls, met, "each call in one of them")
	assert.Equal(t, []Call{calls[0], calls[3], calls[6], calls[9], calls[12]}, cases[0].Volley, "far from each other")

	c := cases[0]
	c.moving.phase = "Commit"
	c.act(nil)
	kind := at("", "update", "record", 0)
	assert.Equal(t, strike, c.enter(1, true, kind))
	assert.Equal(t, refuse, c.enter(1, true, kind), "it is cut off")
	c.revive()
	for n := 1; n < 4; n++ {
		assert.Equal(t, pass, c.enter(1, true, kind), "call %d", n)
	}
	assert.Equal(t, strike, c.enter(1, true, kind), "the fourth, and not that which was asked again")
	assert.True(t, c.isCut())
	assert.Equal(t, []Call{calls[6], calls[9], calls[12]}, c.unmet())

	named := c.again().String()
	assert.Equal(t, "f,stop-before,home/update/record/Commit.7+home/update/record/Commit.10+home/update/record/Commit.13", named)
	read, err := parseCalls(strings.SplitN(named, ",", 3)[2])
	require.NoError(t, err)
	assert.Equal(t, c.unmet(), read)
	_, err = parseCalls("home/update/record/1+none")
	assert.Error(t, err)
}

func TestAMoverThatDidNotRunHasNotMetItsFault(t *testing.T) {
	call := at("PreCopy", "update", "volumemove.status", 2)
	c := newCase(&Flow{Name: "f", Moves: true}, CutStream, Call{}, "crash-abcdefgh")
	c.Volley, c.moving.phase = []Call{call}, "PreCopy"
	c.act(nil)
	kind := at("", "update", "volumemove.status", 0)
	assert.Equal(t, pass, c.enter(1, true, kind))
	assert.Equal(t, strike, c.enter(1, true, kind))
	c.missed(kind)
	assert.Equal(t, []Call{call}, c.unmet())
}

func TestAPhaseThatWasNotRecordedDoesNotCount(t *testing.T) {
	c := newCase(&Flow{Name: "f", Moves: true}, StopBefore, Call{}, "crash-abcdefgh")
	record := at("", "update", "record", 0)
	c.note(record, []byte(`{"phase":"Fence","began":{}}`))
	undo := c.note(record, []byte(`{"phase":"FinalSync","began":{}}`))
	assert.Equal(t, "FinalSync", c.moving.phase)
	undo()
	assert.Equal(t, "Fence", c.moving.phase)

	asked := 0
	c.moving.abort = &abortion{phase: "Fence", object: "volume", ask: func() error { asked++; return nil }}
	for _, call := range []Call{at("", "get", "volume", 0), at("", "update", "claim", 0), at("", "delete", "volume", 0), at("", "delete", "volume", 0)} {
		c.abortAt(call)
	}
	assert.Equal(t, 1, asked, "the user aborts at the first write of the volume, once")
	assert.True(t, c.moving.aborted)
}
