// Package wire reads and writes what kube-scheduler and an extender say to each
// other (k8s.io/kube-scheduler/extender/v1), without decoding more of a pod or a
// node than a decision needs. It is pure.
package wire
