// Package transport decides how the two movers of a claim are connected: the one at the
// source dials the other where it can, else the provisioner joins a connection to each.
// Its functions are pure.
package transport
