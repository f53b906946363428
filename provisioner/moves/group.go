package moves

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// inspectGroup finds out whether one snapshot can be taken of all claims of a move that are copied
// from snapshots, so that these are of one moment; nil if each gets one of its own: with one such
// claim, with volumes of several drivers, and where the cluster has no class for it or does not let
// home read those.
func (c *Controller) inspectGroup(ctx context.Context, r *record.Record) (*record.Group, error) {
	var snapped []*record.Claim
	for i := range r.Claims {
		if r.Claims[i].Snapshot != nil {
			snapped = append(snapped, &r.Claims[i])
		}
	}
	if len(snapped) < 2 || slices.ContainsFunc(snapped, func(claim *record.Claim) bool {
		return claim.Snapshot.Driver != snapped[0].Snapshot.Driver || claim.Source.Ref.Namespace != snapped[0].Source.Ref.Namespace
	}) {
		return nil, nil
	}
	cluster := r.ClusterOf(record.Source)
	at, why := c.sites.Reach(cluster)
	if why != "" {
		return nil, nil
	}
	by, version, _, err := frozen.ChooseGroup(ctx, at, cluster, snapped[0].Snapshot.Driver)
	if err != nil || by == "" {
		return nil, err
	}
	return &record.Group{By: by, Version: version}, nil
}

// groupOf is the snapshot of all claims of a move that are copied from snapshots.
func (c *Controller) groupOf(r *record.Record) frozen.Group {
	g := frozen.Group{NamespacedName: types.NamespacedName{Namespace: r.SourceNamespace(), Name: r.GroupName()}, By: r.Group.By,
		Version: r.Group.Version, Label: r.GroupLabel(), Labels: c.snapshotLabels(r), Whose: "this move's"}
	for i := range r.Claims {
		if known := &r.Claims[i]; known.Snapshot != nil {
			g.Of = append(g.Of, frozen.Frozen{Ref: known.Source.Ref, Volume: volumeOf(known.Snapshot)})
		}
	}
	return g
}

// makeGroup labels the sources and creates the snapshot of all that have the label.
func (c *Controller) makeGroup(ctx context.Context, r *record.Record) error {
	at, err := c.sites.At(r.ClusterOf(record.Source))
	if err != nil {
		return err
	}
	return c.groupOf(r).Take(ctx, at)
}

// unlabelSource takes the label off a source.
func (c *Controller) unlabelSource(ctx context.Context, r *record.Record, i int) error {
	ref := r.Claims[i].Source.Ref
	at, err := c.sites.At(ref.Cluster)
	if err != nil {
		return err
	}
	return frozen.Unlabel(ctx, at, ref, r.GroupLabel())
}

// dropGroup deletes the snapshot of several sources; the snapshot controller deletes those that belong
// to it.
func (c *Controller) dropGroup(ctx context.Context, r *record.Record, seen steps.Group) error {
	at, err := c.sites.At(r.ClusterOf(record.Source))
	if err != nil {
		return err
	}
	return c.groupOf(r).Drop(ctx, at, seen.UID)
}

// observeGroup reads the snapshot of several sources.
func (c *Controller) observeGroup(ctx context.Context, w *activeMove, o *steps.Observation) error {
	cluster := o.Record.ClusterOf(record.Source)
	at, why := c.sites.Reach(cluster)
	if why != "" {
		o.Source.Unusable = why
		return nil
	}
	found, err := c.readGroup(ctx, at, o.Record)
	switch {
	case err != nil && at.Home:
		return err
	case err != nil:
		c.sites.Recheck(cluster)
		o.Source.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
		return nil
	}
	if w.refusedGroup != "" && !found.Refused {
		found.Problem, found.Refused = w.refusedGroup, true
	}
	o.Group = found
	return nil
}

func (c *Controller) readGroup(ctx context.Context, at site.Site, r *record.Record) (seen steps.Group, err error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	found, err := c.groupOf(r).Look(ctx, at, r.Group.UID == "")
	seen = steps.Group{Exists: found.Exists, UID: found.UID, Ready: found.Ready, Leaving: found.Leaving, Problem: found.Problem,
		Refused: found.Wrong}
	if found.Members == nil {
		return seen, err
	}
	seen.Members = map[int]string{}
	for i := range r.Claims {
		if name := found.Members[r.Claims[i].Source.Ref.UID]; name != "" {
			seen.Members[i] = name
		}
	}
	return seen, err
}
