package decide

import (
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// besides is the node on which the mover of a claim at an end must be made, empty for any:
// claims that one pod uses get their volumes at the target for one node, or the pod could
// run nowhere there. Of claims that no pod uses nobody knows whether one is to: they get
// theirs for one node if that has room, which is near. Where that node is not known yet,
// why says what is waited for.
func besides(o Observation, i int, end record.End) (node, near, why string) {
	if end != record.Target || o.Record.Phase != v1alpha1.MoveProvision || o.Record.Claims[i].Target.Node != "" {
		// Once a volume is there, it says itself on which nodes it can be used.
		return "", "", ""
	}
	for j := range i {
		if !together(o, j, i) {
			continue
		}
		if node = o.Claims[j].Target.Mover.Node; node == "" {
			why = fmt.Sprintf("waiting until the mover of claim %s has a node at the target, for that of claim %s, which the same pod uses, must run there too", o.Record.Claims[j].Name, o.Record.Claims[i].Name)
		}
		return node, "", why
	}
	for j := range i {
		if used(o, j) || used(o, i) {
			continue
		}
		if near = o.Claims[j].Target.Mover.Node; near == "" {
			why = fmt.Sprintf("waiting until the mover of claim %s has a node at the target, for that of claim %s, which the same pod may use one day, is best made there too", o.Record.Claims[j].Name, o.Record.Claims[i].Name)
		}
		return "", near, why
	}
	return "", "", ""
}

// used says whether a pod uses a claim.
func used(o Observation, i int) bool {
	return slices.ContainsFunc(o.Pods, func(pod Pod) bool { return !pod.Finished && slices.Contains(pod.Claims, i) })
}

// together says whether a pod uses two claims.
func together(o Observation, i, j int) bool {
	return slices.ContainsFunc(o.Pods, func(pod Pod) bool {
		return !pod.Finished && slices.Contains(pod.Claims, i) && slices.Contains(pod.Claims, j)
	})
}
