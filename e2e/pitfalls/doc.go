// Package pitfalls tries what can go wrong between kube-scheduler and an extender,
// on real kube-schedulers: extenders that are down, hang or talk nonsense, more
// nodes than kube-scheduler looks at, pods that the extender has no interest in, and
// a second scheduler of two replicas. docs/scheduling-contract.md lists all pitfalls
// with the tests that hold them off, here and elsewhere.
//
// The tests stand in for the provisioner: they write what that program would.
package pitfalls
