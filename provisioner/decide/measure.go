package decide

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// measured adds to the step of a claim without a node that no cluster that it may go
// to has room for it: kube-scheduler says that on the pod alone, and not how much
// there is. It is said only where that is known of each of them.
func measured(o Observation, class virtualclass.Class, step Step) Step {
	if step.Verb != Idle || step.Tell != nil {
		return step
	}
	at, largest := "", resource.Quantity{}
	for _, id := range slices.Sorted(maps.Keys(o.Places)) {
		limit := o.Places[id]
		switch {
		case !class.Allows(id), id != keys.Home && !namespaces.MayUse(o.Namespace, id):
			continue
		case limit == nil:
			return step
		case at == "" || limit.Cmp(largest) > 0:
			at, largest = id, *limit
		}
	}
	if at == "" {
		return step
	}
	// What room there is changes, and nothing wakes the claim then.
	step.After = sooner(step.After, troubleAgain)
	asked := requested(o.Claim)
	if asked.Cmp(largest) <= 0 {
		return step
	}
	if left := askAfter - o.Now.Sub(o.Claim.CreationTimestamp.Time); left > 0 {
		step.After = sooner(step.After, left+time.Millisecond)
		return step
	}
	step.Tell = warn("TooLarge", fmt.Sprintf("the claim asks for %s, and no cluster that it may go to has room for a volume of that size: the most is %s, in %s; ask for less, or have room made",
		asked.String(), readable(largest), where(at)))
	return step
}

// readable writes a size in bytes as people do, and says no more than there is.
func readable(size resource.Quantity) string {
	for _, unit := range []int64{1 << 30, 1 << 20} {
		if size.Value() >= 10*unit {
			return resource.NewQuantity(size.Value()/unit*unit, resource.BinarySI).String()
		}
	}
	return size.String()
}
