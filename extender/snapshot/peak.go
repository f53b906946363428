package snapshot

import "sync/atomic"

// peak follows how many claims any node has that has an attach limit. Most nodes
// are far from their limit, and then this one number says so. Whoever makes a
// claim can write the name of a node into it that does not exist: those do not
// count. Writers take turns; top may be read at any time.
type peak struct {
	limited map[string]struct{}
	// claims is how many claims each node has; without those that have none.
	claims map[string]int
	// having is how many nodes with a limit have so many claims.
	having []int
	top    atomic.Int64
}

// newPeak returns the peak of nothing, where no node has more than most claims.
func newPeak(most int) peak {
	return peak{limited: map[string]struct{}{}, claims: map[string]int{}, having: make([]int, most+1)}
}

// set says how many claims a node has.
func (p *peak) set(node string, claims int) {
	_, limited := p.limited[node]
	if limited {
		p.having[p.claims[node]]--
		p.having[claims]++
	}
	if claims == 0 {
		delete(p.claims, node)
	} else {
		p.claims[node] = claims
	}
	if limited {
		p.settle(claims)
	}
}

// limit says whether a node has an attach limit.
func (p *peak) limit(node string, limited bool) {
	if _, was := p.limited[node]; was == limited {
		return
	}
	claims := p.claims[node]
	if limited {
		p.limited[node] = struct{}{}
		p.having[claims]++
	} else {
		delete(p.limited, node)
		p.having[claims]--
	}
	p.settle(claims)
}

// settle finds the peak after a node came to have so many claims, or lost them.
func (p *peak) settle(claims int) {
	top := max(int(p.top.Load()), claims)
	for top > 0 && p.having[top] == 0 {
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
	// Who sees the limit must see a peak that counts the node.
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

// Replace makes limits the whole content.
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
