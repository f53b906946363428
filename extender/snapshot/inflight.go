package snapshot

import "time"

// For how long a claim counts on the node that was chosen for it. A pod that gets
// nowhere, or whose user wrote the node, must not hold a place for ever.
const (
	// whileMade begins when the node is first seen on a claim without volume.
	whileMade = time.Minute
	// untilAssigned begins when the claim has its volume. kube-scheduler looks for
	// that once a second, and only then puts the pod on the node.
	untilAssigned = 5 * time.Second
	// sweepEvery is how often those are dropped that no longer count.
	sweepEvery = 10 * time.Second
)

// flightOf returns for which node a claim's volume is being made, or was just now,
// and until when that counts. before is what was known of the same claim; nil when
// it is new. flying is what this returned for it. A claim that has its volume when
// it is first seen, as in the first list, is in flight no more.
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
	// Nothing that matters has changed, so the time does not begin anew.
	return flying, flying.Node != ""
}

// Claims stores claims by their key, in Snapshot.Claims and, while their volumes
// are being made for a node, in Snapshot.InFlight. One goroutine writes.
type Claims struct {
	claims   *Table[*Claim]
	inFlight *Usage
	now      func() time.Time
	swept    time.Time
}

// ClaimStore returns where claims are stored; now tells the time.
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

// Replace makes claims the whole content.
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

// flight returns where a claim that is about to be stored is in flight.
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
