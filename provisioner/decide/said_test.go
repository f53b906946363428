package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// said is what was heard of the backing claim in a cluster; nothing without words.
func said(cluster, reason, message string) change {
	return func(o *decide.Observation) {
		o.Said = &decide.Said{Backing: types.UID("b-" + cluster), Reason: reason, Message: message, Again: now.Add(time.Minute)}
	}
}

func heardLong(o *decide.Observation) { o.Said.Again = now }

func madeBefore(age time.Duration) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.CreationTimestamp = metav1.NewTime(now.Add(-age)) }
}

func TestNextTellsWhatIsSaidOfABackingClaimThatWaits(t *testing.T) {
	const west, home = "west", keys.Home
	bound := boundTo("pvc-u1")
	pending := func(age time.Duration) change { return volume(west, madeBefore(age), nameless) }
	check(t, map[string]row{
		"nobody asks at first":                       {given: []change{on("node-1"), have(home)}, verb: decide.Idle, after: true},
		"then its events are read":                   {given: []change{on("node-1"), have(home, old)}, verb: decide.Ask, cluster: home, tell: "WaitingForBacking"},
		"… and it waits if they say nothing":         {given: []change{on("node-1"), have(home, old), said(home, "", "")}, verb: decide.Idle, tell: "WaitingForBacking", after: true},
		"… and what they say is told":                {given: []change{on("node-1"), have(home), said(home, "ProvisioningFailed", "no")}, verb: decide.Idle, tell: "WaitingForBacking", after: true},
		"… and they are read again":                  {given: []change{on("node-1"), have(home), said(home, "ProvisioningFailed", "no"), heardLong}, verb: decide.Ask, cluster: home, tell: "WaitingForBacking"},
		"what was said of another claim is not told": {given: []change{on("node-1"), have(home), said(west, "ProvisioningFailed", "no")}, verb: decide.Idle, after: true},
		"a shadow that binds at once is asked about, too": {
			given: []change{on("west-1"), parameter(keys.RemoteClass, "now"), annotated(keys.Routed, west), have(west, old)}, verb: decide.Ask, cluster: west, tell: "WaitingForBacking"},
		"a cluster that cannot be used is not asked": {
			given: []change{on("west-1"), parameter(keys.RemoteClass, "now"), annotated(keys.Routed, west), have(west, old), unreachable(west, time.Hour)}, verb: decide.Idle, tell: "ClusterNotUsable", after: true},
		"a volume whose shadow waits for its pod is left in peace at first": {given: []change{bound, have(west, published), pending(time.Second)}, verb: decide.Idle, after: true},
		"… then asked about":                               {given: []change{bound, have(west, published), pending(time.Minute)}, verb: decide.Ask, cluster: west},
		"… and what is said is told, however early":        {given: []change{bound, have(west, published), pending(time.Second), said(west, "ProvisioningFailed", "no")}, verb: decide.Idle, tell: "BackingPending", after: true},
		"… and without a word, what is known after a time": {given: []change{bound, have(west, published), pending(time.Hour), said(west, "", "")}, verb: decide.Idle, tell: "BackingPending", after: true},
	})
}

func TestWhatIsSaidElsewhereIsQuotedAndBounded(t *testing.T) {
	tell := func(reason, message string) *decide.Message {
		step := decide.Next(observe(on("node-1"), have(keys.Home), said(keys.Home, reason, message)))
		require.NotNil(t, step.Tell)
		assert.True(t, step.Tell.Warning)
		return step.Tell
	}
	const before = `waiting for real claim shop/data of storage class "wait" in the home cluster to be bound: `
	assert.Equal(t, before+`ProvisioningFailed says "the pool is full"`, tell("ProvisioningFailed", "the pool is full").Text)
	assert.Equal(t, before+`Failed says "first second \"third\" \u202e"`, tell("Failed", "first\nsecond \"third\" \u202e").Text)
	assert.Equal(t, before+`an event there says "x"`, tell("no: such\nreason", "x").Text)
	assert.LessOrEqual(t, len(tell("Failed", strings.Repeat("é", 5000)).Text), 700)
}
