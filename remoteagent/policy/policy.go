// Package policy decides what home clusters get: which namespaces and rights (Grant, Identity),
// which pods (Permit, NewPod, Within), the next step for a ShadowPod (Next), and the next step for
// a deleted shadow (Heal). It is pure; the controllers in the sibling packages observe and act.
// Read next.go and pod.go for pods, namespaces.go for namespaces, heal.go for shadows.
package policy

// Presence says whether a home cluster is connected.
type Presence string

// A home cluster is Unknown until this process has watched its Lease for long enough.
const (
	Unknown   Presence = "Unknown"
	Connected Presence = "Connected"
	Away      Presence = "Away"
)

// Refusal says why a request is refused: Reason is one word, Message one sentence that says what to
// do.
type Refusal struct {
	Reason, Message string
}
