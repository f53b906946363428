package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Fault is what happens at one call.
type Fault string

// The faults.
const (
	// StopBefore stops the program before its call is carried out, StopAfter
	// after that and before the answer.
	StopBefore Fault = "stop-before"
	StopAfter  Fault = "stop-after"
	// Lost carries the call out and loses the answer. Late answers that the time is
	// up, and carries the call out a moment later. Timeout does not carry it out.
	Lost    Fault = "lost"
	Late    Fault = "late"
	Timeout Fault = "timeout"
	// Conflict, Busy and Broken answer 409, 429 and 500 once.
	Conflict Fault = "conflict"
	Busy     Fault = "busy"
	Broken   Fault = "broken"
	// Takeover cuts the program off before its call is carried out, and a second
	// replica that waits for the lease takes over. TakeoverLate carries the call
	// out after the second replica's first write for the claim.
	Takeover     Fault = "takeover"
	TakeoverLate Fault = "takeover-late"
	// KillSource and KillReceiver kill a mover while the call is on its way, which is
	// carried out.
	KillSource   Fault = "kill-source"
	KillReceiver Fault = "kill-receiver"
	// CutStream ends the connections over which data comes to the mover at the target.
	CutStream Fault = "cut-stream"
	// Absent, Another, Bare and Ending have a remote cluster lie once: that what it is asked
	// for is not there, is another object of that name, has nothing on it, or is being deleted.
	Absent  Fault = "absent"
	Another Fault = "another"
	Bare    Fault = "bare"
	Ending  Fault = "ending"
)

// kind says which faults can be met by one run of the program.
type kind int

const (
	// endures: the program goes on.
	endures kind = iota
	// stops: it is killed and started again.
	stops
	// replaced: a second replica takes over.
	replaced
)

// faultInfo is what is known of a fault.
type faultInfo struct {
	fault Fault
	says  string
	kind  kind
	// writes is true for a fault that only a write can meet, events for one that
	// an event can meet.
	writes, events bool
	// code is the answer, 0 for none.
	code int
	// carried says whether the call is carried out at once.
	carried bool
	// mover is true for a fault of a mover, which only a move has.
	mover bool
	// lie, if not nil, is how an answer is made untrue.
	lie lie
}

// comes says whether a call that meets the fault is carried out, be it later.
func (f faultInfo) comes() bool {
	return f.carried || f.mover || f.lie != nil || f.fault == Late || f.fault == TakeoverLate
}

var faults = []faultInfo{
	{fault: StopBefore, says: "stopped before the call", kind: stops},
	{fault: StopAfter, says: "stopped after its effect", kind: stops, carried: true},
	{fault: Lost, says: "effect, answer lost", carried: true},
	{fault: Late, says: "answered 504, effect later", writes: true, events: true, code: http.StatusGatewayTimeout},
	{fault: Timeout, says: "answered 504", events: true, code: http.StatusGatewayTimeout},
	{fault: Conflict, says: "answered 409", writes: true, events: true, code: http.StatusConflict},
	{fault: Busy, says: "answered 429", events: true, code: http.StatusTooManyRequests},
	{fault: Broken, says: "answered 500", events: true, code: http.StatusInternalServerError},
	{fault: Takeover, says: "second replica takes over", kind: replaced},
	{fault: TakeoverLate, says: "… and the call arrives late", kind: replaced, writes: true},
	{fault: KillSource, says: "mover at the source killed", mover: true},
	{fault: KillReceiver, says: "mover at the target killed", mover: true},
	{fault: CutStream, says: "stream between movers cut", mover: true},
	{fault: Absent, says: "answered that there is none", lie: absent},
	{fault: Another, says: "answered with another object", lie: another},
	{fault: Bare, says: "answered with a bare object", lie: bare},
	{fault: Ending, says: "answered with one being deleted", lie: ending},
}

