package snapshot

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Limits is how many volumes can be attached to a node, by CSI driver; drivers without a limit are
// left out.
type Limits map[string]int

// maxClaims limits the claims of one pod that count, and the claims of one node that a decision
// looks up: no node has nearly as many volumes.
const maxClaims = 512

// HomeDriver returns the CSI driver that would make the volume of a claim of a virtual class at
// home; empty if it is not known.
func (s *Snapshot) HomeDriver(class *Class, claim *Claim) string {
	name, err := class.RealClassName(keys.Home, claim.Choice)
	if err != nil {
		return ""
	}
	real, _ := s.HomeClasses.Resolve(name)
	return real.Provisioner
}

// tally has the drivers of the claims of a node.
type tally struct {
	// drivers has the claims whose volume is of a CSI driver. That never changes.
	drivers map[string]string
	counts  map[string]int
	// rest has the claims whose driver may still change.
	rest []string
}

// CanAttach reports whether the volumes of these claims, given by their keys in ascending order,
// can be attached to a node, as far as the limit of a CSI driver goes. It counts what is attached
// there and what is being made for the node at now.
func (s *Snapshot) CanAttach(node, driver string, wanted []string, now time.Time) bool {
	limits, limited := s.Limits.Get(node)
	if !limited {
		return true
	}
	limit, limited := limits[driver]
	if !limited {
		return true
	}
	if len(wanted) > limit {
		return false
	}
	if len(wanted)+s.Assigned.atMost()+s.InFlight.atMost() <= limit {
		return true
	}
	here, coming := s.Assigned.on(node), s.InFlight.on(node)
	most := len(wanted)
	if here != nil {
		most += here.claims
	}
	if coming != nil {
		most += coming.claims
	}
	// The drivers of the claims matter only on a node that has many.
	return most <= limit || len(wanted)+s.attached(here, coming, driver, wanted, now) <= limit
}

// attached returns how many claims other than own have a volume of a driver. Entries that end by
// themselves count until then.
func (s *Snapshot) attached(here, coming *nodeUse, driver string, own []string, now time.Time) int {
	count := 0
	var unsure []string
	var drivers map[string]string
	if here != nil {
		known := s.tallyOf(here)
		count, drivers, unsure = known.counts[driver], known.drivers, known.rest
		for _, key := range own {
			if drivers[key] == driver {
				count--
			}
		}
	}
	if coming != nil {
		// Appending must not write into the tally's own list.
		unsure = slices.Clip(unsure)
		for _, user := range coming.users {
			if user.until.IsZero() || now.Before(user.until) {
				unsure = append(unsure, user.claims...)
			}
		}
	}
	var looked map[string]bool
	for _, key := range unsure[:min(len(unsure), maxClaims)] {
		if _, mine := slices.BinarySearch(own, key); mine || looked[key] {
			continue
		}
		if _, known := drivers[key]; known {
			continue
		}
		if looked == nil {
			looked = map[string]bool{}
		}
		looked[key] = true
		if found, _ := s.driverOf(key); found == driver {
			count++
		}
	}
	return count
}

// tallyOf returns the drivers of the claims of a node's pods. It is computed once after each change
// of the node's pods.
func (s *Snapshot) tallyOf(node *nodeUse) *tally {
	if known := node.tally.Load(); known != nil {
		return known
	}
	t := &tally{drivers: map[string]string{}, counts: map[string]int{}}
	seen := make(map[string]bool, node.claims)
	for _, user := range node.users {
		for _, key := range user.claims {
			if seen[key] {
				continue
			}
			seen[key] = true
			driver, final := s.driverOf(key)
			switch {
			case !final:
				t.rest = append(t.rest, key)
			case driver != "":
				t.drivers[key] = driver
				t.counts[driver]++
			}
		}
	}
	node.tally.Store(t)
	return t
}

// driverOf returns the CSI driver of a claim's volume, or of the volume that the claim would get at
// home; empty if there is none. final says that it can no longer change.
func (s *Snapshot) driverOf(key string) (driver string, final bool) {
	claim, ok := s.Claims.Get(key)
	if !ok {
		return "", false
	}
	if volume, ok := s.VolumeOf(claim); ok {
		return volume.Driver, true
	}
	if claim.VolumeName != "" {
		return "", false
	}
	if class, ok := s.Classes.Get(claim.ClassName); ok {
		return s.HomeDriver(class, claim), false
	}
	if claim.ClassName == "" {
		return "", false
	}
	real, _ := s.HomeClasses.Resolve(claim.ClassName)
	return real.Provisioner, false
}

