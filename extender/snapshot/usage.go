package snapshot

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Use is what one user has on a node: a pod that runs there, or a claim whose
// volume is being made for that node.
type Use struct {
	Node string
	// Claims are keys of Snapshot.Claims.
	Claims []string
	// Until is when it ends by itself; zero for what does not.
	Until time.Time
}

// These bound the claims of all users of one node, since each change copies them:
// more than a node can have attached, and than are made for it at a time. Only a
// virtual node, where there is no limit, has more; and whoever makes pods or
// claims can write a node's name into them.
const (
	maxAssigned = 1024
	maxInFlight = 256
)

// Usage says which claims are in use on which node. Each user has a key. Readers
// never wait. What ended by itself stays, for who reads knows the time, until
// dropEnded or another change of the user.
type Usage struct {
	max     int
	users   *Table[Use]
	nodes   *Table[*nodeUse]
	writers sync.Mutex
	// ends has the users that end by themselves.
	ends map[string]time.Time
	peak peak
}

// nodeUse is what is used on one node. Only tally changes once it is stored.
type nodeUse struct {
	users []user
	// claims is how many claims the users have, shared ones as often as they are
	// used.
	claims int
	tally  atomic.Pointer[tally]
}

type user struct {
	key    string
	claims []string
	until  time.Time
}

// NewUsage returns a Usage of nothing, which keeps at most so many claims of one
// node.
func NewUsage(most int) *Usage {
	return &Usage{
		max: most, users: NewTable[Use](manyShards), nodes: NewTable[*nodeUse](manyShards), ends: map[string]time.Time{}, peak: newPeak(most),
	}
}

// Len returns the number of users.
func (u *Usage) Len() int {
	return u.users.Len()
}

// Set stores what a user uses; not where that would be too much for one node.
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
	u.peak.set(use.Node, node.claims)
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

// remove does what Delete does; the caller is the only writer.
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
		u.peak.set(use.Node, 0)
		return
	}
	node = newNodeUse(left)
	u.nodes.Set(use.Node, node)
	u.peak.set(use.Node, node.claims)
}

// Replace makes uses the whole content.
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
	// A reader that sees the old nodes must not see the new peak, if that is lower.
	for name, node := range nodes {
		node.users = slices.Clip(node.users)
		u.peak.set(name, max(node.claims, u.peak.claims[name]))
	}
	u.users.Replace(kept)
	u.nodes.Replace(nodes)
	u.ends = ends
	for _, name := range slices.Collect(maps.Keys(u.peak.claims)) {
		claims := 0
		if node := nodes[name]; node != nil {
			claims = node.claims
		}
		u.peak.set(name, claims)
	}
}

func newNodeUse(users []user) *nodeUse {
	node := &nodeUse{users: users}
	for _, user := range users {
		node.claims += len(user.claims)
	}
	return node
}

// limit says whether a node has an attach limit.
func (u *Usage) limit(node string, limited bool) {
	u.writers.Lock()
	defer u.writers.Unlock()
	u.peak.limit(node, limited)
}

// limitOnly says which nodes have an attach limit: no others do.
func (u *Usage) limitOnly(nodes map[string]Limits) {
	u.writers.Lock()
	defer u.writers.Unlock()
	for _, node := range slices.Collect(maps.Keys(u.peak.limited)) {
		if _, limited := nodes[node]; !limited {
			u.peak.limit(node, false)
		}
	}
}

// atMost returns how many claims no node with an attach limit has more than.
func (u *Usage) atMost() int {
	return int(u.peak.top.Load())
}

// on returns what is used on a node; nil for nothing.
func (u *Usage) on(node string) *nodeUse {
	if u.nodes.Len() == 0 {
		return nil
	}
	found, _ := u.nodes.Get(node)
	return found
}
