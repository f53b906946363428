// Package score computes which clusters a pod should run in because of its data, and how strongly:
// NewGravity takes a snapshot and a pod, Gravity.Scale returns a Mark for each candidate cluster.
// It is pure.
package score

import (
	"math"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Max is the highest score that kube-scheduler takes from an extender.
const Max = 10

// A score is the mean of the pulls that exist for a pod, weighted by these. Remote data costs with
// every read, so it outweighs the others together; remote siblings cost when they talk to each
// other; room decides only where nothing else does.
const (
	weightOfData     = 6
	weightOfSiblings = 3
	weightOfRoom     = 1
)

// maxNew limits for how many claims without a volume siblings and room are looked up: the pod's
// user writes that list.
const maxNew = 16

// Gravity has what attracts a pod to clusters.
type Gravity struct {
	claims   []snapshot.PodClaim
	data     data
	siblings siblings
	room     room
}

// NewGravity returns what attracts a pod, by the state of view.
func NewGravity(view *snapshot.Snapshot, pod snapshot.Pod) *Gravity {
	g := &Gravity{room: room{view: view}}
	if len(pod.Volumes) == 0 && len(pod.Near) == 0 {
		return g
	}
	g.claims = append(view.ClaimsOf(pod), view.ClaimsNear(pod)...)
	for _, claim := range g.claims {
		if claim.VolumeName != "" {
			g.data.add(claim)
			continue
		}
		class, virtual := view.Classes.Get(claim.ClassName)
		if claim.Near || !virtual || class.Invalid || len(g.room.demands) == maxNew {
			continue
		}
		rule := class.Siblings()
		if pod.Spreads && rule == keys.SiblingsPack {
			// What the pod itself asks for comes before what its class says for all.
			rule = keys.SiblingsIgnore
		}
		g.siblings.add(view, pod, claim, rule)
		// Where kube-scheduler spreads the pods, a cluster with more room must not gather them.
		g.room.level = g.room.level || pod.Spreads || (pod.Follows() && rule == keys.SiblingsIgnore)
		g.room.demands = append(g.room.demands, demand{claim: claim.Claim, class: class})
	}
	return g
}

// None reports whether nothing attracts the pod anywhere, whatever the candidates are.
func (g *Gravity) None() bool {
	return g.data.total == 0 && g.siblings.none() && len(g.room.demands) == 0
}

// Claims returns the claims that counted.
func (g *Gravity) Claims() []snapshot.PodClaim {
	return g.claims
}

// Mark is the score of a cluster's nodes with its parts, as /explain shows it.
type Mark struct {
	Cluster string `json:"cluster"`
	// Score is from 0 to Max.
	Score int64 `json:"score"`
	// Data, Siblings and Room are nil if they do not count for the pod.
	Data     *Data     `json:"data,omitempty"`
	Siblings *Siblings `json:"siblings,omitempty"`
	Room     *Room     `json:"room,omitempty"`
}

// Scale has a mark for each candidate cluster.
type Scale map[string]Mark

// Scale returns the marks of the candidate clusters, each of which may be named many times; an
// empty name is no cluster. The result is empty if all would get the same score: then no node is
// preferred.
func (g *Gravity) Scale(candidates []string) Scale {
	scale := Scale{}
	var clusters []string
	last := ""
	for _, cluster := range candidates {
		if cluster == last || cluster == "" {
			continue
		}
		last = cluster
		if _, again := scale[cluster]; !again {
			scale[cluster] = Mark{Cluster: cluster}
			clusters = append(clusters, cluster)
		}
	}
	g.room.measure(clusters)
	g.siblings.compare(clusters)
	applies := false
	for _, cluster := range clusters {
		mark := g.mark(cluster)
		applies = applies || mark.Data != nil || mark.Siblings != nil || mark.Room != nil
		scale[cluster] = mark
	}
	if !applies {
		return nil
	}
	return scale
}

// Of returns the score of a node in a cluster.
func (s Scale) Of(cluster string) int64 {
	return s[cluster].Score
}

func (g *Gravity) mark(cluster string) Mark {
	mark := Mark{Cluster: cluster}
	sum, weights := 0.0, 0.0
	weigh := func(pull, weight float64) float64 {
		sum += weight * pull
		weights += weight
		return math.Round(pull*100) / 100
	}
	if found, ok := g.data.in(cluster); ok {
		found.Pull = weigh(found.Pull, weightOfData)
		mark.Data = &found
	}
	if found, ok := g.siblings.in(cluster); ok {
		found.Pull = weigh(found.Pull, weightOfSiblings)
		mark.Siblings = &found
	}
	full := false
	if found, ok := g.room.in(cluster); ok {
		full = found.full()
		found.Pull = weigh(found.Pull, weightOfRoom)
		mark.Room = &found
	}
	// Other attractions of a cluster count nothing if its new volumes have no room there.
	if weights > 0 && !full {
		// A float's error must not turn an exact half into less than a half.
		mark.Score = int64(math.Round(sum/weights*Max + 1e-9))
	}
	return mark
}

// Data is how much of a pod's data is in a cluster: the data of the claims that it mounts and of
// those that it wants to be near. Volumes that may be anywhere do not count.
type Data struct {
	// Pull is the share, from 0 to 1.
	Pull float64 `json:"pull"`
	// Bytes are in the cluster, of Of in all.
	Bytes float64 `json:"bytes"`
	Of    float64 `json:"of"`
}

// data sums up capacities. Sums may exceed an int64; a float is exact enough for ten steps.
type data struct {
	bytes map[string]float64
	total float64
}

func (d *data) add(claim snapshot.PodClaim) {
	cluster, _ := claim.DataIn()
	if cluster == "" || claim.Volume.Bytes <= 0 {
		return
	}
	if d.bytes == nil {
		d.bytes = map[string]float64{}
	}
	d.bytes[cluster] += float64(claim.Volume.Bytes)
	d.total += float64(claim.Volume.Bytes)
}

func (d *data) in(cluster string) (Data, bool) {
	if d.total == 0 {
		return Data{}, false
	}
	here := d.bytes[cluster]
	return Data{Pull: here / d.total, Bytes: here, Of: d.total}, true
}

// Siblings is how many volumes of the other pods of a pod's StatefulSet are in a cluster, and the
// pull by the rule in the class of the pod's own new volume.
type Siblings struct {
	// Pull is from 0 to 1: with the rule pack the share of siblings that is in the cluster; with
	// the rule spread 0 in the candidate cluster that has most of them, 1 where there are none; the
	// mean of both if the pod's classes have different rules.
	Pull   float64 `json:"pull"`
	Pack   *Count  `json:"pack,omitempty"`
	Spread *Count  `json:"spread,omitempty"`
}

// Count is how many siblings are in a cluster, of how many in all.
type Count struct {
	Here int `json:"here"`
	Of   int `json:"of"`
}

type siblings struct {
	pack, spread counts
}

type counts struct {
	in    map[string]int
	total int
	// most is the number of siblings in the candidate cluster that has most.
	most int
}

func (s *siblings) add(view *snapshot.Snapshot, pod snapshot.Pod, claim snapshot.PodClaim, rule string) {
	counted := &s.pack
	switch rule {
	case keys.SiblingsIgnore:
		return
	case keys.SiblingsSpread:
		counted = &s.spread
	}
	for cluster := range view.Siblings(pod, claim) {
		if counted.in == nil {
			counted.in = map[string]int{}
		}
		counted.in[cluster]++
		counted.total++
	}
}

func (s *siblings) none() bool {
	return s.pack.total+s.spread.total == 0
}

// compare finds the candidate cluster with most siblings.
func (s *siblings) compare(candidates []string) {
	s.spread.most = 0
	for _, cluster := range candidates {
		s.spread.most = max(s.spread.most, s.spread.in[cluster])
	}
}

func (s *siblings) in(cluster string) (Siblings, bool) {
	if s.none() {
		return Siblings{}, false
	}
	var found Siblings
	rules := 0.0
	if s.pack.total > 0 {
		found.Pack = s.pack.count(cluster)
		found.Pull += float64(found.Pack.Here) / float64(found.Pack.Of)
		rules++
	}
	if s.spread.total > 0 {
		found.Spread = s.spread.count(cluster)
		found.Pull++
		if s.spread.most > 0 {
			found.Pull -= float64(found.Spread.Here) / float64(s.spread.most)
		}
		rules++
	}
	found.Pull /= rules
	return found, true
}

func (c *counts) count(cluster string) *Count {
	return &Count{Here: c.in[cluster], Of: c.total}
}

// enough is the largest ratio of free to requested room that counts: of two clusters that both have
// plenty, the larger one is no better, and must not get all volumes.
const enough = 100

// Room is how much room a cluster has for the new volumes of a pod.
type Room struct {
	// Pull is from 0 to 1: the ratio of free to requested room, in proportion to that of the
	// candidate cluster with the highest. It is 0 if there is too little room, and a half if the
	// room is not known. For a pod that is spread it is 1 unless there is too little room.
	Pull float64 `json:"pull"`
	// Class is the real class with the lowest ratio: Asked bytes are requested of it, and Free are
	// left. Empty: the room is not known.
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
	// level says that more room draws no more than less: only too little counts.
	level bool
	found map[string]Room
	most  float64
	// full says that a candidate cluster has too little room.
	full bool
}

type demand struct {
	claim *snapshot.Claim
	class *snapshot.Class
}

// measure computes the room in each candidate cluster. If it is known for only one cluster, or all
// room is alike to the pod, there is nothing to compare unless a cluster is full.
func (r *room) measure(candidates []string) {
	r.found, r.most, r.full = nil, 0, false
	if len(r.demands) == 0 {
		return
	}
	r.found = make(map[string]Room, len(candidates))
	for _, cluster := range candidates {
		if found, known := r.least(cluster); known {
			r.found[cluster] = found
			r.most = max(r.most, times(found))
			r.full = r.full || found.full()
		}
	}
	if !r.full && (r.level || len(r.found) < 2) {
		r.found = nil
	}
}

func (r *room) in(cluster string) (Room, bool) {
	found, known := r.found[cluster]
	switch {
	case len(r.found) == 0:
		return Room{}, false
	case r.level && !found.full():
		found.Pull = 1
	case !known:
		found.Pull = 0.5
	case r.most > 0:
		found.Pull = times(found) / r.most
	}
	return found, true
}

// least returns the room of the real class with the lowest ratio of free room to what all claims
// together request of it; false if that of any class is not known.
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

// times returns the ratio of free to requested room, at most enough.
func times(r Room) float64 {
	if r.full() {
		return 0
	}
	return min(enough, r.Free/max(1, r.Asked))
}