// Use is what one user has on a node: a user is a pod that runs there, or a claim whose volume is
// being made for that node.
type Use struct {
	Node string
	// Claims are keys of Snapshot.Claims.
	Claims []string
	// Until is when it ends by itself; zero for a use that does not.
	Until time.Time
}

// Limits for the claims of all users of one node, since each change copies them: more than can be
// attached to a node, and more than are made for it at a time. Only a virtual node, which has no
// limit, has more; and anybody who makes pods or claims can write a node's name into them.
const (
	maxAssigned = 1024
	maxInFlight = 256
)

// Usage has the claims in use on each node. Each user has a key. Readers never wait. Uses that have
// ended by themselves stay until dropEnded or another change of the user; readers compare with the
// time.
type Usage struct {
	max     int
	users   *Table[Use]
	nodes   *Table[*nodeUse]
	writers sync.Mutex
	// ends has the users whose use ends by itself.
	ends    map[string]time.Time
	busiest busiest
}

// nodeUse has the uses of one node. Only tally changes once it is stored.
type nodeUse struct {
	users []user
	// claims is the sum of the users' claims; a shared claim counts for each user.
	claims int
	tally  atomic.Pointer[tally]
}

type user struct {
	key    string
	claims []string
	until  time.Time
}

// NewUsage returns an empty Usage, which keeps at most so many claims of one node.
func NewUsage(most int) *Usage {
	return &Usage{
		max: most, users: NewTable[Use](manyShards), nodes: NewTable[*nodeUse](manyShards), ends: map[string]time.Time{},
		busiest: newBusiest(most),
	}
}

// Len returns the number of users.
func (u *Usage) Len() int {
	return u.users.Len()
}

// Set stores what a user uses, unless that would be too much for one node.
func (u *Usage) Set(key string, use Use) {
	old, had := u.users.Get(key)
	if had && old.Node == use.Node && old.Until.Equal(use.Until) && slices.Equal(old.Claims, use.Claims) {
		return
	}
	u.writers.Lock()
	defer u.writers.Unlock()
	u.remove(key)
	node, known := u.nodes.Get(use.Node)
	if !known {
		node = &nodeUse{}
	}
	if node.claims+len(use.Claims) > u.max {
		return
	}
	u.users.Set(key, use)
	if !use.Until.IsZero() {
		u.ends[key] = use.Until
	}
	users := make([]user, 0, len(node.users)+1)
	node = newNodeUse(append(append(users, node.users...), user{key: key, claims: use.Claims, until: use.Until}))
	u.busiest.set(use.Node, node.claims)
	u.nodes.Set(use.Node, node)
}

// Delete removes a user, if it is there.
func (u *Usage) Delete(key string) {
	if _, ok := u.users.Get(key); !ok {
		return
	}
	u.writers.Lock()
	defer u.writers.Unlock()
	u.remove(key)
}

// dropEnded removes the users that have ended by themselves.
func (u *Usage) dropEnded(now time.Time) {
	u.writers.Lock()
	defer u.writers.Unlock()
	for key, until := range u.ends {
		if !now.Before(until) {
			u.remove(key)
		}
	}
}

// remove is Delete for a caller that holds the writers' lock.
func (u *Usage) remove(key string) {
	use, ok := u.users.Get(key)
	if !ok {
		return
	}
	u.users.Delete(key)
	delete(u.ends, key)
	node, ok := u.nodes.Get(use.Node)
	if !ok {
		return
	}
	left := make([]user, 0, len(node.users))
	for _, user := range node.users {
		if user.key != key {
			left = append(left, user)
		}
	}
	if len(left) == 0 {
		u.nodes.Delete(use.Node)
		u.busiest.set(use.Node, 0)
		return
	}
	node = newNodeUse(left)
	u.nodes.Set(use.Node, node)
	u.busiest.set(use.Node, node.claims)
}

