package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// followed is the step that records on which nodes pods use the claims; false where the
// record says so. A node stays in it after its pods are gone until it is known to be
// ready or gone: a pod that is deleted by force may run on where nobody can be asked.
func followed(o Observation) (Step, bool) {
	if o.Unusable[record.Source] != "" {
		return Step{}, false
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
	want = slices.Compact(want)
	if slices.Equal(want, o.Record.Ran) {
		return Step{}, false
	}
	next := o.Record.Clone()
	next.Ran = want
	return Step{Verb: Save, Record: next}, true
}

// unsure waits while nobody knows what still runs on a node on which the claims were in
// use; false if that is known of all.
func unsure(o Observation) (Step, bool) {
	for _, node := range o.Record.Ran {
		if why := o.Away[node]; why != "" {
			return wait(soon, fmt.Sprintf("waiting until it is known that nobody writes on node %s of %s, where a pod used the volume: %s; "+
				"bring it back, or once it is surely off delete the Node or taint it node.kubernetes.io/out-of-service", node.Name, node.Cluster, why)), true
		}
	}
	return Step{}, false
}
