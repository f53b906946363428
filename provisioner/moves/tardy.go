package moves

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
)

// keysAfter is how long a mover that was started may take to run before it gets its keys
// again, and then again: less than people wait, more than most images take to be pulled.
const keysAfter = 20 * time.Second

// tardy are the pods of movers that were started, have a node and do not run, and when each
// is to get its keys again, by the clock of home.
type tardy map[types.UID]time.Time

// see notes such movers, and says which of them may lack their keys.
func (t *tardy) see(o *decide.Observation) {
	next := tardy{}
	for i := range o.Claims {
		seen := &o.Claims[i]
		for _, m := range []*decide.Mover{&seen.Source.Mover, &seen.Target.Mover, &seen.Snapshot.Mover} {
			if m.Pod == "" || m.Node == "" || m.Running || m.Unstarted || m.Leaving || m.Ended {
				continue
			}
			at, known := (*t)[m.Pod]
			m.Keyless = known && !o.Now.Before(at)
			if !known || m.Keyless {
				at = o.Now.Add(keysAfter)
			}
			next[m.Pod] = at
		}
	}
	*t = next
}
