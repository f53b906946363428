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

// covered checks that no node that has room for class v in both worlds is without
// it while kube-scheduler asks.
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

// The program may end at any write, with or without the write having been carried
// out, and another one takes over.
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
					// As many as an undisturbed run has.
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

// A cache may be behind: what it does not show may exist, and what it shows may
// have gone or have changed.
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
