package crash

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Case is one claim, or a few that belong together, in namespaces of its own at
// home and in west, with one fault at one call of a flow, or at each call of a series; or,
// without a fault, to find out which calls there are. It is safe for concurrent use.
type Case struct {
	Flow  *Flow
	Fault Fault
	Call  Call
	// Series are the calls that meet the fault, instead of the one; the first time that
	// each is made.
	Series []Call
	// Namespace is the name of its namespaces, and its name in every message.
	Namespace string

	mu sync.Mutex
	// claims are the UIDs of its claims at home, by name; of those that are gone too.
	claims map[string]types.UID
	// backings and reals are all backing claims and real volumes that ever were.
	backings, reals map[types.UID]string
	met             map[Call]bool
	acted           bool
	counts          map[int]map[Call]int
	calls           []Call
	reached         bool
	cut             bool
	held            *held
	last            time.Time
	before          *View
	moving          moving
	// hurt has a fault of movers happen, and says whether it could; nil where nothing moves.
	hurt    func(fault Fault) bool
	slowest time.Duration
	// command is what an administrator runs, in a flow of the plugin.
	command command
}

func newCase(flow *Flow, fault Fault, call Call, namespace string) *Case {
	return &Case{
		Flow: flow, Fault: fault, Call: call, Namespace: namespace,
		claims: map[string]types.UID{}, backings: map[types.UID]string{}, reals: map[types.UID]string{},
		counts: map[int]map[Call]int{}, met: map[Call]bool{}, last: time.Now(),
	}
}

// String says which case it is, as the flag --case takes it.
func (c *Case) String() string {
	if c.Fault == "" {
		return c.Flow.Name
	}
	if len(c.Series) > 0 {
		return fmt.Sprintf("%s,%s,%s", c.Flow.Name, c.Fault, c.seriesName())
	}
	return fmt.Sprintf("%s,%s,%s", c.Flow.Name, c.Fault, c.Call)
}

// verdict is what becomes of one request.
type verdict int

const (
	pass verdict = iota
	// refuse carries nothing out: the program is cut off.
	refuse
	// meetFault has the case's fault happen.
	meetFault
)

// enter counts a request that came through a gate and says what becomes of it.
// Gate 1 is that of the program that meets the fault.
func (c *Case) enter(gate int, counted bool, call Call) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.Object != "event" {
		c.last = time.Now()
	}
	if !c.acted {
		return pass
	}
	if c.cut && gate == 1 {
		return refuse
	}
	if !counted {
		return pass
	}
	if c.counts[gate] == nil {
		c.counts[gate] = map[Call]int{}
	}
	call.Nth, call.Phase = 0, c.moving.phase
	kind := call
	c.counts[gate][kind]++
	call.Nth = c.counts[gate][kind]
	if gate != 1 {
		return pass
	}
	c.calls = append(c.calls, call)
	if len(c.Series) > 0 {
		return c.enterSeries(gate, kind, call)
	}
	if c.Fault == "" || c.reached || call != c.Call {
		return pass
	}
	c.reached, c.moving.met = true, c.moving.phase
	c.cut = c.Fault.info().kind != endures
	return meetFault
}

// noteUncounted notes a request of a program whose calls do not count.
func (c *Case) noteUncounted(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.Object != "event" {
		c.last = time.Now()
	}
}

// act marks the moment of the user's act.
func (c *Case) act(before *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
	c.acted = true
	c.last = time.Now()
}

// faultMissed takes back that the fault has happened at a call.
func (c *Case) faultMissed(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.Series) == 0 {
		c.reached = false
	}
	// The call was numbered as it was made.
	call.Phase = c.moving.phase
	call.Nth = c.counts[1][Call{Cluster: call.Cluster, Verb: call.Verb, Object: call.Object, Phase: call.Phase}]
	delete(c.met, call)
}

// conclude ends the case: what is asked from now on does not count.
func (c *Case) conclude() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acted, c.cut, c.held = false, false, nil
}

// readmit lets the program that was started again through.
func (c *Case) readmit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}

// hasActed says whether others do their part by now.
func (c *Case) hasActed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acted
}

func (c *Case) noteWait(wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acted {
		c.slowest = max(c.slowest, wait)
	}
}

// isCut says whether the program is cut off.
func (c *Case) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

func (c *Case) faultHappened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached
}

// quiet says how long ago the last call for the case was.
func (c *Case) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last)
}

// made returns the calls of the program that meets the fault, in order.
func (c *Case) made() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// hold keeps a request for later, release takes it; nil if there is none.
func (c *Case) hold(h *held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = h
}

func (c *Case) release() *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held
	c.held = nil
	return h
}

// countEver returns how many backing claims and real volumes there ever were.
func (c *Case) countEver() (backings, reals int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.backings), len(c.reals)
}

func (c *Case) uid(claim string) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[claim]
}
