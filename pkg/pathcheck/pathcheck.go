// Package pathcheck is what lodestone-network check prints, and kubectl lodestone network test reads: how packets and connections of
// several sizes fared between two pods.
package pathcheck

// Result is what became of one packet or connection that was to come back.
type Result struct {
	// Protocol is UDP or TCP.
	Protocol string `json:"protocol"`
	// Bytes is how many were sent.
	Bytes int `json:"bytes"`
	// Microseconds is how long it took until all was back; 0: it was not.
	Microseconds int64 `json:"microseconds,omitempty"`
	// Problem is what was wrong, in a sentence; empty: all came back, and the other pod saw the pod's own address.
	Problem string `json:"problem,omitempty"`
}
