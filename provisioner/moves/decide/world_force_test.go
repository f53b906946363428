package decide_test

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const (
	// grace is that of all pods, in seconds.
	grace = 60
	// margin is what a move gives nodes beyond that, and more than they take.
	margin = 8 * time.Second
)

// homeNode is where all pods run whose data is at home.
var homeNode = record.Node{Cluster: keys.Home, Name: "home-1"}

// forced is what there is of pods that were deleted by force, and of their node.
type forced struct {
	// silent: the node is not ready.
	silent bool
	// running are those that go on writing.
	running []*straggler
	// unended and ended are what a watch has seen.
	unended []record.Pod
	ended   map[types.UID]bool
	happens int
}

// straggler runs on for a time in which its node is ready.
type straggler struct{ left time.Duration }

// node is where all pods run whose data is at the source.
func (w *world) node() record.Node {
	if w.within {
		return record.Node{Cluster: "west", Name: "west-1"}
	}
	return homeNode
}

func (w *world) writerOf(p *pod) record.Pod {
	known := record.Pod{UID: p.UID, Name: p.Name, Node: w.node().Name, Grace: grace}
	if w.within {
		known.Cluster = "west"
	}
	return known
}

// reading says whether a pod runs on a node of the source.
func (w *world) reading(p *pod) bool { return p.Bound && p.at == record.Source }

// unseen says whether nothing is seen of the nodes of the source now.
func (w *world) unseen() bool { return w.within && w.down[record.Source] }

// seeForced adds what is known of such pods to an observation.
func (w *world) seeForced(o *decide.Observation) {
	o.Margin, o.Ended, o.Away = margin, w.forced.ended, map[record.Node]string{}
	o.Unended = slices.Clone(w.forced.unended)
	for _, p := range w.pods {
		if w.reading(p) && !w.unseen() {
			o.Users, o.Writers = append(o.Users, w.node()), append(o.Writers, w.writerOf(p))
		}
	}
	if w.forced.silent || w.unseen() && w.r.IntN(2) == 0 {
		o.Away[w.node()] = "the node is not ready"
	}
}

// goneWell is a pod whose node has ended it.
func (w *world) goneWell(p *pod) {
	if w.reading(p) && !w.unseen() && (w.calm || w.r.IntN(10) > 0) {
		w.forced.ended[p.UID] = true
	}
}

// forcedLive is somebody who deletes pods by force, and those that run on.
func (w *world) forcedLive(passed time.Duration, chance func(int) bool) {
	if w.forced.ended == nil {
		w.forced.ended = map[types.UID]bool{}
	}
	if w.forced.silent {
		w.forced.silent = !w.calm && !chance(10)
	} else {
		w.forced.silent = !w.calm && chance(2)
	}
	w.forced.running = slices.DeleteFunc(w.forced.running, func(s *straggler) bool {
		if !w.forced.silent {
			s.left -= passed
		}
		return s.left <= 0
	})
	for range w.forced.running {
		// Seldom, or the comparison would always tell.
		if !chance(15) {
			continue
		}
		for i, c := range w.claims {
			if c.at[record.Source].backing == nil {
				continue
			}
			w.truth[i]++
			c.at[record.Source].content = w.truth[i]
		}
	}
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool {
		if w.calm || !w.reading(p) || w.unseen() || !p.Leaving && !chance(10) || !chance(10) {
			return false
		}
		w.log = append(w.log, "somebody deletes a pod by force")
		// Its node takes a while to hear of that.
		w.forced.running = append(w.forced.running, &straggler{left: time.Duration(w.r.IntN(int(grace*time.Second + margin/2)))})
		w.forced.unended = append(w.forced.unended, w.writerOf(p))
		w.forced.happens++
		return true
	})
	if r := w.decoded(); r != nil && !w.calm && chance(5) {
		// The provisioner is started anew, and knows only what is in its record.
		w.forced.ended = map[types.UID]bool{}
		w.forced.unended = slices.DeleteFunc(w.forced.unended, func(pod record.Pod) bool {
			return slices.ContainsFunc(r.Pods, func(known record.Pod) bool { return known.UID == pod.UID })
		})
	}
}

// settle is what the controller does once a record no longer has pods.
func (w *world) settle(next *record.Record) {
	before := w.decoded()
	if before == nil {
		return
	}
	w.forced.unended = slices.DeleteFunc(w.forced.unended, func(pod record.Pod) bool {
		same := func(known record.Pod) bool { return known.UID == pod.UID }
		return slices.ContainsFunc(before.Pods, same) && !slices.ContainsFunc(next.Pods, same)
	})
}
