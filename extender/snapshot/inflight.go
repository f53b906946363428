package snapshot

import "time"

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
