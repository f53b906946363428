package capacity

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var (
	before = World{
		Classes:    []*storagev1.StorageClass{virtual("v"), virtual("gone"), defaulted(real("std"))},
		Capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "100Gi", ""), told("std", "b", "100Gi", "")},
		Drivers:    []*storagev1.CSIDriver{telling(true)},
		Remotes:    []*v1alpha1.RemoteCluster{remote("west", v1alpha1.OfferedClass{Name: "std", Default: true, Free: size("100Gi")})},
	}
	after = World{
		Classes:    []*storagev1.StorageClass{virtual("v"), virtual("new"), defaulted(real("std"))},
		Capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "50Gi", "40Gi"), told("std", "c", "100Gi", "")},
		Drivers:    []*storagev1.CSIDriver{telling(true)},
		Remotes:    []*v1alpha1.RemoteCluster{remote("west"), remote("east")},
	}
)

// covered checks that no node with room for class v in both worlds is without a capacity
// while kube-scheduler checks them.
func (c *cluster) covered(t *testing.T) {
	t.Helper()
	if !c.seen(t, World{}).asks() {
		return
	}
	for _, labels := range []map[string]string{homeA, west, unknown} {
		assert.True(t, c.objects(t).hasRoom(t, "v", "5Gi", labels), "kube-scheduler finds no room on %v", labels)
	}
}

func (c *cluster) settled(t *testing.T, w World) {
	t.Helper()
	seen := c.seen(t, w)
	assert.True(t, seen.asks())
	assert.Equal(t, Changes{}, Compare(Plan(w), seen.Published, namespace))
}

// The program may stop at any write, whether or not the write took effect, and another
// instance takes over.
func TestAnEndAtAnyWriteLeavesRoomAndTheNextOneFinishes(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		for from, first := range map[string]World{"from nothing": {}, "from other capacities": before} {
			writes := 1
			for end := 1; end <= writes; end++ {
				c := newCluster(t)
				if len(first.Classes) > 0 {
					require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, first)))
				}
				c.writes = 0
				c.check = func() { c.covered(t) }
				c.fail = func(n int, action clienttesting.Action) error {
					if n < end {
						return nil
					}
					if n == end && carriedOut {
						_, _, err := clienttesting.ObjectReaction(c.Tracker())(action)
						require.NoError(t, err)
					}
					return errors.New("killed")
				}
				err := c.publisher(t).Publish(t.Context(), c.seen(t, after))
				require.Error(t, err, "%s, write %d", from, end)
				c.covered(t)
				c.fail = nil
				require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
				c.covered(t)
				c.settled(t, after)
				if end == 1 {
					// The number of writes of an undisturbed run.
					whole := newCluster(t)
					if len(first.Classes) > 0 {
						require.NoError(t, whole.publisher(t).Publish(t.Context(), whole.seen(t, first)))
					}
					whole.writes = 0
					require.NoError(t, whole.publisher(t).Publish(t.Context(), whole.seen(t, after)))
					writes = whole.writes
					require.Greater(t, writes, 5)
				}
			}
		}
	}
}

func TestNothingIsWrittenWhereNothingChanges(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	c.writes = 0
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	assert.Zero(t, c.writes)
}

func TestKubeSchedulerIsToldOnlyOnceAllIsThere(t *testing.T) {
	c := newCluster(t)
	c.fail = func(_ int, action clienttesting.Action) error {
		if action.GetVerb() == "patch" {
			assert.Equal(t, Changes{}, Compare(Plan(after), c.objects(t), namespace))
		}
		return nil
	}
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	assert.True(t, c.seen(t, after).asks())
}

func TestWhereAnObjectCannotBeMadeKubeSchedulerIsToldToHeedNone(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, before)))
	c.fail = func(_ int, action clienttesting.Action) error {
		if action.GetVerb() == "create" {
			return apierrors.NewForbidden(storagev1.Resource("csistoragecapacities"), "", errors.New("exceeded quota"))
		}
		return nil
	}
	err := c.publisher(t).Publish(t.Context(), c.seen(t, after))
	require.ErrorIs(t, err, errUnmade)
	assert.ErrorContains(t, err, "exceeded quota")
	assert.False(t, c.seen(t, after).asks())
	require.ErrorIs(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)), errUnmade)
	assert.Equal(t, 1, c.released, "pods that found no room are woken, once")
	assert.Len(t, c.objects(t), len(published(before)), "what is replaced stays until its successor is there")
	c.fail = nil
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	c.settled(t, after)
}

func TestWhatWasPublishedIsWithdrawnAfterKubeSchedulerWasTold(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, before)))
	c.fail = func(_ int, action clienttesting.Action) error {
		if action.GetVerb() == "patch" {
			return errors.New("not now")
		}
		return nil
	}
	require.Error(t, c.publisher(t).Withdraw(t.Context(), c.seen(t, before)))
	assert.Len(t, c.objects(t), len(published(before)))
	c.fail = nil
	require.NoError(t, c.publisher(t).Withdraw(t.Context(), c.seen(t, before)))
	assert.Empty(t, c.objects(t))
	assert.False(t, c.seen(t, before).asks())
	c.writes = 0
	require.NoError(t, c.publisher(t).Withdraw(t.Context(), c.seen(t, before)))
	assert.Zero(t, c.writes)
}

