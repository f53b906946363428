package decide_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

const (
	// notice is how long home needs to see that a cluster is away or back.
	notice = 5 * time.Second
	// rest is how long nothing must be done for a flow that has ended, patient how long
	// it may take to end after west is back.
	rest, patient = 10 * time.Second, 5 * time.Minute
)

// outage is one run of a flow.
type outage struct {
	*world
	t    *testing.T
	flow outageFlow
	// step is the number of the step at which west goes away, -1 for none; cut how many of
	// its requests are carried out before. With second, west goes away so long after the act
	// instead.
	step, cut int
	second    time.Duration
	// early: west is away, and home knows, when the user acts.
	early  bool
	length time.Duration

	acted, begun, back time.Time
	// real is the real volume at the act of a flow that is served before.
	real types.UID
	// steps are those since the act.
	steps []decide.Step
	// worked is when the last step was taken, met: the step made that many requests.
	worked time.Time
	met    bool
}

// play lives through one run, and fails where it does not end well.
func play(t *testing.T, flow outageFlow, o outage) outage {
	t.Helper()
	w := newWorld(1)
	x := o
	x.world, x.t, x.flow = w, t, flow
	w.Rand = rand.New(rand.NewPCG(7, 7))
	w.faulty = false
	for _, s := range w.sites {
		s.skew = 0
	}
	w.base.Class.Parameters = map[string]string{keys.RemoteClass: flow.real, keys.LocalClass: "now", keys.Carry: "team"}
	w.base.Class.ReclaimPolicy, w.retained = nil, false
	if flow.retained {
		retain(&w.base)
		w.retained = true
	}
	w.sites["west"].stuck = flow.stuck
	if flow.from != nil {
		flow.from(&w.base)
	}
	w.selects("west-1")
	w.refresh()
	for !x.done() {
		x.tick()
	}
	return x
}

// done says whether the run is over.
func (x *outage) done() bool {
	x.t.Helper()
	wrong := x.flow.want(x.world)
	since := x.worked
	for _, at := range []time.Time{x.acted, x.back} {
		if at.After(since) {
			since = at
		}
	}
	planned := x.step >= 0 || x.second >= 0 || x.early
	if x.flow.served && wrong == "" && !x.acted.IsZero() && x.sites["west"].real != nil && x.sites["west"].real.UID != x.real {
		wrong = "the real volume is another"
	}
	resting := !x.acted.IsZero() && x.now.Sub(since) >= rest
	switch {
	case x.made > x.flow.most:
		require.Fail(x.t, "too many backing claims were made", x.about(wrong))
	case resting && wrong == "" && (!planned || !x.back.IsZero()):
		return true
	case !x.acted.IsZero() && x.now.Sub(since) > patient && (x.back.IsZero() != planned):
		require.Fail(x.t, "it does not end well", x.about(wrong))
	case x.now.Sub(now) > time.Hour:
		require.Fail(x.t, "it does not end", x.about(wrong))
	}
	return false
}

func (x *outage) about(wrong string) string {
	return fmt.Sprintf("%s, away for %v from step %d on, after %d of its requests, or after %v: %s; told %s\n%s",
		x.flow.name, x.length, x.step+1, x.cut, x.second, wrong, x.told, strings.Join(x.trace, "\n"))
}

// tick lets a moment pass.
func (x *outage) tick() {
	moment := time.Second
	if !x.begun.IsZero() && x.back.IsZero() && x.now.Sub(x.worked) > 10*time.Second && x.length-x.now.Sub(x.begun) > 10*time.Second {
		// Nobody does anything.
		moment = 5 * time.Second
	}
	x.now = x.now.Add(moment)
	x.turn()
	home := x.sites[keys.Home]
	x.schedule(home)
	x.controllers(home)
	for _, id := range []string{keys.Home, "west", "east"} {
		x.provision(x.sites[id])
	}
	x.pod(home)
	if x.flow.play != nil && !x.acted.IsZero() {
		x.flow.play(x.world)
	}
	x.refresh()
	if x.acted.IsZero() && x.ready() {
		x.acted = x.now
		if x.flow.served {
			x.real = x.sites["west"].real.UID
		}
		if x.early {
			x.leave()
			west := x.sites["west"]
			west.away, west.noticed, west.since, x.met = true, true, x.now, true
		}
		if x.flow.act != nil {
			x.flow.act(x.world)
			x.refresh()
		}
	}
	for steps := 0; x.takeStep(); steps++ {
		require.Less(x.t, steps, 20, "it does not come to rest: %s", x.about(""))
		x.refresh()
	}
	x.store()
	x.refresh()
}

