package snapshot

import (
	"slices"
	"sync/atomic"
)

// Use is what one user has on a node: a pod that runs there, or a claim whose
// volume is being made for that node.
type Use struct {
	Node string
	// Claims are keys of Snapshot.Claims.
	Claims []string
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
// never wait; one goroutine writes.
type Usage struct {
	max   int
	users *Table[Use]
	nodes *Table[*nodeUse]
	// peak is at least how many claims any of the nodes has. It does not fall while
	// claims go.
	peak atomic.Int64
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
}

// NewUsage returns a Usage of nothing, which keeps at most so many claims of one
// node.
func NewUsage(most int) *Usage {
	return &Usage{max: most, users: NewTable[Use](manyShards), nodes: NewTable[*nodeUse](manyShards)}
}

// Len returns the number of users.
func (u *Usage) Len() int {
	return u.users.Len()
}

// Set stores what a user uses; not where that would be too much for one node.
func (u *Usage) Set(key string, use Use) {
	old, had := u.users.Get(key)
	if had && old.Node == use.Node && slices.Equal(old.Claims, use.Claims) {
		return
	}
	u.Delete(key)
	node, known := u.nodes.Get(use.Node)
	if !known {
		node = &nodeUse{}
	}
	if node.claims+len(use.Claims) > u.max {
		return
	}
	u.users.Set(key, use)
	users := make([]user, 0, len(node.users)+1)
	node = newNodeUse(append(append(users, node.users...), user{key: key, claims: use.Claims}))
	u.peak.Store(max(u.peak.Load(), int64(node.claims)))
	u.nodes.Set(use.Node, node)
}

// Delete removes a user, if it is there.
func (u *Usage) Delete(key string) {
	use, ok := u.users.Get(key)
	if !ok {
		return
	}
	u.users.Delete(key)
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
		return
	}
	u.nodes.Set(use.Node, newNodeUse(left))
}

// Replace makes uses the whole content.
func (u *Usage) Replace(uses map[string]Use) {
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
		node.users = append(node.users, user{key: key, claims: use.Claims})
		node.claims += len(use.Claims)
		kept[key] = use
	}
	peak := 0
	for _, node := range nodes {
		node.users = slices.Clip(node.users)
		peak = max(peak, node.claims)
	}
	// A reader that sees the old nodes must not see the new peak, if that is lower.
	u.peak.Store(max(u.peak.Load(), int64(peak)))
	u.users.Replace(kept)
	u.nodes.Replace(nodes)
	u.peak.Store(int64(peak))
}

func newNodeUse(users []user) *nodeUse {
	node := &nodeUse{users: users}
	for _, user := range users {
		node.claims += len(user.claims)
	}
	return node
}

// atMost returns how many claims no node has more than.
func (u *Usage) atMost() int {
	return int(u.peak.Load())
}

// on returns what is used on a node; nil for nothing.
func (u *Usage) on(node string) *nodeUse {
	if u.nodes.Len() == 0 {
		return nil
	}
	found, _ := u.nodes.Get(node)
	return found
}

// Claims stores claims by their key, in Snapshot.Claims and, while their volumes
// are being made for a node, in Snapshot.InFlight.
type Claims struct {
	claims   *Table[*Claim]
	inFlight *Usage
}

// ClaimStore returns where claims are stored.
func (s *Snapshot) ClaimStore() Claims {
	return Claims{claims: s.Claims, inFlight: s.InFlight}
}

// Set stores a claim.
func (c Claims) Set(key string, claim *Claim) {
	c.claims.Set(key, claim)
	if claim.SelectedNode == "" {
		c.inFlight.Delete(key)
		return
	}
	c.inFlight.Set(key, Use{Node: claim.SelectedNode, Claims: []string{key}})
}

// Delete removes a claim, if it is there.
func (c Claims) Delete(key string) {
	c.claims.Delete(key)
	c.inFlight.Delete(key)
}

// Replace makes claims the whole content.
func (c Claims) Replace(claims map[string]*Claim) {
	uses := map[string]Use{}
	for key, claim := range claims {
		if claim.SelectedNode != "" {
			uses[key] = Use{Node: claim.SelectedNode, Claims: []string{key}}
		}
	}
	c.claims.Replace(claims)
	c.inFlight.Replace(uses)
}

// Len returns the number of claims.
func (c Claims) Len() int {
	return c.claims.Len()
}
