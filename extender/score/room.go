package score

import "github.com/lodestone-storage/lodestone/extender/snapshot"

// enough is how many times what is asked for counts as all the room that one may
// want: of two clusters that both have plenty, the larger one is no better, and
// must not draw everything to itself.
const enough = 100

// Room is how much room a cluster has for the new volumes of a pod.
type Room struct {
	// Pull is from 0 to 1: how many times what is asked for there is room, in
	// proportion to the candidate cluster that has most. It is 0 where there is
	// too little, and half where nothing is known.
	Pull float64 `json:"pull"`
	// Class is the real class of which there is least, for what is asked of it:
	// Asked bytes, where Free are left. Empty: it is not known how much room
	// there is.
	Class string  `json:"class,omitempty"`
	Free  float64 `json:"free,omitempty"`
	Asked float64 `json:"asked,omitempty"`
}

func (r Room) full() bool {
	return r.Class != "" && r.Free < r.Asked
}

// room compares the room for a pod's claims without a volume.
type room struct {
	view    *snapshot.Snapshot
	demands []demand
	found   map[string]Room
	most    float64
}

type demand struct {
	claim *snapshot.Claim
	class *snapshot.Class
}

// measure finds out the room in each candidate cluster. Where it is known of a
// single one there is nothing to compare, unless that one is full.
func (r *room) measure(candidates []string) {
	r.found, r.most = nil, 0
	if len(r.demands) == 0 {
		return
	}
	r.found = make(map[string]Room, len(candidates))
	for _, cluster := range candidates {
		if found, known := r.least(cluster); known {
			r.found[cluster] = found
			r.most = max(r.most, times(found))
		}
	}
	if len(r.found) > 1 {
		return
	}
	for cluster, only := range r.found {
		if !only.full() {
			delete(r.found, cluster)
		}
	}
}

func (r *room) in(cluster string) (Room, bool) {
	found, known := r.found[cluster]
	switch {
	case !known:
		return Room{Pull: 0.5}, len(r.found) > 0
	case r.most > 0:
		found.Pull = times(found) / r.most
	}
	return found, true
}

// least returns the room of the real class of which there is least, for what all
// the claims together ask of it; false if any is not known.
func (r *room) least(cluster string) (Room, bool) {
	var classes []Room
	for _, d := range r.demands {
		name, free, known := r.view.RoomFor(d.class, d.claim, cluster)
		if !known {
			return Room{}, false
		}
		i := 0
		for i < len(classes) && classes[i].Class != name {
			i++
		}
		if i == len(classes) {
			classes = append(classes, Room{Class: name, Free: free})
		}
		classes[i].Asked += float64(d.claim.Asked)
	}
	least := classes[0]
	for _, class := range classes[1:] {
		if class.Free/max(1, class.Asked) < least.Free/max(1, least.Asked) {
			least = class
		}
	}
	return least, true
}

// times returns how many times what is asked for there is room, at most enough.
func times(r Room) float64 {
	if r.full() {
		return 0
	}
	return min(enough, r.Free/max(1, r.Asked))
}
