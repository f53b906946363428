package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func mapped(m decide.Mapped) change {
	return cluster("west", func(c *decide.Cluster) { m.Asked = true; c.Mapped = m })
}

func asked(since time.Duration) change { return mapped(decide.Mapped{Since: now.Add(-since)}) }

func TestARefusalForWantOfANamespaceEndsWithIt(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		given  bool
		want   bool
	}{
		"it was refused and is given now":  {reason: "NamespaceRefused", given: true, want: true},
		"it was not made and is given now": {reason: "NamespaceNotMade", given: true, want: true},
		"it is refused still":              {reason: "NamespaceRefused"},
		"the refusal has another ground":   {reason: "QuotaExceeded", given: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, decide.Outlived(observe(mapped(decide.Mapped{Given: test.given})), refusal.Refusal{Cluster: "west", Reason: test.reason}))
		})
	}
}

func TestNextForANamespaceThatIsMadeOnRequest(t *testing.T) {
	no := decide.Mapped{Reason: "NotAllowed", Message: "only names that match shop-* are given"}
	check(t, map[string]row{
		"it is given":                  {given: []change{on("west-1"), mapped(decide.Mapped{Given: true})}, verb: decide.Record, cluster: keys.Home},
		"it was just asked for: wait":  {given: []change{on("west-1"), asked(0)}, verb: decide.Idle, after: true},
		"it takes a while: say so":     {given: []change{on("west-1"), asked(5 * time.Second)}, verb: decide.Idle, after: true, tell: "WaitingForNamespace"},
		"nobody answers: go elsewhere": {given: []change{on("west-1"), asked(decide.Patience)}, verb: decide.Reschedule, cluster: keys.Home, tell: "NamespaceNotMade", refuse: "west/ NamespaceNotMade"},
		"it takes too long: go elsewhere, with its word": {given: []change{on("west-1"), mapped(decide.Mapped{Message: "it goes", Since: now.Add(-decide.Patience)})},
			verb: decide.Reschedule, cluster: keys.Home, tell: "NamespaceNotMade", refuse: "west/ NamespaceNotMade"},
		"it is refused: go elsewhere":             {given: []change{on("west-1"), mapped(no)}, verb: decide.Reschedule, cluster: keys.Home, tell: "NamespaceRefused", refuse: "west/ NamespaceRefused"},
		"refused, but a request may be under way": {given: []change{on("west-1"), mapped(no), annotated(keys.Routed, "west"), unseen("west")}, verb: decide.Idle, after: true, tell: "ClusterNotUsable"},
		"what is made already needs no request":   {given: []change{on("west-1"), mapped(no), have("west")}, verb: decide.Publish, cluster: keys.Home},
		"claims for home do not care":             {given: []change{on("node-1"), mapped(no)}, verb: decide.Create, cluster: keys.Home},
	})
	refused := decide.Next(observe(on("west-1"), mapped(no)))
	assert.Contains(t, refused.Tell.Text, "only names that match shop-* are given", "the user reads the sentence of the other cluster")
	waiting := decide.Next(observe(on("west-1"), asked(time.Second)))
	assert.Equal(t, decide.Idle, waiting.Verb)
	again := observe(on("west-1"), asked(time.Second+waiting.After))
	assert.NotNil(t, decide.Next(again).Tell, "when it is looked at again the user is told")
}
