package record_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// earlier is a record as it was written before there were replicas of several claims.
const earlier = `{"format":1,"uid":"r1","namespace":"shop","name":"data-west","claim":"data","claimUID":"c1","epoch":1,
"head":{"Cluster":"west","Namespace":"shop","Name":"replica-r1","UID":"h1"},"class":"fast",
"sealed":[{"number":1,"epoch":1,"name":"replica-r1-v1-5","uid":"s1","cut":"2026-03-01T12:00:00Z","took":5,"root":"abc","sent":7,
"volume":{"driver":"d","handle":"h"},"going":true}],
"last":2,"point":{"number":2,"stage":"Copy","since":"2026-03-01T12:01:00Z","cut":"2026-03-01T12:01:00Z",
"source":{"Cluster":"home","Namespace":"lodestone-storage","Name":"pvc-c1","UID":"b1"},"sourceClass":"disk","by":"snapshots",
"volume":{"driver":"d","handle":"v"},"block":true,"scratch":9,"node":"n1","expect":{"a":1},"copied":true,"sent":3,"sealBy":"seals",
"head":{"driver":"d","handle":"h"},"why":"no room"},"failures":2,"why":"no room"}`

func TestARecordOfOneClaimIsWrittenAsBefore(t *testing.T) {
	r, err := record.Decode([]byte(earlier))
	require.NoError(t, err)
	assert.Equal(t, []string{"data"}, r.Claims())
	assert.EqualValues(t, "h1", r.Head.UID)
	assert.Equal(t, "abc", r.Sealed[0].Root)
	assert.EqualValues(t, 7, r.Sealed[0].AllSent())
	assert.EqualValues(t, "b1", r.Point.Source.UID)
	assert.Equal(t, "v", r.Point.Volume.Handle)
	assert.Equal(t, "h", r.Point.Head.Handle)
	assert.Equal(t, "replica-r1-2-1772366460", r.PointName(0))
	assert.Equal(t, "replica-r1-v2-1772366460", r.SealName(0))
	assert.Equal(t, "replica-r1-2-sender", r.MoverName(0, moverapi.Sender))
	assert.Equal(t, "r1-2", r.SessionOf(0))
	assert.Equal(t, "replica-r1", record.HeadName("r1", 0))
	again, err := record.Encode(r)
	require.NoError(t, err)
	var was, is map[string]any
	require.NoError(t, json.Unmarshal([]byte(earlier), &was))
	require.NoError(t, json.Unmarshal(again, &is))
	delete(is, "failed")
	assert.Equal(t, was, is, "an earlier provisioner reads it, too")
}

func TestARecordOfSeveralClaimsIsReadWholeOrNotAtAll(t *testing.T) {
	r := &record.Record{UID: "r1", Epoch: 1, Part: record.Part{Claim: "data"}, Others: []record.Part{{Claim: "wal"}},
		Sealed: []record.Version{{Content: record.Content{Name: "v1", Sent: 1}, Others: []record.Content{{Name: "v1-1", Sent: 2}}}},
		Point: &record.Point{Number: 2, Cut: time.Unix(9, 0), Group: &record.Group{Version: "v1"}, Session: record.Session{Root: "a"},
			Others: []record.Session{{Root: "b"}}}}
	data, err := record.Encode(r)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"format":2`, "a provisioner that knows one claim must not take it for that")
	again, err := record.Decode(data)
	require.NoError(t, err)
	assert.Equal(t, []string{"data", "wal"}, again.Claims())
	assert.Equal(t, 1, again.Index("wal"))
	assert.Equal(t, -1, again.Index("log"))
	assert.Equal(t, "v1-1", again.Sealed[0].At(1).Name)
	assert.EqualValues(t, 3, again.Sealed[0].AllSent())
	assert.Equal(t, "b", again.Point.At(1).Root)
	assert.Equal(t, []string{"replica-r1-2-9-1", "replica-r1-v2-9-1"}, []string{again.PointName(1), again.SealName(1)})
	next := again.Clone()
	next.At(1).Claim, next.Point.At(1).Root, next.Point.Group.UID = "x", "x", "x"
	assert.Equal(t, []string{"wal", "b", ""}, []string{again.At(1).Claim, again.Point.At(1).Root, string(again.Point.Group.UID)})

	for name, spoil := range map[string]func(*record.Record){
		"a point of one claim":   func(r *record.Record) { r.Point.Others = nil },
		"a version of one claim": func(r *record.Record) { r.Sealed[0].Others = nil },
	} {
		spoiled := again.Clone()
		spoil(spoiled)
		data, err := record.Encode(spoiled)
		require.NoError(t, err)
		_, err = record.Decode(data)
		assert.Error(t, err, name)
	}
}

func TestARecordWhosePointMayHaveFrozenSomethingIsNotForProgramsThatDoNotKnow(t *testing.T) {
	r, err := record.Decode([]byte(earlier))
	require.NoError(t, err)
	r.Point.Stage, r.Point.Freeze = record.Freezing, &record.Freeze{Thaw: []string{"thaw"}, Pods: []record.FrozenPod{{Name: "db-0"}}}
	encoded, err := record.Encode(r)
	require.NoError(t, err)
	assert.Contains(t, string(encoded), `"format":4`)
	again, err := record.Decode(encoded)
	require.NoError(t, err)
	assert.True(t, again.Point.Owed())
	next := again.Enter(record.Thaw, time.Time{})
	next.Point.Freeze.Pods[0].Thawed, next.Point.Freeze.Over = true, true
	assert.True(t, again.Point.Owed(), "a copy is a copy")
	assert.False(t, next.Point.Owed())
	again.Point = nil
	encoded, err = record.Encode(again)
	require.NoError(t, err)
	assert.Contains(t, string(encoded), `"format":1`, "and afterwards it is again")
}