// Replace replaces the whole content by uses.
func (u *Usage) Replace(uses map[string]Use) {
	u.writers.Lock()
	defer u.writers.Unlock()
	ends := map[string]time.Time{}
	nodes := map[string]*nodeUse{}
	kept := make(map[string]Use, len(uses))
	for key, use := range uses {
		node := nodes[use.Node]
		if node == nil {
			node = &nodeUse{}
			nodes[use.Node] = node
		}
		if node.claims+len(use.Claims) > u.max {
			continue
		}
		node.users = append(node.users, user{key: key, claims: use.Claims, until: use.Until})
		node.claims += len(use.Claims)
		kept[key] = use
		if !use.Until.IsZero() {
			ends[key] = use.Until
		}
	}
	// A reader of the old nodes must not read the new maximum if that is lower.
	for name, node := range nodes {
		node.users = slices.Clip(node.users)
		u.busiest.set(name, max(node.claims, u.busiest.nodes[name].claims))
	}
	u.users.Replace(kept)
	u.nodes.Replace(nodes)
	u.ends = ends
	for _, name := range slices.Collect(maps.Keys(u.busiest.nodes)) {
		claims := 0
		if node := nodes[name]; node != nil {
			claims = node.claims
		}
		u.busiest.set(name, claims)
	}
}

func newNodeUse(users []user) *nodeUse {
	node := &nodeUse{users: users}
	for _, user := range users {
		node.claims += len(user.claims)
	}
	return node
}

// limit records whether a node has an attach limit.
func (u *Usage) limit(node string, limited bool) {
	u.writers.Lock()
	defer u.writers.Unlock()
	u.busiest.limit(node, limited)
}

// limitOnly records which nodes have an attach limit: all others have none.
func (u *Usage) limitOnly(nodes map[string]Limits) {
	u.writers.Lock()
	defer u.writers.Unlock()
	for _, node := range slices.Collect(maps.Keys(u.busiest.nodes)) {
		if _, limited := nodes[node]; !limited {
			u.busiest.limit(node, false)
		}
	}
}

// atMost returns the highest number of claims on any node with an attach limit, or more.
func (u *Usage) atMost() int {
	return int(u.busiest.top.Load())
}

// on returns the uses of a node; nil for none.
func (u *Usage) on(node string) *nodeUse {
	if u.nodes.Len() == 0 {
		return nil
	}
	found, _ := u.nodes.Get(node)
	return found
}

// busiest maintains the highest number of claims on any node with an attach limit. Most nodes are
// far below their limit, and then this one number proves it. Anybody who makes a claim can write
// the name of a node into it that does not exist: such nodes do not count. Writers take turns; top
// may be read at any time.
type busiest struct {
	// nodes has those with claims or a limit.
	nodes map[string]load
	// nodesWith is the number of nodes with a limit, by their number of claims.
	nodesWith []int
	top       atomic.Int64
}

// load is how many claims a node has, and whether it has an attach limit.
type load struct {
	claims  int
	limited bool
}

// newBusiest returns a busiest without nodes, in which no node can have more than most claims.
func newBusiest(most int) busiest {
	return busiest{nodes: map[string]load{}, nodesWith: make([]int, most+1)}
}

// set records the number of claims of a node.
func (p *busiest) set(node string, claims int) {
	was := p.nodes[node]
	p.put(node, load{claims: claims, limited: was.limited})
	if was.limited {
		p.nodesWith[was.claims]--
		p.nodesWith[claims]++
		p.update(claims)
	}
}

// limit records whether a node has an attach limit.
func (p *busiest) limit(node string, limited bool) {
	was := p.nodes[node]
	if was.limited == limited {
		return
	}
	p.put(node, load{claims: was.claims, limited: limited})
	if limited {
		p.nodesWith[was.claims]++
	} else {
		p.nodesWith[was.claims]--
	}
	p.update(was.claims)
}

func (p *busiest) put(node string, has load) {
	if has == (load{}) {
		delete(p.nodes, node)
		return
	}
	p.nodes[node] = has
}

// update corrects the maximum after a node got, or lost, so many claims.
func (p *busiest) update(claims int) {
	top := max(int(p.top.Load()), claims)
	for top > 0 && p.nodesWith[top] == 0 {
		top--
	}
	p.top.Store(int64(top))
}

// NodeLimits are the attach limits of nodes, by node name.
type NodeLimits struct {
	*Table[Limits]
	usages []*Usage
}

