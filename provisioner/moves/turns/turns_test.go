package turns_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// waiting returns moves from texts as "namespace/name", each a second younger than the one before.
func waiting(names ...string) (moves []turns.Move) {
	for i, name := range names {
		namespace, name, _ := strings.Cut(name, "/")
		moves = append(moves, turns.Move{UID: types.UID(namespace + "/" + name), Namespace: namespace, Name: name,
			Created: epoch.Add(time.Duration(i) * time.Second)})
	}
	return moves
}

func names(moves []turns.Move) (names []string) {
	for _, move := range moves {
		names = append(names, string(move.UID))
	}
	return names
}

func TestWhichMovesBegin(t *testing.T) {
	many := waiting("a/1", "a/2", "a/3", "a/4", "b/1", "c/1")
	for _, test := range []struct {
		name   string
		limits turns.Limits
		state  turns.State
		want   []string
	}{
		{name: "without a waiting move none begins", limits: turns.Limits{Total: 10, PerNamespace: 3}},
		{name: "all begin where there is room, the oldest first of each namespace in turn", limits: turns.Limits{Total: 10, PerNamespace: 10},
			state: turns.State{Waiting: many}, want: []string{"a/1", "b/1", "c/1", "a/2", "a/3", "a/4"}},
		{name: "one tenant's many moves leave room for another's one", limits: turns.Limits{Total: 3, PerNamespace: 3},
			state: turns.State{Waiting: many}, want: []string{"a/1", "b/1", "c/1"}},
		{name: "no namespace has more than its share, even if there is room", limits: turns.Limits{Total: 10, PerNamespace: 2},
			state: turns.State{Waiting: many}, want: []string{"a/1", "b/1", "c/1", "a/2"}},
		{name: "those under way count", limits: turns.Limits{Total: 4, PerNamespace: 3},
			state: turns.State{Waiting: many, Active: map[string]int{"a": 2, "d": 1}}, want: []string{"a/1"}},
		{name: "more may be under way than a lowered limit allows: then none begins", limits: turns.Limits{Total: 2, PerNamespace: 1},
			state: turns.State{Waiting: many, Active: map[string]int{"d": 5}}},
		{name: "a full namespace does not keep the others", limits: turns.Limits{Total: 4, PerNamespace: 3},
			state: turns.State{Waiting: many, Active: map[string]int{"a": 3}}, want: []string{"b/1"}},
		{name: "the namespace that had its turn longest ago is next, however old the moves of others are",
			limits: turns.Limits{Total: 1, PerNamespace: 1},
			state:  turns.State{Waiting: many, Served: map[string]int64{"a": 7, "b": 5, "c": 6}}, want: []string{"b/1"}},
		{name: "one that never had a turn is before all that had", limits: turns.Limits{Total: 1, PerNamespace: 1},
			state: turns.State{Waiting: many, Served: map[string]int64{"a": 7, "b": 5}}, want: []string{"c/1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			slices.Reverse(test.state.Waiting)
			before := slices.Clone(test.state.Waiting)
			assert.Equal(t, test.want, names(turns.Next(test.limits, test.state)))
			assert.Equal(t, before, test.state.Waiting, "what is given is not changed")
			slices.Reverse(test.state.Waiting)
		})
	}
}

