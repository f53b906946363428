// Package explain keeps what was decided on the latest pods, and why, for people
// who ask why a pod is not where they want it. kube-scheduler itself shows only
// how many nodes had which reason.
//
// A decision is kept as the few facts that it was made from; text is made of them
// only when somebody asks.
package explain
