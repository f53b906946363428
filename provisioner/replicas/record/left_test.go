package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

func TestAPointThatIsLeftHasTheNamesOfWhatItLeft(t *testing.T) {
	r := &record.Record{UID: "r1", Epoch: 1, Others: make([]record.Part, 1), Point: &record.Point{Number: 7, Stage: record.Clean,
		Group: &record.Group{Version: "v1", UID: "g"}, Others: make([]record.Session, 1)}}
	for i, name := range []string{"data", "wal"} {
		*r.Point.At(i) = record.Session{Source: backing.Ref{Cluster: "east", Namespace: "shop", Name: name, UID: "s"}, Taken: "of-" + name,
			Keys: map[moverapi.Role]moverapi.Files{moverapi.Sender: {}}, Expect: []byte(`"much"`)}
	}
	names := []string{r.PointName(0), r.PointName(1), r.MoverName(1, moverapi.Sender)}
	p := r.Point
	r.Point = nil
	assert.False(t, r.LeftIn("east"))
	r.Leave(p)
	data, err := record.Encode(r)
	require.NoError(t, err)
	assert.Equal(t, 5, r.Format, "an older program forgets nothing of it")
	again, err := record.Decode(data)
	require.NoError(t, err)
	assert.True(t, again.LeftIn("east"))
	assert.False(t, again.LeftIn("west"))
	left := again.OfLeft(0)
	assert.Equal(t, []string{left.PointName(0), left.PointName(1), left.MoverName(1, moverapi.Sender)}, names)
	assert.Equal(t, p.Group, left.Point.Group)
	assert.Equal(t, p.At(1).Source, left.Point.At(1).Source)
	assert.Equal(t, "of-wal", left.Point.At(1).Taken)
	assert.Empty(t, left.Point.At(1).Keys, "what lets movers in is not kept")
	assert.Empty(t, left.Point.At(1).Expect)

	again.Left[0].Others = nil
	data, err = record.Encode(again)
	require.NoError(t, err)
	_, err = record.Decode(data)
	assert.ErrorContains(t, err, "point 7 is of another number of claims")
}
