package podlease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is one home, one agent, and home's pods there. Time goes in steps of a second of a clock that nobody reads; home and the agent have
// clocks of their own, which go at other speeds.
type world struct {
	*rand.Rand
	now time.Duration

	// What home has stored, and what its present process knows.
	record *Record
	beat   time.Duration // by no clock: the last heartbeat that this process may have sent, or its start
	wanted time.Duration
	again  int // in how many seconds somebody corrects what is wanted
	cut    bool
	home   float64 // the speed of its clock
	n      int

	// The API of the remote cluster.
	mark, text string
	shown      Ask
	late       []request

	// The agent.
	watch    Watch
	down     int // for how many seconds yet it does not work
	agent    float64
	restarts int // in this silence

	pods []*pod
}

// request is a heartbeat under way.
type request struct {
	mark, text string
	at         time.Duration
}

// pod runs until it is told to end, and for its grace period then.
type pod struct {
	told bool
	ends time.Duration
}

const grace = 20 * time.Second

func (w *world) agentTime() time.Time {
	return time.Unix(5_000_000, 0).Add(time.Duration(float64(w.now) * w.agent))
}

// send is one renewal of home: it reads, stores, and writes. A request may be lost, or come late, also after its sender has gone.
func (w *world) send(t *testing.T) {
	if w.cut {
		return
	}
	w.record = Next(w.record, w.wanted, w.shown)
	if w.IntN(20) == 0 {
		return // killed before it sends anything
	}
	w.n++
	text := ""
	if w.record != nil {
		text = encoded(t, w.record.Asked)
	}
	w.beat = w.now
	if w.IntN(10) > 0 {
		w.late = append(w.late, request{fmt.Sprint("m", w.n), text, w.now + time.Duration(w.IntN(20))*time.Second})
	}
}

// arrive has requests take effect. One that another has overtaken is a conflict.
func (w *world) arrive() {
	var left []request
	for _, r := range w.late {
		if r.at > w.now {
			left = append(left, r)
			continue
		}
		w.mark, w.text = r.mark, r.text
		left = nil
		w.restarts = 0
	}
	w.late = left
}

// work is what the agent does in a second.
func (w *world) work() {
	if w.down > 0 {
		if w.down--; w.down > 0 {
			return
		}
		w.watch = Watch{}
	}
	w.watch = w.watch.See(w.mark, w.text, w.agentTime())
	if w.IntN(3) > 0 {
		w.shown = w.watch.Ask
	}
	switch w.watch.State(w.agentTime()) {
	case None, Held:
		if w.IntN(4) == 0 && len(w.pods) < 5 {
			w.pods = append(w.pods, &pod{})
		}
	case Lapsed:
		for _, p := range w.pods {
			if !p.told && w.IntN(3) > 0 {
				p.told, p.ends = true, w.now+grace+time.Duration(w.IntN(3))*time.Second
			}
		}
	case Listening:
	}
}

// length is one that somebody wants.
func (w *world) length() time.Duration {
	return []time.Duration{0, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}[w.IntN(5)]
}

// TestNoPodRunsOnceHomeHasWaited has a home that falls silent and comes back, requests that are lost or late, an agent and a provisioner
// that start anew, leases that are changed and taken back, and clocks that go at other speeds.
func TestNoPodRunsOnceHomeHasWaited(t *testing.T) {
	waited, ended, refused := 0, 0, 0
	for seed := range uint64(400) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 5)), wanted: 2 * time.Minute}
		w.home, w.agent = 0.998+0.004*w.Float64(), 0.998+0.004*w.Float64()
		toggles := 0
		for range 4000 {
			w.now += time.Second
			if toggles--; toggles < 0 {
				w.cut, toggles = !w.cut, 10+w.IntN(600)
			}
			switch w.IntN(300) {
			case 0:
				w.wanted, w.again = w.length(), 1+w.IntN(15)
			case 1:
				w.beat = w.now // Another process takes over, and knows what was stored.
			case 2, 3:
				if w.restarts == 0 && w.down == 0 {
					w.restarts, w.down = 1, 1+w.IntN(4)
				}
			}
			if w.again--; w.again == 0 {
				w.wanted = w.length()
				if !w.cut {
					toggles = w.IntN(20) // The silence begins before all of that is shown.
				}
			}
			w.arrive()
			if w.IntN(8) == 0 {
				w.send(t)
			}
			w.work()
			var run []*pod
			for _, p := range w.pods {
				if !p.told || p.ends > w.now {
					run = append(run, p)
				}
			}
			ended += len(w.pods) - len(run)
			w.pods = run
			silence := Of(w.record, time.Duration(float64(w.now-w.beat)*w.home))
			switch {
			case !w.cut:
			case !silence.IsPromised():
				refused++
			case silence.Left(grace) == 0:
				waited++
				require.Empty(t, run, "seed %d: home has waited, and a pod runs", seed)
			}
		}
	}
	require.Greater(t, waited, 1000, "home waits too seldom for that to say anything")
	require.Greater(t, ended, 1000, "too few pods are ended to say anything")
	require.Greater(t, refused, 1000, "a promise is too seldom missing to say anything")
}
