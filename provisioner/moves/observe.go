package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// observe reads the objects of a move. After an error the observation is incomplete.
func (c *Controller) observe(ctx context.Context, w *activeMove) (steps.Observation, error) {
	o := steps.Observation{Now: time.Now(), Seen: proof.Seen{Margin: c.Margin}, Settling: c.Settling}
	w.looked = look{}
	if w.record == nil {
		if err := c.readAgain(ctx, w); err != nil {
			return o, err
		}
	}
	if w.record != nil {
		o.Record = w.record.record
	}
	if o.Record == nil || o.Record.Over() {
		w.close()
		return o, c.observeMove(ctx, w, &o)
	}
	c.watchRemotes(ctx, w, o.Record)
	o.Taker, o.Earlier = c.Records.takerOf(w.uid), c.Records.keeperOf(o.Record)
	if err := site.AtOnce([]func() error{
		func() error { return c.observeMove(ctx, w, &o) },
		func() error { return c.observeClaims(ctx, w, &o) },
	}); err != nil {
		return o, err
	}
	w.keyless.Note(o.Now, moversOf(&o)...)
	if err := c.observeRemovedClusters(ctx, &o); err != nil {
		return o, err
	}
	if f := o.Record.Failover; f != nil && f.Lease && o.Source.Unusable != "" && record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		var err error
		if o.Source.Silence, err = c.Clusters.Silence(ctx, o.Record.ClusterOf(record.Source)); err != nil {
			return o, err
		}
	}
	// After the volumes: a node that mounts one later has read its state before.
	if err := c.observeUsers(ctx, &o); err != nil {
		return o, err
	}
	if err := c.observeNodes(ctx, &o, w.watchers); err != nil {
		return o, err
	}
	w.looked = look{o: o}
	w.looked.o.Claims = slices.Clone(o.Claims)
	c.observeCopies(ctx, w, &o)
	return o, nil
}

// readAgain reads the record of a move. A write whose answer was lost may have taken effect, which other moves must know too.
func (c *Controller) readAgain(ctx context.Context, w *activeMove) error {
	known, err := c.read(ctx, w.uid)
	if err != nil {
		return err
	}
	var now *record.Record
	if known != nil {
		now = known.record
	}
	c.free(c.Records.set(w.uid, now))
	w.record = known
	return nil
}

func moversOf(o *steps.Observation) (all []*movers.State) {
	for i := range o.Claims {
		seen := &o.Claims[i]
		all = append(all, &seen.Source.Mover, &seen.Target.Mover, &seen.Snapshot.Mover)
	}
	return all
}

// look is what was last read of a move from API servers, without what its movers said.
type look struct {
	o steps.Observation
	// waits says that no step could be taken on it.
	waits bool
}

// lookAgainAfter is for how long a move that waits for its movers asks these alone. Changes of pods and claims, of clusters and of
// the VolumeMove end that; all else, as a node that comes back, may be seen this much later.
const lookAgainAfter = steps.Seldom

// isEnough says whether what was read last is enough to see how movers get on: pods run, nothing but movers is awaited, and nothing
// has changed that is watched. Snapshots are not watched.
func (l *look) isEnough(now time.Time) bool {
	r := l.o.Record
	return l.waits && r != nil && now.Sub(l.o.Now) < lookAgainAfter && record.Before(r.Phase, v1alpha1.MoveQuiesce) &&
		!r.Group.MayExist() && !slices.ContainsFunc(r.Claims, func(known record.Claim) bool { return known.Snapshot.MayExist() })
}

// glance asks the movers of a move that waits for them how far they are, and nothing of API servers; false if that is not enough. A
// step is taken only on what observe has read.
func (c *Controller) glance(ctx context.Context, w *activeMove) (steps.Observation, bool) {
	now := time.Now()
	if w.woken.Swap(false) || !w.looked.isEnough(now) {
		return steps.Observation{}, false
	}
	o := w.looked.o
	o.Now, o.Claims = now, slices.Clone(o.Claims)
	c.observeCopies(ctx, w, &o)
	return o, true
}

