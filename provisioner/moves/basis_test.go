package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	replica "github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

func TestATargetBeginsWithTheNewestVersionThatItsClassCanMakeAVolumeOf(t *testing.T) {
	version := func(name string, minute int) replica.Version {
		return replica.Version{Cut: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
			Content: replica.Content{Name: name, UID: "s", Volume: volumesnapshot.Volume{Driver: "west.test", Handle: "h"}},
			Others:  []replica.Content{{Name: name + "-1", UID: "s1", Volume: volumesnapshot.Volume{Driver: "west.test", Handle: "h1"}}}}
	}
	part := func(claim string) replica.Part {
		return replica.Part{Claim: claim, ClaimUID: "u-data", Head: backing.Ref{Cluster: "west", Namespace: "shop"}}
	}
	made := func(name string, versions ...replica.Version) *replica.Record {
		r := &replica.Record{Name: name, Part: part("data"), Others: []replica.Part{part("wal")}, Sealed: versions}
		r.Others[0].ClaimUID = "u-wal"
		return r
	}
	going, unready, other := version("going", 9), version("unready", 8), version("other", 7)
	going.Going, unready.Unready, other.Volume.Driver = true, "it is not ready", "plain.test"
	first := made("first", version("a", 1), version("b", 3), other, unready, going)
	second := made("second", version("c", 2))
	slots := made("slots", version("slot", 6))
	slots.Slots = true
	elsewhere := made("elsewhere", version("elsewhere", 5))
	elsewhere.Head.Namespace = "other"

	all := []*replica.Record{slots, second, first, elsewhere}
	assert.Equal(t, &record.Basis{Replica: "first", Sealed: record.Sealed{Version: "b", UID: "s", Volume: version("b", 3).Volume}},
		newestBasis(all, "u-data", "shop", "west.test"))
	assert.Equal(t, "other-1", newestBasis(all[2:3], "u-wal", "shop", "west.test").Version, "each claim of a group has what is its own")
	assert.Nil(t, newestBasis(all, "u-else", "shop", "west.test"))
	assert.Nil(t, newestBasis(all, "u-data", "shop", "none.test"), "another driver makes no volume of it")
	assert.Nil(t, newestBasis(all[:1], "u-data", "shop", "west.test"), "a slot is no snapshot")
	assert.Nil(t, newestBasis(nil, "u-data", "shop", "west.test"))
}

func TestATargetIsMadeEmptyWhereAnAPIServerRefusesItWithAVersion(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", assert.AnError)
	w, r := &activeMove{}, &record.Record{Claims: []record.Claim{{}, {Basis: &record.Basis{}}}}
	require.Error(t, w.noteNoBasis(r, 0, quota), "one that begins empty is tried again")
	require.NoError(t, w.noteNoBasis(r, 1, quota))
	assert.Contains(t, w.claim(1).noBasis, "forbidden")
	assert.Empty(t, w.claim(1).refused, "nothing is said of a snapshot of the source")
	require.Error(t, w.noteNoBasis(r, 1, apierrors.NewInternalError(assert.AnError)), "that is tried again")
	require.NoError(t, w.noteNoBasis(r, 1, nil))
}
