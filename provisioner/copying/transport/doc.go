// Package transport decides how the two movers of a claim are connected: the mover at the
// source dials the one at the target if it can reach it; otherwise the provisioner opens a
// connection to each and joins them. Next returns the next action; Peers and Reach return
// the addresses that may be dialled. All functions are pure. Start with next.go.
package transport
