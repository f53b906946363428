package csi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// sizes is what all that is behind a claim says of its size, in gibibytes.
type sizes struct {
	asked, claim, virtual, backingAsked, backing, real, driver int64
}

func same(gib int64) sizes { return sizes{gib, gib, gib, gib, gib, gib, gib} }

// sizesOf looks at all that is behind a claim once more.
func (c chain) sizesOf(t *testing.T, driver *sidecars.Driver) sizes {
	t.Helper()
	gib := func(list corev1.ResourceList) int64 { return list.Storage().Value() / gibibyte }
	claim, backing := claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name), claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name)
	return sizes{
		asked: gib(claim.Spec.Resources.Requests), claim: gib(claim.Status.Capacity), virtual: gib(volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity),
		backingAsked: gib(backing.Spec.Resources.Requests), backing: gib(backing.Status.Capacity), real: gib(volumeOf(t, c.cluster, c.real.Name).Spec.Capacity),
		driver: volumes(t, driver)[c.volume.ID].Bytes / gibibyte,
	}
}

// requireGrown waits until a volume has a size wherever one is told, and nothing is
// said of an expansion any more.
func (c chain) requireGrown(t *testing.T, driver *sidecars.Driver, gib int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the volume has %d GiB for everybody", gib), func() bool { return c.sizesOf(t, driver) == same(gib) }, func() any {
		return []any{c.sizesOf(t, driver), claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status, claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status,
			await.Events(t, bed.Home.Client(), c.claim.Namespace)}
	})
	await.Until(t, "no condition is left", func() bool {
		return len(claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status.Conditions) == 0 &&
			len(claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status.Conditions) == 0
	}, func() any {
		return []any{claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status, claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status}
	})
}

// TestAClaimGrowsWithAllThatIsBehindIt shows both ways to a larger volume: at home
// the real resizer knows the virtual volume as one of its own driver, and the twin
// is brought after; in a remote cluster it expands the shadow.
func TestAClaimGrowsWithAllThatIsBehindIt(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			create(t, namespace, r.place)
			c := served(t, namespace, r.driver())
			ask(t, bed.Home, namespace, "data", "2Gi")
			c.requireGrown(t, r.driver(), 2)
			ask(t, bed.Home, namespace, "data", "3Gi")
			c.requireGrown(t, r.driver(), 3)
		})
	}
}

// TestFailuresOfAnExpansionAreToldAndOvercome does not run in parallel: it orders
// failures of the drivers.
func TestFailuresOfAnExpansionAreToldAndOvercome(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			namespace := space(t)
			create(t, namespace, r.place)
			c := served(t, namespace, r.driver())
			require.NoError(t, r.driver().Fail("ControllerExpandVolume", sidecars.Fault{Code: "INTERNAL", Message: "a cable is broken"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("ControllerExpandVolume")) })
			ask(t, bed.Home, namespace, "data", "2Gi")
			c.requireFailure(t, "a cable is broken")
			require.NoError(t, r.driver().Heal("ControllerExpandVolume"))
			require.NoError(t, r.driver().FailNext("ControllerExpandVolume",
				sidecars.Fault{Code: "UNAVAILABLE"}, sidecars.Fault{Code: "DEADLINE_EXCEEDED", Done: true}))
			c.requireGrown(t, r.driver(), 2)
			left, err := r.driver().Ordered("ControllerExpandVolume")
			require.NoError(t, err)
			assert.False(t, left, "not all failures happened")
		})
	}
}

// requireFailure waits until a user is told, in a condition of the claim and in an
// event, why it does not grow.
func (c chain) requireFailure(t *testing.T, words string) {
	t.Helper()
	await.Until(t, "the claim says why it does not grow", func() bool {
		for _, condition := range claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status.Conditions {
			if condition.Type == corev1.PersistentVolumeClaimControllerResizeError {
				return assert.Contains(t, condition.Message, words)
			}
		}
		return false
	}, func() any { return claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status })
	reason := "ExpansionFailed"
	if c.cluster == bed.Home {
		reason = "VolumeResizeFailed" // by the resizer itself
	}
	assert.Contains(t, await.Event(t, bed.Home.Client(), c.claim.Namespace, c.claim.Name, reason), words)
}

// TestASizeThatCannotBeIsTakenBack asks for more than a node has at all, and then
// for less.
func TestASizeThatCannotBeIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			create(t, namespace, r.place)
			c := served(t, namespace, r.driver())
			ask(t, bed.Home, namespace, "data", "200Gi")
			c.requireFailure(t, "a whole node has")
			assert.Equal(t, int64(1), c.sizesOf(t, r.driver()).claim)
			ask(t, bed.Home, namespace, "data", "2Gi")
			c.requireGrown(t, r.driver(), 2)
		})
	}
}

// TestAnExpansionOutlivesTheDriverAndItsResizer does not run in parallel: it kills
// the drivers with their sidecars.
func TestAnExpansionOutlivesTheDriverAndItsResizer(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			namespace := space(t)
			create(t, namespace, r.place)
			c := served(t, namespace, r.driver())
			require.NoError(t, r.driver().FailNext("ControllerExpandVolume", sidecars.Fault{Delay: "1m"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("ControllerExpandVolume")) })
			ask(t, bed.Home, namespace, "data", "2Gi")
			await.Until(t, "the driver is growing the volume", func() bool {
				left, err := r.driver().Ordered("ControllerExpandVolume")
				require.NoError(t, err)
				return !left
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			r.driver().Kill()
			require.NoError(t, r.driver().Run(t.Context()))
			c.requireGrown(t, r.driver(), 2)
		})
	}
}

// TestARealVolumeThatAnAdministratorGrowsIsSeenAtHome grows the backing claim of a
// remote volume, and has the first try fail.
func TestARealVolumeThatAnAdministratorGrowsIsSeenAtHome(t *testing.T) {
	namespace := space(t)
	create(t, namespace, routes[1].place)
	c := served(t, namespace, west)
	require.NoError(t, west.FailNext("ControllerExpandVolume", sidecars.Fault{Code: "INTERNAL", Message: "not now"}))
	t.Cleanup(func() { require.NoError(t, west.Heal("ControllerExpandVolume")) })
	ask(t, bed.West, c.backing.Namespace, c.backing.Name, "3Gi")
	await.Until(t, "the driver has grown the volume", func() bool { return volumes(t, west)[c.volume.ID].Bytes == 3*gibibyte })
	await.Until(t, "the virtual volume has the new size", func() bool {
		size := volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity[corev1.ResourceStorage]
		return size.Value() == 3*gibibyte
	}, func() any { return volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity })
}