// Set stores the limits of a node.
func (l NodeLimits) Set(node string, limits Limits) {
	// A reader of the limit must read a maximum that counts the node.
	for _, usage := range l.usages {
		usage.limit(node, true)
	}
	l.Table.Set(node, limits)
}

// Delete removes the limits of a node, if it has any.
func (l NodeLimits) Delete(node string) {
	l.Table.Delete(node)
	for _, usage := range l.usages {
		usage.limit(node, false)
	}
}

// Replace replaces the whole content by limits.
func (l NodeLimits) Replace(limits map[string]Limits) {
	for _, usage := range l.usages {
		for node := range limits {
			usage.limit(node, true)
		}
	}
	l.Table.Replace(limits)
	for _, usage := range l.usages {
		usage.limitOnly(limits)
	}
}

// How long a claim counts on the node that was chosen for it. A pod that is never started, or whose
// user wrote the node's name, must not block an attachment for ever.
const (
	// whileMade begins when the node is first seen on a claim without a volume.
	whileMade = time.Minute
	// untilAssigned begins when the claim has its volume. kube-scheduler checks that once a second,
	// and only then binds the pod to the node.
	untilAssigned = 5 * time.Second
	// sweepEvery is how often expired entries are removed.
	sweepEvery = 10 * time.Second
)

// flightOf returns the node for which a claim's volume is being made, or was just made, and until
// when that counts. before is the earlier state of the claim; nil if it is new. flying is what this
// function returned for it. A claim that has its volume when it is first seen, as in the first
// list, no longer counts.
func flightOf(key string, before, after *Claim, flying Use, now time.Time) (use Use, ok bool) {
	count := func(node string, lasts time.Duration) (Use, bool) {
		return Use{Node: node, Claims: []string{key}, Until: now.Add(lasts)}, true
	}
	made, wasMade := after.VolumeName != "", before != nil && before.VolumeName != ""
	switch {
	case !made && after.SelectedNode == "":
		return Use{}, false
	case !made && (before == nil || wasMade || before.SelectedNode != after.SelectedNode):
		return count(after.SelectedNode, whileMade)
	case made && before == nil:
		return Use{}, false
	case made && !wasMade && before.SelectedNode != "":
		return count(before.SelectedNode, untilAssigned)
	}
	// No relevant field has changed, so the time does not start again.
	return flying, flying.Node != ""
}

// Claims stores claims by their key: in Snapshot.Claims and, while their volumes are being made for
// a node, in Snapshot.InFlight. One goroutine writes.
type Claims struct {
	claims   *Table[*Claim]
	inFlight *Usage
	now      func() time.Time
	swept    time.Time
}

// ClaimStore returns the writer of the claims; now returns the time.
func (s *Snapshot) ClaimStore(now func() time.Time) *Claims {
	return &Claims{claims: s.Claims, inFlight: s.InFlight, now: now}
}

// Set stores a claim.
func (c *Claims) Set(key string, claim *Claim) {
	now := c.now()
	use, ok := c.flight(key, claim, now)
	c.claims.Set(key, claim)
	if ok {
		c.inFlight.Set(key, use)
	} else {
		c.inFlight.Delete(key)
	}
	if now.Sub(c.swept) >= sweepEvery {
		c.swept = now
		c.inFlight.dropEnded(now)
	}
}

// Delete removes a claim, if it is there.
func (c *Claims) Delete(key string) {
	c.claims.Delete(key)
	c.inFlight.Delete(key)
}

// Replace replaces the whole content by claims.
func (c *Claims) Replace(claims map[string]*Claim) {
	now := c.now()
	uses := map[string]Use{}
	for key, claim := range claims {
		if use, ok := c.flight(key, claim, now); ok && now.Before(use.Until) {
			uses[key] = use
		}
	}
	c.claims.Replace(claims)
	c.inFlight.Replace(uses)
	c.swept = now
}

// flight returns the use of a claim that is about to be stored, if its volume is being made.
func (c *Claims) flight(key string, claim *Claim, now time.Time) (Use, bool) {
	before, ok := c.claims.Get(key)
	if !ok || before.UID != claim.UID {
		before = nil
	}
	flying, _ := c.inFlight.users.Get(key)
	return flightOf(key, before, claim, flying, now)
}

// Len returns the number of claims.
func (c *Claims) Len() int {
	return c.claims.Len()
}