// ready says whether the user may act.
func (x *outage) ready() bool {
	switch {
	case x.flow.served:
		return x.served("west") == "" && decide.Next(x.observe()).Verb == decide.Idle
	case x.flow.stuck:
		return x.sites["west"].backing != nil
	}
	return true
}

// turn has west go and come, and home notice that.
func (x *outage) turn() {
	west := x.sites["west"]
	if x.second >= 0 && x.begun.IsZero() && !x.acted.IsZero() && x.now.Sub(x.acted) >= x.second {
		x.leave()
		west.away, x.met = true, true
	}
	if x.begun.IsZero() {
		return
	}
	if x.back.IsZero() && x.now.Sub(x.begun) >= x.length {
		x.arrive()
	}
	gone := x.back.IsZero()
	if gone && !west.noticed && x.now.Sub(x.begun) >= notice || !gone && west.noticed && x.now.Sub(x.back) >= notice {
		west.noticed, west.since = gone, x.now
	}
}

func (x *outage) leave() {
	x.begun = x.now
	x.trace = append(x.trace, x.now.Format(time.TimeOnly)+" west is away")
}

func (x *outage) arrive() {
	home, wrong := x.sites[keys.Home], x.flow.want(x.world)
	// A claim without a volume, or a volume whose claim is gone: else it is served well.
	waits := (home.claim == nil) != (home.volume == nil)
	if x.length >= 30*time.Second && waits && wrong != "" && x.told == "" {
		require.Fail(x.t, "the user is not told what is waited for", x.about(wrong))
	}
	x.sites["west"].away = false
	x.back = x.now
	x.trace = append(x.trace, x.now.Format(time.TimeOnly)+" west is back")
}

// takeStep takes the next step, and says whether another one may follow at once.
func (x *outage) takeStep() bool {
	o := x.observe()
	step := decide.Next(o)
	if broken := harm(o, step); broken != "" {
		require.Fail(x.t, broken, x.about(fmt.Sprintf("step %+v", step)))
	}
	switch c := x.sites[keys.Home].claim; {
	case step.Tell != nil:
		x.told = step.Tell.Reason
	case c != nil && c.Annotations[keys.Refused] != "" && c.Annotations[keys.SelectedNode] == "":
		// It was told when the last place refused the claim.
	default:
		x.told = ""
	}
	if step.Verb == decide.Idle {
		return false
	}
	x.trace = append(x.trace, fmt.Sprintf("%s %s %s", x.now.Format(time.TimeOnly), step.Verb, step.Cluster))
	strikes := !x.acted.IsZero() && x.begun.IsZero() && x.step == len(x.steps)
	if strikes {
		x.leave()
		x.cutting, x.world.cut = true, x.cut
	}
	if !x.acted.IsZero() {
		x.steps, x.worked = append(x.steps, step), x.now
	}
	data, had := x.data(), x.claims()
	err := x.act(o, step)
	x.lost(x.t, 1, data)
	if now := x.claims(); now > had && now > 1 {
		require.Fail(x.t, "a second backing claim that may hold data", x.about(""))
	}
	for _, s := range x.sites {
		// The API server itself does that.
		if b := s.backing; b != nil && b.DeletionTimestamp != nil && len(b.Finalizers) == 0 {
			s.backing = nil
		}
	}
	if strikes {
		// A step at home takes none of its requests there.
		x.met = x.sites["west"].away || x.cut == 0
		x.sites["west"].away, x.cutting = true, false
		if x.length == 0 {
			x.arrive()
		}
	}
	// What is not gone yet is asked for again later.
	return err == nil && (step.Verb != decide.Confirm || x.gone)
}
