package moves

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// moverOf describes the mover of a claim at an end.
func (c *Controller) moverOf(r *record.Record, i int, end record.End) movers.Mover {
	known := &r.Claims[i]
	m := movers.Mover{
		Ref: known.At(end).Ref, Name: r.MoverName(i, end), Session: r.KeysOf(i), Role: moverapi.Sender, Snapshot: end == record.Snapped,
		For:   movers.Owner{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, UID: r.UID},
		Block: movers.IsBlock(known.Volume), Scratch: movers.ScratchLimit(c.Scratch, known.Volume), Level: known.Level,
		Image: c.Image, HomeID: c.Place.HomeID,
	}
	if end == record.Target {
		m.Role, m.NoSnapshot = moverapi.Receiver, !record.Before(r.Phase, v1alpha1.MoveFinalSync)
	}
	if m.Ref.Cluster != keys.Home {
		m.User = known.User
	}
	m.Keys = known.Keys[m.Role]
	if known.Store != nil {
		m.Store = &known.Store.Ticket
	}
	return m
}

// ensureMover creates a mover, without starting it.
func (c *Controller) ensureMover(ctx context.Context, r *record.Record, a steps.EnsureMover) error {
	at, err := c.sites.At(r.Claims[a.Claim].At(a.End).Ref.Cluster)
	if err != nil {
		return err
	}
	node, err := c.nodeFor(ctx, at, r, a.Claim, a.End)
	if err != nil {
		return err
	}
	return c.copier.Make(ctx, c.moverOf(r, a.Claim, a.End), cmp.Or(a.Node, node), a.Near)
}

// nodeFor returns the node that a mover must run on; empty for any.
func (c *Controller) nodeFor(ctx context.Context, at site.Site, r *record.Record, i int, end record.End) (string, error) {
	if end == record.Target {
		return r.Claims[i].Target.Node, nil
	}
	// A claim from a snapshot is best created where its source can be used.
	virtual := types.NamespacedName{Namespace: r.Namespace, Name: r.Claims[i].Name}
	return c.witness.NodeOfUsers(ctx, at, virtual, r.Claims[i].Source.Ref, r.MoverName(i, end))
}

// podSecurityRestricted is what an API server says of pods that this standard does not admit.
const podSecurityRestricted = `violates PodSecurity "restricted:`

func (c *Controller) moverAt(ctx context.Context, at site.Site, r *record.Record, i int, end record.End) (movers.State, error) {
	of := c.moverOf(r, i, end)
	m, _, err := copying.Read(ctx, at, of)
	if of.User == nil && strings.Contains(m.Problem, podSecurityRestricted) {
		m.Problem = "its namespace admits no pods of root (Pod Security restricted): make another move with spec.rootless (--rootless), or let " +
			"the namespace be baseline: " + m.Problem
	}
	m.Problem = plain(m.Problem)
	return m, err
}
