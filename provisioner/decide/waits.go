package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// troubleAgain is when a trouble that lasts is told again: events are forgotten after an hour.
const troubleAgain = 5 * time.Minute

// again has a trouble told again.
func again(step Step) Step {
	if step.Verb == Idle && step.Trouble != "" && step.Tell != nil && step.After == 0 {
		step.After = troubleAgain
	}
	return step
}

// Waits names what a claim waits for in a remote cluster, empty for nothing. Since when it
// does is by the clock here: that of another cluster may be wrong, by mistake or on purpose.
func Waits(o Observation) string {
	if o.Volume == nil {
		for _, b := range o.Backings {
			if b.Cluster != keys.Home && b.Claim.Status.Phase != corev1.ClaimBound {
				return "bound " + string(b.Claim.UID)
			}
		}
		return ""
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil || ref.Cluster == keys.Home {
		return ""
	}
	b, state := find(o, ref.Cluster), ""
	if o.Real != nil && o.Real.Labels[keys.Healing] != "" {
		state = "healed " + string(o.Real.Status.Phase)
	}
	switch {
	case b == nil:
	case b.Claim.DeletionTimestamp != nil:
		state += " deleted " + string(b.Claim.UID)
	case state != "":
		state += " " + string(b.Claim.UID)
	}
	return state
}

// long says whether a claim has waited for longer than other programs usually take.
func long(o Observation) bool { return o.Now.Sub(o.WaitsSince) >= slow }

func awaitBound(o Observation, b Backing, to route.Route) Step {
	step := Step{Verb: Idle, After: slow}
	text := fmt.Sprintf("waiting for real claim %s/%s of storage class %q in %s to be bound", b.Claim.Namespace, b.Claim.Name, to.Class.Name, where(to.Cluster))
	if said := words(o, b); said != "" {
		step.Tell = warn("WaitingForBacking", text+": "+said)
	} else {
		step.Tell = note("WaitingForBacking", text+": see its events there")
		if since := madeAt(o, b); o.Now.Sub(since) < slow {
			step.Tell = nil
		}
	}
	if waited := o.Now.Sub(madeAt(o, b)); waited < overdue {
		step.After = sooner(step.After, overdue-waited+time.Millisecond)
	} else {
		// There is no volume yet that could be in trouble, but to its user it is the same.
		step.Trouble, step.Backing, step.Shows = backingPending, b, step.Tell.Text
	}
	return asked(o, b, madeAt(o, b), step)
}

// madeAt is since when a backing claim that waits is there.
func madeAt(o Observation, b Backing) time.Time {
	if b.Cluster != keys.Home {
		return o.WaitsSince
	}
	return b.Claim.CreationTimestamp.Time
}
