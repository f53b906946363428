// Package policy decides what home clusters get: which namespaces, which rights,
// which pods, and what becomes of a pod that disappeared. It is pure.
package policy

// Presence tells whether a home cluster is connected.
type Presence string

// A home cluster is Unknown while this program has not listened for long enough.
const (
	Unknown   Presence = "Unknown"
	Connected Presence = "Connected"
	Away      Presence = "Away"
)

// Refusal says why something is not given: Reason is one word, Message one
// sentence that says what to do.
type Refusal struct {
	Reason, Message string
}