func TestWhereTheOthersStand(t *testing.T) {
	limits := turns.Limits{Total: 10, PerNamespace: 3}
	state := turns.State{Waiting: waiting("a/1", "a/2", "b/1", "b/2"),
		Active: map[string]int{"a": 3, "c": 7}, Served: map[string]int64{"a": 1}}
	var said []string
	for _, place := range turns.Places(limits, state) {
		said = append(said, fmt.Sprintf("%s %d %s", place.Move.UID, place.Position, place.Say(limits)))
	}
	assert.Equal(t, []string{
		"b/1 1 waiting for its turn, with no other one before it: at most 10 moves are under way at once (--max-moves)",
		"a/1 2 waiting for its turn, with no other one of its namespace before it: at most 3 moves of a namespace are under way at once " +
			"(--max-moves-per-namespace)",
		"b/2 3 waiting for its turn, with 2 moves before it: at most 10 moves are under way at once (--max-moves)",
		"a/2 4 waiting for its turn, with 1 move of its namespace before it: at most 3 moves of a namespace are under way at once " +
			"(--max-moves-per-namespace)",
	}, said)

	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("a/%03d", i))
	}
	before := turns.Places(limits, turns.State{Waiting: waiting(many...), Active: map[string]int{"a": 3}})
	after := turns.Places(limits, turns.State{Waiting: waiting(many...)[1:], Active: map[string]int{"a": 3}})
	require.Len(t, before, 500)
	for i, want := range map[int]int{0: 1, 9: 10, 10: 20, 19: 20, 20: 30, 99: 100, 100: 200, 499: 500} {
		assert.Equal(t, want, before[i].Position, i)
	}
	assert.Contains(t, before[50].Say(limits), "with up to 50 moves of its namespace before it")
	changed := 0
	for i, place := range after {
		if place.Position != before[i+1].Position || place.Say(limits) != before[i+1].Say(limits) {
			changed++
		}
	}
	assert.Less(t, changed, 50, "when a move begins, few of those that wait must be told")
}

// TestNobodyWaitsForOneNamespaceTwice lets moves come and end at random.
func TestNobodyWaitsForOneNamespaceTwice(t *testing.T) {
	for seed := range int64(60) {
		random := rand.New(rand.NewSource(seed))
		limits := turns.Limits{Total: 1 + random.Intn(6)}
		limits.PerNamespace = 1 + random.Intn(limits.Total)
		state := turns.State{Active: map[string]int{}, Served: map[string]int64{}}
		turn, made := int64(0), 0
		// passed has, for each namespace that could have begun a move, how often each other one did.
		passed := map[string]map[string]int{}
		for range 200 {
			switch {
			case random.Intn(3) > 0:
				// Namespace a comes far more often than the others.
				namespace := string("aaaaaaabcd"[random.Intn(10)])
				made++
				state.Waiting = append(state.Waiting, turns.Move{UID: types.UID(fmt.Sprint(made)), Namespace: namespace, Name: fmt.Sprint(made),
					Created: epoch.Add(time.Duration(made/5) * time.Second)})
			default:
				for namespace, n := range state.Active {
					if n > 0 {
						state.Active[namespace]--
						break
					}
				}
			}
			for _, move := range turns.Next(limits, state) {
				for _, other := range state.Waiting {
					older := other.Namespace == move.Namespace && other.Created.Before(move.Created)
					if older {
						require.Fail(t, "an older one of its namespace waits", "seed %d", seed)
					}
				}
				for _, other := range []string{"a", "b", "c", "d"} {
					waits := slices.ContainsFunc(state.Waiting, func(m turns.Move) bool { return m.Namespace == other })
					if other == move.Namespace || !waits || state.Active[other] >= limits.PerNamespace {
						continue
					}
					if passed[other] == nil {
						passed[other] = map[string]int{}
					}
					passed[other][move.Namespace]++
					require.LessOrEqual(t, passed[other][move.Namespace], 1, "seed %d: %s began twice before %s, which could", seed, move.Namespace, other)
				}
				delete(passed, move.Namespace)
				state.Waiting = slices.DeleteFunc(state.Waiting, func(m turns.Move) bool { return m.UID == move.UID })
				state.Active[move.Namespace]++
				turn++
				state.Served[move.Namespace] = turn
			}
			total := 0
			for namespace, n := range state.Active {
				require.LessOrEqual(t, n, limits.PerNamespace, "seed %d: %s", seed, namespace)
				total += n
			}
			require.LessOrEqual(t, total, limits.Total, "seed %d", seed)
			for _, move := range state.Waiting {
				if total < limits.Total && state.Active[move.Namespace] < limits.PerNamespace {
					require.Fail(t, "one waits and there is room", "seed %d", seed)
				}
			}
		}
	}
}