// A cache may be behind: missing objects may exist, and cached ones may be deleted or
// changed.
func TestACacheThatIsBehindDoesNoHarm(t *testing.T) {
	c := newCluster(t)
	nothing := c.seen(t, before)
	require.NoError(t, c.publisher(t).Publish(t.Context(), nothing))
	require.NoError(t, c.publisher(t).Publish(t.Context(), nothing), "what is not seen yet is there")
	early := c.seen(t, before)
	for _, object := range early.Published {
		require.NoError(t, c.StorageV1().CSIStorageCapacities(namespace).Delete(context.Background(), object.Name, metav1.DeleteOptions{}))
	}
	early.World = after
	require.NoError(t, c.publisher(t).Publish(t.Context(), early), "what is gone can neither be changed nor removed")
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	c.settled(t, after)
}

func TestWithoutADriverObjectNobodyIsTold(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.StorageV1().CSIDrivers().Delete(t.Context(), keys.Driver, metav1.DeleteOptions{}))
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, after)))
	assert.NotEmpty(t, c.objects(t))
}

func TestOnlyWhatHasChangedIsWritten(t *testing.T) {
	segment := func(free, largest string) Segment {
		return Segment{Class: "v", UID: "uid-of-v", Pool: "std", Nodes: &metav1.LabelSelector{}, Free: size(free), Largest: size(largest)}
	}
	for name, test := range map[string]struct {
		before, now Segment
		written     bool
	}{
		"nothing":                               {before: segment("100Gi", "10Gi"), now: segment("100Gi", "10Gi")},
		"less than a twentieth":                 {before: segment("100Gi", "10Gi"), now: segment("96Gi", "10Gi")},
		"a twentieth":                           {before: segment("100Gi", "10Gi"), now: segment("95Gi", "10Gi"), written: true},
		"the largest volume":                    {before: segment("100Gi", "10Gi"), now: segment("100Gi", "11Gi"), written: true},
		"the largest volume is not told":        {before: segment("100Gi", "10Gi"), now: segment("100Gi", ""), written: true},
		"the largest volume is told":            {before: segment("100Gi", ""), now: segment("100Gi", "10Gi"), written: true},
		"the last byte":                         {before: segment("1", ""), now: segment("0", ""), written: true},
		"the first byte":                        {before: segment("0", ""), now: segment("1", ""), written: true},
		"full as before":                        {before: segment("0", "0"), now: segment("0", "0")},
		"the same, written in another way":      {before: segment("1Gi", ""), now: segment("1073741824", "")},
		"only the largest volume was ever told": {before: segment("", "10Gi"), now: segment("", "10Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.before.object(namespace)
			before.ResourceVersion, before.UID = "7", "uid"
			changes := Compare([]Segment{test.now}, []*storagev1.CSIStorageCapacity{before}, namespace)
			assert.Empty(t, changes.Create)
			assert.Empty(t, changes.Delete)
			if !test.written {
				assert.Empty(t, changes.Update)
				return
			}
			require.Len(t, changes.Update, 1)
			want := before.DeepCopy()
			want.Capacity, want.MaximumVolumeSize = test.now.Free, test.now.Largest
			assert.Equal(t, want, changes.Update[0], "as it was seen, so that it fails where it has changed since")
			assert.Equal(t, test.before.object(namespace).Capacity, before.Capacity, "what was seen is not touched")
		})
	}
}

func TestWhatIsNotWantedGoesAndWhatIsGoingIsMadeAgain(t *testing.T) {
	wanted := Segment{Class: "v", Nodes: &metav1.LabelSelector{}, Free: plenty()}
	other := Segment{Class: "v", Pool: "std", Nodes: &metav1.LabelSelector{}, Free: plenty()}
	going := wanted.object(namespace)
	going.DeletionTimestamp = &metav1.Time{}
	changes := Compare([]Segment{wanted}, []*storagev1.CSIStorageCapacity{going, other.object(namespace)}, namespace)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{wanted.object(namespace)}, changes.Create)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{other.object(namespace)}, changes.Delete)
	assert.Empty(t, changes.Update)
}

func TestOnlyOurOwnObjectsAreTouchedAndDriversMayTellInOurNamespaceToo(t *testing.T) {
	ours := Segment{Class: "v", Nodes: &metav1.LabelSelector{}, Free: plenty()}.object(namespace)
	elsewhere := ours.DeepCopy()
	elsewhere.Namespace = "tenant"
	driver := told("std", "a", "9Gi", "")
	driver.Namespace = namespace
	published, told := split([]*storagev1.CSIStorageCapacity{ours, elsewhere, driver}, namespace)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{ours}, published)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{elsewhere, driver}, told)
}