func (c *Controller) observeMove(ctx context.Context, w *activeMove, o *steps.Observation) error {
	move, err := c.Moves.In(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case err == nil && move.UID == w.uid:
		o.Move = move
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look at VolumeMove %s: %w", w.NamespacedName, err)
	}
	return nil
}

// observeClaims reads the claims with their volumes and backing claims, in parallel: pods
// may wait for the result. Movers are not queried here.
func (c *Controller) observeClaims(ctx context.Context, w *activeMove, o *steps.Observation) error {
	r, here := o.Record, site.Site{Access: remote.Access{Client: c.Client}, Home: true}
	o.Claims = make([]steps.Claim, len(r.Claims))
	var looks []func() error
	for i := range r.Claims {
		known, seen := &r.Claims[i], &o.Claims[i]
		looks = append(looks, func() (err error) {
			if seen.Claim, err = here.Claim(ctx, r.Namespace, known.Name); err == nil && seen.Claim != nil && seen.Claim.UID != known.UID {
				seen.Claim = nil
			}
			return err
		}, func() (err error) {
			seen.Volume, err = here.Volume(ctx, known.Volume.Name)
			return err
		})
	}
	sides, silent := c.reachableEnds(o), map[record.End]*atomic.Bool{record.Source: {}, record.Target: {}}
	for k := range sides {
		s := &sides[k]
		looks = append(looks, func() error {
			if silent[s.end].Load() {
				// Do not wait for each claim separately: an abort or a rollback must not
				// take that long.
				s.err = errors.New("it does not answer")
				return nil
			}
			s.side, s.err = c.observeSide(ctx, s.at, r, s.claim, s.end)
			silent[s.end].CompareAndSwap(false, s.err != nil)
			return nil
		})
	}
	if err := site.AtOnce(looks); err != nil {
		return err
	}
	for _, s := range sides {
		if err := c.noteEnd(o, s); err != nil {
			return err
		}
	}
	for i := range o.Claims {
		if !r.Claims[i].Snapshot.MayExist() || o.Source.Unusable != "" {
			continue
		}
		if err := c.observeSnapshot(ctx, w, o, i, &o.Claims[i]); err != nil {
			return err
		}
	}
	if r.Group.MayExist() && o.Source.Unusable == "" {
		if err := c.observeGroup(ctx, w, o); err != nil {
			return err
		}
	}
	if err := c.observeBases(ctx, w, o); err != nil {
		return err
	}
	if !record.Before(r.Phase, v1alpha1.MoveRetain) {
		c.observeNext(ctx, o)
	}
	if err := c.observeFallBacks(ctx, o); err != nil {
		return err
	}
	if r.Phase != v1alpha1.MoveVerifying && !(r.CopiesNothing() && record.Before(r.Phase, v1alpha1.MoveCommit)) {
		return nil
	}
	c.observeSlots(o)
	for i := range o.Claims {
		seen := &o.Claims[i]
		if seen.Claim == nil {
			continue
		}
		var err error
		if seen.New, err = c.targetVolume(r, &r.Claims[i], *seen); err != nil {
			seen.NewError = err.Error()
		}
	}
	return nil
}

// observeNext finds out about a later move of the claims of a committed one.
func (c *Controller) observeNext(ctx context.Context, o *steps.Observation) {
	for i := range o.Claims {
		known, seen := &o.Record.Claims[i], &o.Claims[i]
		if next := c.Records.holder(known.UID); next != nil && next.UID != o.Record.UID {
			o.Next = next.Name
		}
		if o.Record.Phase != v1alpha1.MoveFinalize || !steps.IsElsewhere(known, seen.Volume) {
			continue
		}
		now := &seen.Now
		now.Ref, _ = backing.RefOf(seen.Volume)
		at, why := c.sites.Reach(now.Ref.Cluster)
		if now.Unusable = why; why != "" {
			continue
		}
		asking, cancel := at.WithTimeout(ctx)
		if err := observeBacking(asking, at, &record.Copy{Ref: now.Ref}, &now.Side); err != nil {
			c.sites.Recheck(now.Ref.Cluster)
			now.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", now.Ref.Cluster, err)
		}
		cancel()
	}
}

