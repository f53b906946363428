package filter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestPlacesThatRefused(t *testing.T) {
	later, over := at.Add(time.Second), at
	var p locations
	assert.False(t, p.has("west", "west"))
	p.add([]locality.Refusal{{Cluster: "west", Until: later}, {Cluster: keys.Home, Node: "home-1", Until: later}}, at)
	p.add([]locality.Refusal{{Cluster: "east", Until: over}, {Cluster: keys.Home, Node: "home-2", Until: over}}, at)
	assert.True(t, p.has("west", "west"))
	assert.True(t, p.has("west", "west-2"), "the whole cluster refused")
	assert.True(t, p.has(keys.Home, "home-1"))
	assert.False(t, p.has(keys.Home, "home-2"), "that has ended")
	assert.False(t, p.has("east", "east"))
	assert.False(t, p.has("north", "home-1"), "a node of that name elsewhere")
}

func TestPlacesAreBounded(t *testing.T) {
	var p locations
	for i := range 2 * maxRefusals {
		p.add([]locality.Refusal{{Cluster: fmt.Sprint(i), Until: at.Add(time.Hour)}}, at)
	}
	assert.Len(t, p.set, maxRefusals, "a pod can have any number of claims")
}

// Claims that are alike are judged once for a cluster, since a pod can have any number of them.
func TestKindsOfClaims(t *testing.T) {
	fast, slow := &snapshot.Class{}, &snapshot.Class{}
	claim := func(class *snapshot.Class, claim snapshot.Claim) unboundClaim {
		return unboundClaim{PodClaim: snapshot.PodClaim{Claim: &claim}, class: class}
	}
	plain, chosen, ofPod := snapshot.Claim{}, snapshot.Claim{Choice: map[string]string{keys.Class: "a"}}, snapshot.Claim{OfPod: true}
	assert.Empty(t, kindsOf(nil))
	assert.Len(t, kindsOf([]unboundClaim{claim(fast, plain)}), 1)
	assert.Len(t, kindsOf([]unboundClaim{claim(fast, plain), claim(fast, plain), claim(fast, plain)}), 1)
	assert.Len(t, kindsOf([]unboundClaim{
		claim(fast, plain), claim(slow, plain), claim(fast, chosen), claim(fast, ofPod), claim(slow, plain), claim(fast, chosen),
	}), 4)
}
