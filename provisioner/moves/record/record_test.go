package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestAFailoverOfOneClaimIsWrittenAsBefore(t *testing.T) {
	// As it was written before there were failovers of several claims.
	const failover = `"failover":{"replica":"data-west","version":"v1","uid":"s1","cut":"2026-03-01T12:00:00Z",` +
		`"volume":{"driver":"d","handle":"h"},"deferred":true,"declared":true}`
	r, err := record.Decode([]byte(`{"version":1,"uid":"m1","phase":"Fence","claims":[{"name":"data","uid":"c1"}],` + failover + `}`))
	require.NoError(t, err)
	assert.Equal(t, "v1", r.Failover.At(0).Version)
	assert.EqualValues(t, "s1", r.Failover.UID)
	assert.Equal(t, "h", r.Failover.Volume.Handle)
	assert.True(t, r.Failover.At(0).Deferred && r.Failover.Declared)
	again, err := record.Encode(r)
	require.NoError(t, err)
	assert.Contains(t, string(again), `"version":1,"uid":"m1"`)
	for _, field := range []string{`"version":"v1"`, `"uid":"s1"`, `"deferred":true`, `"handle":"h"`} {
		assert.Contains(t, string(again), field)
	}
	assert.NotContains(t, string(again), "others")

	r.Claims = append(r.Claims, record.Claim{Name: "wal", UID: "c2"})
	r.Failover.Others = []record.Sealed{{Version: "v1-1"}}
	again, err = record.Encode(r)
	require.NoError(t, err)
	assert.Contains(t, string(again), `"version":2,"uid":"m1"`, "a provisioner that knows one claim must not give the other that version")
	r, err = record.Decode(again)
	require.NoError(t, err)
	assert.Equal(t, "v1-1", r.Failover.At(1).Version)
	next := r.Clone()
	next.Failover.At(1).Version = "x"
	assert.Equal(t, "v1-1", r.Failover.At(1).Version)
	r.Failover.Others = nil
	again, err = record.Encode(r)
	require.NoError(t, err)
	_, err = record.Decode(again)
	require.Error(t, err, "each claim has its version")
}
