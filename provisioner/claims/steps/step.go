package steps

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Step is the next action for a claim, with what to report about it.
type Step struct {
	// Action is what to do; nil means nothing until something changes.
	Action Action
	// Tell is an event for the user, nil for none.
	Tell *Message
	// After is when to decide again even if nothing changes; 0 means never.
	After time.Duration
	// Trouble is the CamelCase reason for what is wrong with a volume that exists or takes
	// long; empty for nothing.
	Trouble string
	// TroubleIn is the cluster of a backing claim that takes long; empty if the volume
	// exists, which names its cluster.
	TroubleIn string
	// Shows is the message of the claim's condition while Trouble lasts; empty where other
	// conditions show it.
	Shows string
	// Left is a backing claim that may have data while claim and volume at home are gone,
	// nil for none.
	Left *Backing
	// Unknown says that the state of an existing volume is unknown now: the last known
	// state stays, except for Trouble.
	Unknown bool
}

const (
	// Slow is after what time an event reports that a backing claim is still not bound.
	Slow = 20 * time.Second
	// Overdue is the same for the backing claim of a volume that exists. Its pod may first
	// have to be copied there and scheduled.
	Overdue = 2 * time.Minute
	// TroubleAgain is when the event of a lasting trouble is repeated: events are deleted
	// after an hour.
	TroubleAgain = 5 * time.Minute
)

// idle is the verb of a step without an action.
const idle = "Idle"

// Verb names the action of a step: "Idle" if it has none.
func (s Step) Verb() string {
	if s.Action == nil {
		return idle
	}
	verb, _ := s.Action.is()
	return verb
}

// Cluster is where the request of a step goes; empty if it has no action.
func (s Step) Cluster() string {
	if s.Action == nil {
		return ""
	}
	_, cluster := s.Action.is()
	return cluster
}

// Message is an event: on the claim while there is one, else on the volume.
type Message struct {
	Warning bool
	// Reason is CamelCase, Text one sentence.
	Reason, Text string
}

// Refusal says why a cluster or node refused a claim.
type Refusal struct {
	Cluster string
	// Node is set if only that node refused.
	Node            string
	Reason, Message string
}

// Warn is a warning.
func Warn(reason, text string) *Message {
	return &Message{Warning: true, Reason: reason, Text: text}
}

// Note is an event that is no warning.
func Note(reason, text string) *Message {
	return &Message{Reason: reason, Text: text}
}

// Where names a cluster in a sentence.
func Where(cluster string) string {
	if cluster == keys.Home {
		return "the home cluster"
	}
	return "cluster " + cluster
}

// Sooner returns the shorter of two waiting times, of which 0 means none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// ShownAsTold shows the trouble of a step on the claim, with the text of its event.
func ShownAsTold(step Step) Step {
	if step.Trouble != "" && step.Tell != nil && step.Tell.Reason == step.Trouble {
		step.Shows = step.Tell.Text
	}
	return step
}

// WithTrouble adds a trouble to a step. If the step already has an event, that is written
// instead; the condition shows the trouble all the same.
func WithTrouble(step Step, reason, text string) Step {
	step.Trouble, step.Shows = reason, text
	if step.After == 0 || step.After > TroubleAgain {
		step.After = TroubleAgain
	}
	if step.Tell == nil {
		step.Tell = Warn(reason, text)
	}
	return step
}

// IfSlow returns m once a backing claim has waited for Slow, else nil.
func IfSlow(o Observation, b *corev1.PersistentVolumeClaim, m *Message) *Message {
	if o.Now.Sub(b.CreationTimestamp.Time) < Slow {
		return nil
	}
	return m
}
