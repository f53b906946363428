package moves

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// sought is one end of one claim that is looked at.
type sought struct {
	claim int
	end   record.End
	at    site
	side  decide.Side
	err   error
}

// observeClaims looks at the claims and what is behind them, at once: pods may wait for
// what is found. It does not ask for the movers' words.
func (c *Controller) observeClaims(ctx context.Context, w *work, o *decide.Observation) error {
	r, here := o.Record, site{Access: clusters.Access{Client: c.Client}, home: true}
	o.Claims = make([]decide.Claim, len(r.Claims))
	var looks []func() error
	for i := range r.Claims {
		known, seen := &r.Claims[i], &o.Claims[i]
		looks = append(looks, func() (err error) {
			if seen.Claim, err = claimAt(ctx, here, r.Namespace, known.Name); err == nil && seen.Claim != nil && seen.Claim.UID != known.UID {
				seen.Claim = nil
			}
			return err
		}, func() (err error) {
			seen.Volume, err = volumeAt(ctx, here, known.Volume.Name)
			return err
		})
	}
	sides, silent := c.seek(o), map[record.End]*atomic.Bool{record.Source: {}, record.Target: {}}
	for k := range sides {
		s := &sides[k]
		looks = append(looks, func() error {
			if silent[s.end].Load() {
				// Abort and going back must not wait for each claim.
				s.err = errors.New("it does not answer")
				return nil
			}
			s.side, s.err = c.observeSide(ctx, s.at, r, s.claim, s.end)
			silent[s.end].CompareAndSwap(false, s.err != nil)
			return nil
		})
	}
	if err := atOnce(looks); err != nil {
		return err
	}
	for _, s := range sides {
		if err := c.found(o, s); err != nil {
			return err
		}
	}
	for i := range o.Claims {
		if !r.Claims[i].Snapshot.There() || o.Unusable[record.Source] != "" {
			continue
		}
		if err := c.observeSnapshot(ctx, w, o, i, &o.Claims[i]); err != nil {
			return err
		}
	}
	if r.Phase != v1alpha1.MoveVerifying {
		return nil
	}
	for i := range o.Claims {
		seen := &o.Claims[i]
		if seen.Claim == nil {
			continue
		}
		var err error
		if seen.New, err = c.volumeFor(&r.Claims[i], *seen); err != nil {
			seen.NewError = err.Error()
		}
	}
	return nil
}

// seek returns the ends that can be looked at, and notes why others cannot.
func (c *Controller) seek(o *decide.Observation) (sides []sought) {
	r := o.Record
	for i := range r.Claims {
		for _, end := range record.Ends {
			at, why := c.reach(r.Claims[i].At(end).Ref.Cluster)
			if r.GaveUp(end) {
				why = "it was given up"
			}
			if why != "" {
				o.Unusable[end] = why
				continue
			}
			sides = append(sides, sought{claim: i, end: end, at: at})
		}
	}
	return sides
}

// found notes what was seen of an end. Nothing is known of one that did not answer.
func (c *Controller) found(o *decide.Observation, s sought) error {
	cluster := o.Record.Claims[s.claim].At(s.end).Ref.Cluster
	switch {
	case s.err != nil && cluster == keys.Home:
		return s.err
	case s.err != nil && o.Unusable[s.end] != "":
	case s.err != nil:
		// It must not keep pods at home waiting.
		c.suspect(cluster)
		o.Unusable[s.end] = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, s.err)
	case s.end == record.Source:
		o.Claims[s.claim].Source = s.side
	default:
		o.Claims[s.claim].Target = s.side
	}
	return nil
}

func (c *Controller) observeSide(ctx context.Context, at site, r *record.Record, i int, end record.End) (side decide.Side, err error) {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	err = atOnce([]func() error{
		func() (err error) {
			side.Mover, _, err = c.moverAt(ctx, at, r, i, end)
			return err
		},
		func() error { return behind(ctx, at, r.Claims[i].At(end), &side) },
	})
	return side, err
}

// behind looks at a backing claim and the real volume that is bound to it.
func behind(ctx context.Context, at site, copied *record.Copy, side *decide.Side) (err error) {
	if side.Backing, err = claimAt(ctx, at, copied.Ref.Namespace, copied.Ref.Name); err != nil {
		return err
	}
	if b := side.Backing; b != nil && b.Spec.VolumeName != "" {
		if side.Real, err = volumeAt(ctx, at, b.Spec.VolumeName); err != nil {
			return err
		}
		if side.Real != nil && (side.Real.Spec.ClaimRef == nil || side.Real.Spec.ClaimRef.UID != b.UID) {
			side.Real = nil
		}
	}
	return nil
}