// endLook is one end of one claim to be read.
type endLook struct {
	claim int
	end   record.End
	at    site.Site
	side  steps.Side
	err   error
}

// reachableEnds returns the ends that can be read, and records why others cannot.
func (c *Controller) reachableEnds(o *steps.Observation) (sides []endLook) {
	r := o.Record
	for i := range r.Claims {
		for _, end := range record.Ends {
			at, why := c.sites.Reach(r.Claims[i].At(end).Ref.Cluster)
			if r.GaveUp(end) {
				why = "it was given up"
			}
			if why != "" {
				o.At(end).Unusable = why
				o.At(end).Away = c.requireStarted(r.Claims[i].At(end).Ref.Cluster) == nil
				continue
			}
			sides = append(sides, endLook{claim: i, end: end, at: at})
		}
	}
	return sides
}

// noteEnd adds what was read of an end to the observation. If its cluster did not answer,
// the end is unusable and nothing is known of it.
func (c *Controller) noteEnd(o *steps.Observation, s endLook) error {
	cluster := o.Record.Claims[s.claim].At(s.end).Ref.Cluster
	switch {
	case s.err != nil && cluster == keys.Home:
		return s.err
	case s.err != nil && o.At(s.end).Unusable != "":
	case s.err != nil:
		// An unreachable cluster must not keep pods at home waiting.
		c.sites.Recheck(cluster)
		o.At(s.end).Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, s.err)
	case s.end == record.Source:
		o.Claims[s.claim].Source = s.side
	default:
		o.Claims[s.claim].Target = s.side
	}
	return nil
}

func (c *Controller) observeSide(ctx context.Context, at site.Site, r *record.Record, i int, end record.End) (side steps.Side, err error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	err = site.AtOnce([]func() error{
		func() (err error) {
			side.Mover, err = c.moverAt(ctx, at, r, i, end)
			return err
		},
		func() error { return observeBacking(ctx, at, r.Claims[i].At(end), &side) },
	})
	return side, err
}

// observeBacking reads a backing claim and the real volume that is bound to it.
func observeBacking(ctx context.Context, at site.Site, copied *record.Copy, side *steps.Side) (err error) {
	if side.Backing, err = at.Claim(ctx, copied.Ref.Namespace, copied.Ref.Name); err != nil {
		return err
	}
	if b := side.Backing; b != nil && b.Spec.VolumeName != "" {
		if side.Real, err = at.Volume(ctx, b.Spec.VolumeName); err != nil {
			return err
		}
		if side.Real != nil && (side.Real.Spec.ClaimRef == nil || side.Real.Spec.ClaimRef.UID != b.UID) {
			side.Real = nil
		}
	}
	return nil
}

// observeRemovedClusters finds out which ends have no RemoteCluster any more, if that
// matters: for a move in Commit, or with only clean-up left.
func (c *Controller) observeRemovedClusters(ctx context.Context, o *steps.Observation) error {
	if r := o.Record; !r.Freed && r.Phase != v1alpha1.MoveCommit && r.Phase != v1alpha1.MoveFinalize {
		return nil
	}
	for _, end := range record.Ends {
		cluster := o.Record.Claims[0].At(end).Ref.Cluster
		if o.At(end).Unusable == "" || o.Record.GaveUp(end) || cluster == keys.Home {
			continue
		}
		gone, err := c.Clusters.Gone(ctx, cluster)
		if err != nil {
			return err
		}
		o.At(end).Gone = gone
	}
	return nil
}
