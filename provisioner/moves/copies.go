package moves

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// observeCopies reads the progress of the movers at the sources, and maintains the
// connections between movers.
func (c *Controller) observeCopies(ctx context.Context, w *activeMove, o *steps.Observation) {
	r := o.Record
	if record.Before(r.Phase, v1alpha1.MoveProvision) || !record.Before(r.Phase, v1alpha1.MoveResume) {
		w.closeLinks()
		return
	}
	if r.Phase == v1alpha1.MoveQuiesce {
		// The movers are idle and pods end: keep the connections and send no requests.
		return
	}
	for i := range o.Claims {
		seen, from := &o.Claims[i], decide.ReadEnd(*o, i)
		reader := seen.Source.Mover
		if from == record.Snapped {
			reader = seen.Snapshot.Mover
		}
		if from == "" || !reader.Running {
			seen.CopyError = "it does not run"
			continue
		}
		link, mover := w.claim(i).link, c.moverOf(r, i, from)
		client, err := c.copier.Client(link, mover, r.Claims[i].Keys[moverapi.Controller])
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, copying.AskTimeout)
			seen.Copy, err = client.Status(asking)
			cancel()
		}
		if err != nil {
			seen.Copy, seen.CopyError = nil, err.Error()
			continue
		}
		if seen.Target.Mover.Running {
			seen.Connection = c.copier.Connect(ctx, link, copying.Pair{
				Reader: mover, Writer: c.moverOf(r, i, record.Target), Pods: [2]types.UID{reader.Pod, seen.Target.Mover.Pod},
				Addresses: seen.Target.Mover.IPs,
				// If all data is copied during the stop, waiting for the direct way is worth it.
				Urgent: !r.Down.IsZero() && !r.Claims[i].CopiedInStop(),
			}, client, seen.Copy)
		}
		if why := link.LastError(); why != "" && !seen.Copy.Connected {
			// The movers themselves do not know how their connections are made.
			seen.Copy.ConnectionError = why
		}
	}
	o.Advanced = w.progress.note(*o)
}

// closeLinks ends all connections.
func (w *activeMove) closeLinks() {
	for _, claim := range w.claims {
		claim.link.Close()
		claim.link = &copying.Link{}
	}
}

// progress records when the copies of a move last made progress.
type progress struct {
	phase  v1alpha1.MovePhase
	claims []copying.Furthest
	at     time.Time
}

// note compares the copies with before, and returns when one of them last made progress.
func (a *progress) note(o steps.Observation) time.Time {
	if a.phase != o.Record.Phase || len(a.claims) != len(o.Claims) {
		*a = progress{phase: o.Record.Phase, claims: make([]copying.Furthest, len(o.Claims)), at: o.Now}
	}
	for i := range o.Claims {
		if copied := o.Claims[i].Copy; copied != nil && copied.Task != nil && a.claims[i].Note(copied.Task) {
			a.at = o.Now
		}
	}
	return a.at
}
