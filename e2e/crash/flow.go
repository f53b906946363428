package crash

import (
	"context"
	"fmt"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Flow is one thing that users ask for, and what must have come of it in the end
// whatever happens to the program meanwhile. To sweep another flow, add it to
// Flows. Its functions may be called for many cases at once.
type Flow struct {
	Name string
	// Setup makes what is there before, nil for nothing; Ready says what is still
	// missing of that.
	Setup func(ctx context.Context, w *World, c *Case) error
	Ready func(w *World, c *Case, v *View) error
	// Act is what the user does. From then on calls count.
	Act func(ctx context.Context, w *World, c *Case) error
	// Play, if not nil, is what others do in turn, as a scheduler; it is called
	// again and again.
	Play func(ctx context.Context, w *World, c *Case, v *View) error
	// Early is true if they do so during the set-up too.
	Early bool
	// Want says what is wrong with the end, nil if nothing.
	Want func(w *World, c *Case, v *View) error
	// Alone is true for a flow whose calls are also about what cases share: each
	// of its cases runs alone.
	Alone bool
	// Few is true for a flow of whose cases only some run at once: each asks the API servers
	// for more than others do.
	Few bool
	// Reads, if not 0, is how many reads of each kind meet a fault, in each phase of a move: a
	// flow that looks at everything again before each step reads the same again and again.
	Reads int
	// Moves is true for a flow that needs a world with movers.
	Moves bool
	// Wide is true for one that needs a second remote cluster too.
	Wide bool
	// Stored is true for one whose moves go through an object store.
	Stored bool
	// Lied is true for one whose remote cluster lies too: it has no data that it could lie away.
	Lied bool
	// Of is the program whose calls count and meet faults; the provisioner by default.
	Of Subject
}

// data is the name of the claims of most cases.
const data = "data"

// place is where a flow has its volume.
type place struct{ name, node, cluster string }

var places = []place{{"local", "home-1", keys.Home}, {"remote", fabric.WestNode, "west"}}

// served is the set-up of a case with a claim that has its volume, of a real class
// that binds at once.
func served(f Flow, p place) Flow {
	f.Setup = func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, p.node) }
	f.Ready = func(w *World, _ *Case, v *View) error { return w.bound(v, data, p.cluster) }
	return f
}

// allFlows returns the flows of all worlds.
func allFlows() []Flow { return append(append(Flows(), agentFlows()...), moveFlows()...) }

// Flows returns the flows of the provisioner and of the plugin that move nothing.
func Flows() []Flow {
	var flows []Flow
	flows = append(flows, provisionFlows()...)
	flows = append(flows, rescheduleFlows()...)
	flows = append(flows, endFlows()...)
	flows = append(flows, changeFlows()...)
	flows = append(flows, attributesFlows()...)
	flows = append(flows, snapshotFlows()...)
	flows = append(flows, hurtFlows()...)
	flows = append(flows, importFlows()...)
	return append(flows, clusterFlows()...)
}

// FlowOf returns the flow of a name.
func FlowOf(name string) (*Flow, error) {
	for _, f := range allFlows() {
		if f.Name == name {
			return &f, nil
		}
	}
	return nil, fmt.Errorf("there is no flow %q", name)
}