// Faults returns all faults of flows that move nothing, in the order of the table.
func Faults() []Fault {
	return choose(func(f faultInfo) bool { return !f.mover && f.lie == nil })
}

// MoveFaults returns those of flows that move something. A replica that takes over is not
// among them: the programs that run beside the provisioner reach west through its gate.
func MoveFaults() []Fault {
	return choose(func(f faultInfo) bool { return f.kind != replaced })
}

func choose(wanted func(f faultInfo) bool) []Fault {
	var all []Fault
	for _, f := range faults {
		if wanted(f) {
			all = append(all, f.fault)
		}
	}
	return all
}

func (f Fault) info() faultInfo {
	for _, info := range faults {
		if info.fault == f {
			return info
		}
	}
	return faultInfo{fault: f}
}

// Known reports whether there is such a fault.
func (f Fault) Known() bool { return f.info().says != "" }

func moversRun(phase string) bool {
	forward := v1alpha1.MovePhase(phase)
	return forward == v1alpha1.MoveRollBack || !record.Before(forward, v1alpha1.MoveProvision) && record.Before(forward, v1alpha1.MoveResume)
}

// meets says whether a fault can happen at a call.
func (f Fault) meets(c Call) bool {
	info := f.info()
	if info.lie != nil {
		return c.Cluster != "home" && !c.writes()
	}
	if info.mover {
		// The boundaries of phases, and the reports from the middle of them.
		return c.Verb == "update" && (c.Object == "record" || c.Object == "volumemove.status") && moversRun(c.Phase)
	}
	return (!info.writes || c.writes()) && (info.events || c.Object != "event")
}

// object is what an API server has answered.
type object = map[string]any

// lie makes an object untrue; nil: there is none.
type lie func(o object) object

func absent(object) object { return nil }

func another(o object) object {
	metadata(o)["uid"] = string(uuid.NewUUID())
	return o
}

// bare leaves an object its name alone.
func bare(o object) object {
	m, kept := metadata(o), object{}
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion"} {
		if value, ok := m[field]; ok {
			kept[field] = value
		}
	}
	return object{"kind": o["kind"], "apiVersion": o["apiVersion"], "metadata": kept, "spec": object{}}
}

func ending(o object) object {
	metadata(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	return o
}

func metadata(o object) object {
	m, ok := o["metadata"].(object)
	if !ok {
		m = object{}
		o["metadata"] = m
	}
	return m
}

// about returns a lie about an answer, an object or a list: nil for that there is none. false
// if there is nothing to lie about.
func (l lie) about(o object) (_ object, told bool) {
	items, list := o["items"].([]any)
	if !list {
		return l(o), true
	}
	lies := []any{}
	for _, item := range items {
		if one, ok := item.(object); ok {
			if one = l(one); one != nil {
				lies = append(lies, one)
			}
		}
	}
	o["items"] = lies
	return o, len(items) > 0
}

// belie carries a read out, and lies in the answer; false if it found nothing to lie about.
// What failed is told as it is.
func (h *held) belie(l lie, answer http.ResponseWriter) (told bool) {
	code, text := h.ask()
	var asked object
	switch {
	case code == 0:
		abort()
	case code == http.StatusOK && json.Unmarshal(text, &asked) == nil:
		if asked, told = l.about(asked); asked == nil {
			reply(answer, http.StatusNotFound)
			return told
		}
		text, _ = json.Marshal(asked)
	}
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(code)
	_, _ = answer.Write(text)
	return told
}

// ask carries a request out and returns the answer; 0 is none.
func (h *held) ask() (code int, text []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.request.Context()), 10*time.Second)
	defer cancel()
	out := h.request.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host, out.Host = h.way.target.Scheme, h.way.target.Host, h.way.target.Host
	out.Body = io.NopCloser(bytes.NewReader(h.body))
	// The transport unpacks what nobody asked for packed.
	out.Header.Del("Accept-Encoding")
	response, err := h.way.transport.RoundTrip(out)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, text
}
