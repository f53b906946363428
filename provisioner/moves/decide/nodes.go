package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// followed is the step that records which pods use the claims, on which nodes, and with what
// SELinux level; false where the record says so.
func followed(o Observation) (Step, bool) {
	next := o.Record.Clone()
	next.Ran, next.Pods = ran(o), writing(o, record.MostPods)
	if len(next.Pods) > record.MostPods {
		return back(o, fmt.Sprintf("more than %d pods use the volumes, or did so a moment ago: scale their owners down, and move again", record.MostPods), record.PodsInTheWay), true
	}
	if known := leveled(o, next); known && slices.Equal(next.Ran, o.Record.Ran) && slices.Equal(next.Pods, o.Record.Pods) {
		return Step{}, false
	}
	return Step{Verb: Save, Record: next}, true
}

// leveled notes the SELinux levels of pods in a record, for movers that are made when those
// are gone; known says that it has them.
func leveled(o Observation, next *record.Record) (known bool) {
	known = true
	for i, claim := range o.Claims {
		if has := &next.Claims[i].Level; len(claim.Levels) > 0 && !slices.Contains(claim.Levels, *has) {
			// Pods that differ take the volume from one another.
			*has, known = slices.Min(claim.Levels), false
		}
	}
	return known
}

// ran returns the nodes on which pods use the claims. A node stays among them after its
// pods are gone until it is known to be ready or gone: a pod that is deleted by force may
// run on where nobody can be asked.
func ran(o Observation) []record.Node {
	if o.Unusable[record.Source] != "" {
		return o.Record.Ran
	}
	want := slices.Clone(o.Users)
	for _, node := range o.Record.Ran {
		if o.Away[node] != "" {
			want = append(want, node)
		}
	}
	slices.SortFunc(want, func(a, b record.Node) int {
		return strings.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name)
	})
	return slices.Compact(want)
}

// unsure waits while nobody knows what still runs on a node on which the claims were in
// use, or a pod that is gone may still run; false if nothing does.
func unsure(o Observation) (Step, bool) {
	on := slices.Clone(o.Record.Ran)
	for _, pod := range lingering(o) {
		on = append(on, pod.On())
	}
	for _, node := range on {
		if why := o.Away[node]; why != "" {
			return needs(NodeAway, soon, fmt.Sprintf("waiting until it is known that nobody writes on node %s of %s, where a pod used the volume: %s; "+
				"bring it back, or once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service", node.Name, node.Cluster, why)), true
		}
	}
	return outlived(o)
}
