package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func recordIn(phase v1alpha1.MovePhase) *record.Record {
	return &record.Record{UID: "m1", Name: "m", Phase: phase, Claims: []record.Claim{{
		Name: "data", UID: "u1",
		Source: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1"}},
		Target: record.Copy{Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data"}},
	}}}
}

func TestRegistry(t *testing.T) {
	for phase, want := range map[v1alpha1.MovePhase]struct {
		holds, busy, uses bool
		west, home        int
	}{
		v1alpha1.MovePrepare:   {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveFinalSync: {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveRollBack:  {holds: true, busy: true, uses: true, west: 1},
		v1alpha1.MoveResume:    {holds: true, busy: true, uses: true, home: 1},
		v1alpha1.MoveRetain:    {busy: true, uses: true, home: 1},
		v1alpha1.MoveFinalize:  {busy: true, uses: true, home: 1},
		v1alpha1.MoveDone:      {},
		v1alpha1.MoveAborted:   {},
		v1alpha1.MoveFailed:    {},
	} {
		t.Run(string(phase), func(t *testing.T) {
			r := NewRegistry()
			assert.Empty(t, r.set("m1", recordIn(phase)))
			assert.Equal(t, want.holds, r.Holds("u1"))
			assert.False(t, r.Holds("u2"))
			assert.Equal(t, want.busy, r.busy("m2", "u1") != nil)
			assert.Nil(t, r.busy("m1", "u1"), "a move is not in its own way")
			assert.Equal(t, want.uses, r.Uses("west", "shop"))
			assert.False(t, r.Uses("west", "other"))
			assert.Equal(t, want.west, r.In("west"))
			assert.Equal(t, want.home, r.In(keys.Home))
			freed := r.set("m1", nil)
			assert.Equal(t, want.holds, len(freed) == 1, "whoever waits for the claim is told")
			assert.False(t, r.Holds("u1"))
		})
	}
	freed, r := recordIn(v1alpha1.MoveRollBack), NewRegistry()
	freed.Freed = true
	r.set("m1", recordIn(v1alpha1.MoveRollBack))
	assert.Equal(t, []types.UID{"u1"}, r.set("m1", freed), "the claim can grow and be moved before all is cleaned up")
	assert.False(t, r.Holds("u1"))
	assert.Nil(t, r.busy("m2", "u1"))
	assert.Equal(t, 1, r.In("west"), "its copy is still there")
	freed.GivenUp = []record.End{record.Target}
	assert.Zero(t, r.In("west"), "nobody waits for what was given up")
	assert.False(t, r.Uses("west", "shop"))

	r = NewRegistry()
	r.set("m1", recordIn(v1alpha1.MoveResume))
	assert.Equal(t, []types.UID{"u1"}, r.set("m1", recordIn(v1alpha1.MoveRetain)))
}
