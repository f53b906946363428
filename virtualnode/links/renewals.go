package links

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// renewals remember when entries of home's NetworkLinks were renewed, as this program saw it: the clock of the node that wrote the time
// into an entry may be wrong. They are safe for concurrent use.
type renewals struct {
	mu   sync.Mutex
	seen map[string]map[entry]renewal // by the name of the link
}

// entry names a gateway or a pod that probes.
type entry struct{ gateway, pod string }

// renewal is the time in an entry, and when that was seen first.
type renewal struct{ written, seen time.Time }

// local returns a link whose entries have the times at which they were renewed by this program's clock. The first time that one is seen it
// is as old as it says, and of now at the latest. A link that is nil stays so, and of one that is gone nothing is remembered.
func (r *renewals) local(name string, link *networkv1alpha1.NetworkLink, now time.Time) *networkv1alpha1.NetworkLink {
	r.mu.Lock()
	defer r.mu.Unlock()
	if link == nil {
		delete(r.seen, name)
		return nil
	}
	before, after := r.seen[name], map[entry]renewal{}
	at := func(e entry, written metav1.Time) metav1.Time {
		known, is := before[e]
		switch {
		case is && known.written.Equal(written.Time):
			after[e] = known
		case is || written.After(now):
			after[e] = renewal{written.Time, now}
		default:
			after[e] = renewal{written.Time, written.Time}
		}
		return metav1.NewTime(after[e].seen)
	}
	own := *link
	own.Status.Gateways, own.Status.Probes = slices.Clone(link.Status.Gateways), slices.Clone(link.Status.Probes)
	for i, g := range own.Status.Gateways {
		own.Status.Gateways[i].RenewTime = at(entry{gateway: g.Name}, g.RenewTime)
	}
	for i, p := range own.Status.Probes {
		own.Status.Probes[i].RenewTime = at(entry{pod: p.Name}, p.RenewTime)
	}
	if r.seen == nil {
		r.seen = map[string]map[entry]renewal{}
	}
	r.seen[name] = after
	return &own
}
