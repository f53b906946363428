// Package podlease is what home and the remote agent agree on so that home may take its pods in a silent remote cluster for ended.
//
// Home asks for a lease of some length (Ask), on the Lease where it keeps its mark, and each renewal of the mark is a heartbeat. The agent
// promises what it was asked for, in the status of the HomeCluster (Watch). Once it has not seen the mark change for half of the length it
// ends home's pods that use claims, by ordinary deletion; the other half is for an agent that starts anew and counts anew. Home waits for
// the whole length, the grace period of the pods and a margin, from the last heartbeat that it may have sent (Silence). Neither side reads
// the clock of the other one. Nothing of this holds if no agent works there, or if a node there does not end its pods.
//
// The package is pure.
package podlease

import (
	"encoding/json"
	"fmt"
	"time"
)

// Least and Most bound the length of a lease.
const (
	Least = time.Minute
	Most  = 24 * time.Hour
)

// maxRequest bounds what a remote cluster may say.
const maxRequest = 1 << 52

// Ask is a lease that home asks for, and that an agent promises.
type Ask struct {
	// Request is another number in each ask of one home, so that a promise is not taken for that of a later ask.
	Request int64 `json:"request"`
	// Seconds is the length of the lease; 0: none is asked for.
	Seconds int64 `json:"seconds"`
}

// Length is how long after home's last heartbeat the pods have been told to end.
func (a Ask) Length() time.Duration { return time.Duration(a.Seconds) * time.Second }

// None says that no lease is asked for.
func (a Ask) None() bool { return a.Seconds == 0 }

// Encode returns the ask as the text of an annotation.
func (a Ask) Encode() (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode pod lease: %w", err)
	}
	return string(text), nil
}

// Parse reads the text of an annotation. What is no lease asks for none.
func Parse(text string) Ask {
	var a Ask
	if len(text) > 256 || json.Unmarshal([]byte(text), &a) != nil || a.Length() < Least || a.Seconds > int64(Most/time.Second) {
		return Ask{}
	}
	return a
}

// State is whether the pods of a home cluster may run in a remote one.
type State string

// The states.
const (
	// None: home asks for no lease.
	None State = "None"
	// Listening: this process has not listened for long enough. It neither makes pods nor ends them.
	Listening State = "Listening"
	// Held: home's mark has changed a short time ago.
	Held State = "Held"
	// Lapsed: it has not, so pods that use claims are ended.
	Lapsed State = "Lapsed"
)

// Watch is what one process of an agent has seen of a home cluster. The zero value has seen nothing. Times are of one clock that is never
// set.
type Watch struct {
	// Ask is the lease that was asked for last.
	Ask Ask

	mark, text     string
	began, changed time.Time
}

// See returns the watch after the Lease of home was seen, with the texts of its annotations. A Lease that was made anew has neither: that
// takes nothing back.
func (w Watch) See(mark, text string, now time.Time) Watch {
	switch {
	case w.began.IsZero():
		// This Lease may be an old one.
		return Watch{Ask: Parse(text), mark: mark, text: text, began: now}
	case mark == w.mark && text == w.text, mark == "" && text == "":
		return w
	}
	if text != "" {
		w.Ask = Parse(text)
	}
	w.mark, w.text, w.changed = mark, text, now
	return w
}

// State returns the state now.
func (w Watch) State(now time.Time) State {
	if w.Ask.None() {
		return None
	}
	since, young := w.changed, Held
	if since.IsZero() {
		since, young = w.began, Listening
	}
	if now.Sub(since) < w.Ask.Length()/2 {
		return young
	}
	return Lapsed
}

// Record is what home remembers of the lease in one remote cluster. It is stored before a heartbeat is sent.
type Record struct {
	// Asked is what that heartbeat asks for, Promised what the agent was last seen to promise; none: it promises nothing, or something
	// that home does not ask for any more.
	Asked    Ask `json:"asked"`
	Promised Ask `json:"promised"`
}

// Next returns the record for the next heartbeat. Wanted is the length that an administrator wants; 0: none. Shown is what the agent shows
// now.
func Next(r *Record, wanted time.Duration, shown Ask) *Record {
	seconds := int64(wanted / time.Second)
	if r == nil && seconds == 0 {
		return nil
	}
	if shown.Request < 0 || shown.Request > maxRequest {
		shown = Ask{} // No home asks for that.
	}
	next := Record{}
	if r != nil {
		next = *r
	}
	switch {
	case shown.None():
		next.Promised = Ask{}
	case shown == next.Asked:
		next.Promised = shown
	case shown != next.Promised:
		next.Promised = Ask{}
	}
	if r == nil || next.Asked.Seconds != seconds {
		if shown != next.Asked {
			// The change before this one is not confirmed yet. The agent may hold any of three leases from now on, of which two are remembered.
			next.Promised = Ask{}
		}
		// An agent may show what an earlier record asked for, that was lost.
		next.Asked = Ask{Request: max(next.Asked.Request, shown.Request) + 1, Seconds: seconds}
	}
	if next.Asked.None() {
		// Whether that arrives or not, nothing is relied on.
		next.Promised = Ask{}
	}
	return &next
}

// length is how long the agent may wait at most; 0: it has promised nothing. Until it shows the latest lease it may hold either.
func (r *Record) length() time.Duration {
	if r == nil || r.Promised.None() || r.Asked.None() {
		return 0
	}
	return max(r.Promised.Length(), r.Asked.Length())
}

// IsPromised says whether the agent was seen to promise a lease that is still asked for.
func (r *Record) IsPromised() bool { return r.length() > 0 }

// Silence is what home knows of a remote cluster that it does not reach. The zero value is that nothing is promised.
type Silence struct {
	// Length is how long the agent may wait at most; 0: it has promised nothing, and Why says so.
	Length time.Duration
	Why    string
	// Quiet is for how long home has certainly sent no heartbeat, by a clock that is never set.
	Quiet time.Duration
}

// Of returns what is known of a cluster with this record that has had no heartbeat for some time.
func Of(r *Record, quiet time.Duration) Silence { return Silence{Length: r.length(), Quiet: quiet} }

// IsPromised says whether there is anything to wait for.
func (s Silence) IsPromised() bool { return s.Length > 0 }

// Left returns for how long home must wait yet for pods with a grace period; 0: they have ended. It is for a lease that is promised.
func (s Silence) Left(grace time.Duration) time.Duration {
	return max(0, s.Length+grace+Margin(s.Length+grace)-s.Quiet)
}

// Margin is how much longer home waits than it counts: for requests under way, for an agent and a kubelet to act, and for clocks that go at
// other speeds.
func Margin(counted time.Duration) time.Duration { return 30*time.Second + counted/100 }
