package crash

import (
	"context"
)

// agentFlows are about what the remote agent does by itself, for a world of it: somebody
// deletes a shadow in west. The provisioner goes on beside.
func agentFlows() []Flow {
	west := places[1]
	mended := func(w *World, c *Case, v *View) error {
		return all(w.bound(v, data, west.cluster), same(c, v), once(c, 2, 1), healed(c, v), cured(v))
	}
	return []Flow{
		served(Flow{
			Name: "agent-heal", Of: Agent, Want: mended,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.West, c.before.Backings[0].Namespace, c.before.Backings[0].Name)
			},
		}, west),
	}
}
