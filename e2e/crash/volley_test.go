package crash

import (
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
	r := request{verb: "patch", resource: "persistentvolumeclaims"}
	for fault, verdicts := range map[Fault][]verdict{
		// What was refused is asked again, and gets through.
		Broken: {strike, pass, strike, pass, pass},
		Lost:   {strike, strike, pass, pass, pass},
	} {
		c := newCase(&Flow{Name: "f", Moves: true}, fault, Call{}, "crash-abcdefgh")
		c.Volley, c.moving.phase = []Call{first, second, at("Commit", "patch", "claim", 1)}, "Fence"
		c.act(nil)
		for i, want := range verdicts {
			assert.Equal(t, want, c.enter(1, r, at("", "patch", "claim", 0)), "%s, request %d", fault, i)
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
		at("Retain", "update", "record", 1),
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
	assert.ElementsMatch(t, []Call{calls[3], calls[4]}, planned[KillSource], "where movers run")
	assert.Len(t, MoveFaults(), len(moves), "each fault is met")
}
