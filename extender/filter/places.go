package filter

import (
	"time"

	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// maxPlaces bounds how many refusals of all claims of a pod count. What goes
// beyond costs a try: the place refuses again.
const maxPlaces = 4096

// place is a node of a cluster, or a whole cluster where node is empty.
type place struct{ cluster, node string }

// places are the places that refused a claim lately. The zero value is empty.
type places struct {
	set map[place]struct{}
	// read counts the refusals that were read, also those that have ended.
	read int
}

// add adds those of the refusals that hold at now.
func (p *places) add(refusals []refusal.Refusal, now time.Time) {
	for i := range refusals {
		if p.read++; p.read > maxPlaces {
			return
		}
		r := &refusals[i]
		if !now.Before(r.Until) {
			continue
		}
		if p.set == nil {
			p.set = map[place]struct{}{}
		}
		p.set[place{cluster: r.Cluster, node: r.Node}] = struct{}{}
	}
}

// has says whether a node, or all of its cluster, is among them.
func (p *places) has(cluster, node string) bool {
	if len(p.set) == 0 {
		return false
	}
	if _, all := p.set[place{cluster: cluster}]; all {
		return true
	}
	_, one := p.set[place{cluster: cluster, node: node}]
	return one
}
