package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// inSlots is a record of two claims in slots, each of which has a version in its slot and one in its head, which are known.
func inSlots() *record.Record {
	part := func(n string) record.Part {
		return record.Part{Claim: n, Head: backing.Ref{UID: types.UID("a" + n)}, Slot: backing.Ref{UID: types.UID("b" + n)},
			Known: []record.Known{{UID: types.UID("a" + n), Root: "1"}, {UID: types.UID("b" + n), Root: "2"}}}
	}
	version := func(number int64, slot string) record.Version {
		return record.Version{Number: number, Content: record.Content{UID: types.UID(slot + "0")},
			Others: []record.Content{{UID: types.UID(slot + "1")}}}
	}
	return &record.Record{UID: "r1", Epoch: 1, Slots: true, Part: part("0"), Others: []record.Part{part("1")},
		Sealed: []record.Version{version(1, "a"), version(2, "b")}, Last: 3,
		Point: &record.Point{Number: 3, Cut: time.Unix(9, 0), Others: make([]record.Session, 1)}}
}

func uids(known []record.Known) (all []string) {
	for _, one := range known {
		all = append(all, string(one.UID))
	}
	return all
}

func TestWhatSlotsHaveIsKnownUntilTheyAreWrittenTo(t *testing.T) {
	r := inSlots()
	r.Write(true, true)
	r.Overwrite()
	assert.True(t, r.Point.Scrub)
	for i, n := range []string{"0", "1"} {
		require.NotNil(t, r.Point.At(i).Was)
		assert.Equal(t, "1", r.Point.At(i).Was.Root, "what the head had")
		assert.Equal(t, []string{"b" + n}, uids(r.At(i).Known), "the slot is as it was")
		r.Point.At(i).Root = "3"
	}
	encoded, err := record.Encode(r)
	require.NoError(t, err)
	again, err := record.Decode(encoded)
	require.NoError(t, err)
	assert.Equal(t, r.Point.At(1).Was.UID, again.Point.At(1).Was.UID, "a provisioner that starts knows it, too")
	assert.Equal(t, uids(r.Known), uids(again.Known))
	assert.True(t, again.Point.Scrub)

	// One is looked at, then the other: only then it was a scrub.
	r.Found = []record.Finding{{Claim: "0", Number: 1}, {Claim: "9", Number: 2}}
	next := r.Clone()
	next.Look(0, &record.Finding{Claim: "0", Number: 3}, time.Unix(20, 0))
	assert.Zero(t, next.Scrubbed)
	assert.Equal(t, []record.Finding{{Claim: "9", Number: 2}, {Claim: "0", Number: 3}}, next.Found)
	next.Look(1, nil, time.Unix(21, 0))
	assert.Equal(t, time.Unix(21, 0), next.Scrubbed)
	assert.Equal(t, []record.Finding{{Claim: "0", Number: 3}}, next.Found)
	assert.Equal(t, []record.Finding{{Claim: "0", Number: 1}, {Claim: "9", Number: 2}}, r.Found, "a copy is a copy")

	next.Sealed = append(next.Sealed, record.Version{Number: 3, Content: record.Content{UID: "a0"}, Others: []record.Content{{UID: "a1"}}})
	next.Learn(time.Unix(30, 0))
	next.Turn()
	assert.Equal(t, []string{"b0", "a0"}, uids(next.Known))
	assert.EqualValues(t, "b0", next.Head.UID, "the other one is next")
	next.Write(true, false)
	assert.Equal(t, "2", next.Point.At(0).Was.Root)
}

func TestASlotThatHasAnotherVersionIsKnownNoMore(t *testing.T) {
	r := inSlots()
	assert.Zero(t, r.LoseSlotUnless(0, "a0", func(*record.Version) bool { return true }))
	assert.Equal(t, []string{"a0", "b0"}, uids(r.Known))
	assert.Equal(t, 1, r.LoseSlot(0, "a0"))
	assert.Equal(t, []string{"b0"}, uids(r.Known))
	r.Write(true, true)
	assert.False(t, r.Point.Scrub, "not all is known")
	assert.Nil(t, r.Point.At(0).Was)
	assert.NotNil(t, r.Point.At(1).Was)
}

func TestSinceWhenASourceHasItsFingerprintIsKnown(t *testing.T) {
	r := inSlots()
	learned := func(number int, source string) record.Known {
		t.Helper()
		cut := time.Unix(int64(number)*1000, 0)
		r.Point = &record.Point{Number: int64(number), Cut: cut, Others: make([]record.Session, 1)}
		r.Write(false, false)
		require.NotNil(t, r.Point.Was)
		require.True(t, r.Point.Looked, "nobody asked for more")
		r.Point.Root, r.Point.Fingerprints = "1", moverapi.Fingerprints{Source: source, Target: "t"}
		r.Learn(cut.Add(time.Second))
		known := r.Known[len(r.Known)-1]
		require.Equal(t, cut, known.Cut, "it was read")
		return known
	}
	assert.Equal(t, time.Unix(4000, 0), learned(4, "a").Since)
	assert.Equal(t, time.Unix(4000, 0), learned(5, "a").Since, "it is as it was")
	assert.Equal(t, time.Unix(6000, 0), learned(6, "b").Since, "it was written to")
	assert.Equal(t, time.Unix(7000, 0), learned(7, "a").Since, "it has what it had")

	last := learned(8, "a")
	r.Point = &record.Point{Number: 9, Cut: time.Unix(9000, 0), Others: make([]record.Session, 1)}
	r.Write(false, false)
	r.Point.Keep(0)
	assert.Equal(t, last.Root, r.Point.Root)
	r.Learn(time.Unix(9001, 0))
	assert.Equal(t, last, r.Known[len(r.Known)-1], "nothing was read")
}
