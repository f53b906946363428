package decide_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

// This file visits each state of a small world that can be reached, breadth first, with one fault on the way there, whichever and whenever.
// From each state the replica must come to a new version once nothing goes wrong any more. The random world of world_test.go has many
// faults, and not all of their orders.

func TestEachStateOfASmallReplicaIsSound(t *testing.T) {
	for _, slots := range []bool{false, true} {
		t.Run(map[bool]string{false: "snapshots", true: "slots"}[slots], func(t *testing.T) { explore(t, newSmall(1, slots)) })
	}
}

func explore(t *testing.T, first *small) {
	x := &exploration{t: t, visited: map[state]bool{}, sound: map[state]bool{}, ends: map[string]int{}}
	x.explore(first)
	t.Logf("%d states, and %d ways from one to another, with faults on the way there: %d", len(x.nodes), x.edges, first.faults)
	for _, end := range []string{"a version", "what is said", "the end"} {
		require.Positive(t, x.ends[end], "no way without faults comes to %s", end)
	}
}

// state stands for one.
type state [16]byte

// exploration is what is known of a small world.
type exploration struct {
	t *testing.T
	// visited are the states that were visited, with how much may still go wrong. sound are those from which all goes well in the end.
	visited, sound map[state]bool
	// nodes are the visited ones in their order: how each was come to. edges counts the ways from one to another.
	nodes []node
	edges int
	// ends counts how the walks without faults ended.
	ends map[string]int
	keys key
}

type node struct {
	from int32
	by   string
}

type todo struct {
	at int32
	s  *small
}

func (x *exploration) of(s *small, faults int) (id state) {
	sum := sha256.Sum256(append(s.key(&x.keys), byte(faults)))
	copy(id[:], sum[:])
	return id
}

// explore visits all that can be reached from a state.
func (x *exploration) explore(first *small) {
	x.visited[x.of(first, first.faults)] = true
	x.nodes = append(x.nodes, node{-1, "the beginning"})
	for queue := []todo{{0, first}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		queue[0] = todo{}
		x.guarded(at.at, "", func() { x.mustEndWell(at) })
		visit := func(by string, next *small) {
			x.edges++
			id := x.of(next, next.faults)
			if x.visited[id] {
				return
			}
			x.visited[id] = true
			x.nodes = append(x.nodes, node{at.at, by})
			queue = append(queue, todo{int32(len(x.nodes) - 1), next})
		}
		x.guarded(at.at, "home's step", func() { at.s.homeSteps(visit) })
		for _, some := range [][]happening{goesOn, healing, failing} {
			for i := range some {
				its := &some[i]
				if its.fault && at.s.faults == 0 {
					continue
				}
				next := at.s.clone()
				x.guarded(at.at, its.name, func() {
					if its.do(next) {
						if its.fault {
							next.faults--
						}
						visit(its.name, next)
					}
				})
			}
		}
	}
}

// mustEndWell walks on from a state without anything that goes wrong. A new version must be sealed, or it must be said what keeps that from
// happening, or the replica must end.
func (x *exploration) mustEndWell(at todo) {
	s, steps := at.s.clone(), []string{}
	s.seals = 0
	walked, said := map[state]bool{}, decide.Step{}
	defer func() {
		if why := recover(); why != nil {
			panic(violation(fmt.Sprintf("%v\nafter all goes well:\n  %s", why, strings.Join(steps[:min(len(steps), 150)], "\n  "))))
		}
	}()
	for {
		id := x.of(s, 0)
		switch {
		case x.sound[id]:
		case s.seals > 0:
			x.ends["a version"]++
		case walked[id]:
			must(s.mayStop(said), "it gets no further: %q %s", said.Reason, said.Say)
			x.ends["what is said"]++
		default:
			must(len(walked) < 2000, "it goes on and on")
			walked[id] = true
			if by, step := s.goOn(); !step.Over {
				if steps = append(steps, by); by != "" && step.Action == nil && step.Say != "" {
					said = step
				}
				continue
			}
			x.ends["the end"]++
		}
		break
	}
	for id := range walked {
		x.sound[id] = true
	}
}

// goOn is the next thing that happens where nothing goes wrong. It returns what that is, and the step of home if it is that.
func (s *small) goOn() (by string, step decide.Step) {
	for _, some := range [][]happening{healing, goesOn} {
		for i := range some {
			if some[i].do(s) {
				return some[i].name, decide.Step{}
			}
		}
	}
	step, request := s.step()
	switch {
	case request != nil:
		s.take(request, false)
	case !step.Over:
		s.pass()
	}
	return nameOf(step), step
}

// mayStop says whether a replica may make no versions any more because of what users wish, or have to do.
func (s *small) mayStop(step decide.Step) bool {
	switch step.Reason {
	case decide.Paused:
		return s.replica.paused && !s.replica.deleted
	case decide.ClaimGone:
		return (s.claim.gone || s.claim.uid != smallUID) && !s.replica.deleted
	case decide.PointFailed:
		// Somebody had deleted the head that home knows when it was made once more.
		head := s.west.claimOf(s.record.Head.Name)
		return head != nil && head.uid != s.record.Head.UID && strings.Contains(step.Say, "remove it there")
	}
	return false
}

// guarded does something, and tells what led to it if that violates what must hold.
func (x *exploration) guarded(at int32, by string, do func()) {
	defer func() {
		why := recover()
		if why == nil {
			return
		}
		if _, ok := why.(violation); !ok {
			panic(why)
		}
		var trace []string
		if by != "" {
			trace = append(trace, by)
		}
		for ; at >= 0; at = x.nodes[at].from {
			trace = append(trace, x.nodes[at].by)
		}
		slices.Reverse(trace)
		require.Fail(x.t, fmt.Sprint(why), "it came to that by:\n  %s", strings.Join(trace, "\n  "))
	}()
	do()
}
