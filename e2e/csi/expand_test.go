package csi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// sizes is what all that is behind a claim says of its size, in gibibytes.
type sizes struct {
	asked, claim, virtual, backingAsked, backing, real, driver int64
}

func allSizes(gib int64) sizes { return sizes{gib, gib, gib, gib, gib, gib, gib} }

// sizesOf looks at all that is behind a claim once more.
func (c chain) sizesOf(t *testing.T, driver *sidecars.Driver) sizes {
	t.Helper()
	gib := func(list corev1.ResourceList) int64 { return list.Storage().Value() / gibibyte }
	claim, backing := claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name), claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name)
	return sizes{
		asked: gib(claim.Spec.Resources.Requests), claim: gib(claim.Status.Capacity),
		virtual:      gib(volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity),
		backingAsked: gib(backing.Spec.Resources.Requests), backing: gib(backing.Status.Capacity),
		real:   gib(volumeOf(t, c.cluster, c.real.Name).Spec.Capacity),
		driver: volumes(t, driver)[c.volume.ID].Bytes / gibibyte,
	}
}

// requireGrown waits until a volume has a size wherever one is told, and nothing is
// said of an expansion any more.
func (c chain) requireGrown(t *testing.T, driver *sidecars.Driver, gib int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the volume has %d GiB for everybody", gib), func() bool { return c.sizesOf(t, driver) == allSizes(gib) },
		func() any {
			return []any{c.sizesOf(t, driver), claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status,
				claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status,
				await.Events(t, bed.Home.Client(), c.claim.Namespace)}
		})
	await.Until(t, "no condition is left", func() bool {
		return len(claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status.Conditions) == 0 &&
			len(claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status.Conditions) == 0
	}, func() any {
		return []any{claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name).Status,
			claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name).Status}
	})
}

// TestAClaimGrowsWithAllThatIsBehindIt shows both ways to a larger volume: at home
// the real resizer knows the virtual volume as one of its own driver, and the twin
// is brought after; in a remote cluster it expands the shadow.
func TestAClaimGrowsWithAllThatIsBehindIt(t *testing.T) {
	onRoutes(t, func(t *testing.T, r route, namespace string) {
		create(t, namespace, r.place)
		c := awaitServed(t, namespace, r.driver())
		requestSize(t, bed.Home, namespace, "data", "2Gi")
		c.requireGrown(t, r.driver(), 2)
		requestSize(t, bed.Home, namespace, "data", "3Gi")
		c.requireGrown(t, r.driver(), 3)
	})
}

// TestFailuresOfAnExpansionAreToldAndOvercome does not run in parallel: it orders
// failures of the drivers.
func TestFailuresOfAnExpansionAreToldAndOvercome(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			namespace := newNamespace(t)
			create(t, namespace, r.place)
			c := awaitServed(t, namespace, r.driver())
			require.NoError(t, r.driver().Fail("ControllerExpandVolume", sidecars.Fault{Code: "INTERNAL", Message: "a cable is broken"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("ControllerExpandVolume")) })
			requestSize(t, bed.Home, namespace, "data", "2Gi")
			c.requireFailure(t, "a cable is broken")
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
	onRoutes(t, func(t *testing.T, r route, namespace string) {
		create(t, namespace, r.place)
		c := awaitServed(t, namespace, r.driver())
		requestSize(t, bed.Home, namespace, "data", "200Gi")
		c.requireFailure(t, "a whole node has")
		assert.Equal(t, int64(1), c.sizesOf(t, r.driver()).claim)
		requestSize(t, bed.Home, namespace, "data", "2Gi")
		c.requireGrown(t, r.driver(), 2)
	})
}

// TestAnExpansionOutlivesTheDriverAndItsResizer does not run in parallel: it kills
// the drivers with their sidecars.
func TestAnExpansionOutlivesTheDriverAndItsResizer(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			namespace := newNamespace(t)
			create(t, namespace, r.place)
			c := awaitServed(t, namespace, r.driver())
			require.NoError(t, r.driver().FailNext("ControllerExpandVolume", sidecars.Fault{Delay: "1m"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("ControllerExpandVolume")) })
			requestSize(t, bed.Home, namespace, "data", "2Gi")
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
	namespace := newNamespace(t)
	create(t, namespace, routes[1].place)
	c := awaitServed(t, namespace, west)
	require.NoError(t, west.FailNext("ControllerExpandVolume", sidecars.Fault{Code: "INTERNAL", Message: "not now"}))
	t.Cleanup(func() { require.NoError(t, west.Heal("ControllerExpandVolume")) })
	requestSize(t, bed.West, c.backing.Namespace, c.backing.Name, "3Gi")
	await.Until(t, "the driver has grown the volume", func() bool { return volumes(t, west)[c.volume.ID].Bytes == 3*gibibyte })
	await.Until(t, "the virtual volume has the new size", func() bool {
		size := volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity[corev1.ResourceStorage]
		return size.Value() == 3*gibibyte
	}, func() any { return volumeOf(t, bed.Home, c.virtual.Name).Spec.Capacity })
}

// TestAttributesOfAClaimReachTheDriver is about a claim of the real class itself:
// what virtual claims are to be measured by.
func TestAttributesOfAClaimReachTheDriver(t *testing.T) {
	namespace := beside(t)
	slow, fast := attributes(t, home, namespace)
	claim := fabric.NewClaim(namespace, "data", waiting)
	claim.Spec.VolumeAttributesClassName = &slow
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	volume := func() (v sidecars.Volume) {
		if bound := claimOf(t, bed.Home, namespace, "data"); bound.Spec.VolumeName != "" {
			v = volumes(t, home)[volumeOf(t, bed.Home, bound.Spec.VolumeName).Spec.CSI.VolumeHandle]
		}
		return v
	}
	await.Until(t, "the driver has the attributes of the first class", func() bool { return volume().Mutable["iops"] == "100" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })

	must.Kubectl(t, bed.Home, "", "patch", "pvc", "-n", namespace, "data", "-p", `{"spec":{"volumeAttributesClassName":"`+fast+
		`"}}`)
	await.Until(t, "the driver has those of the second", func() bool { return volume().Mutable["iops"] == "5000" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// TestAttributesOfAVirtualClaimReachTheDriver shows both ways: at home the real
// sidecars change the volume for the virtual claim, and the twin is brought after;
// in a remote cluster they do so for the shadow.
func TestAttributesOfAVirtualClaimReachTheDriver(t *testing.T) {
	onRoutes(t, func(t *testing.T, r route, namespace string) {
		slow, fast := attributes(t, r.driver(), namespace)
		create(t, namespace, r.place, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &slow })
		c := awaitServed(t, namespace, r.driver())
		assert.Equal(t, "100", c.volume.Mutable["iops"])
		requireAttributes(t, c, slow)

		must.Kubectl(t, bed.Home, "", "patch", "pvc", "-n", namespace, "data", "-p", `{"spec":{"volumeAttributesClassName":"`+fast+
			`"}}`)
		await.Until(t, "the driver has the attributes of the second class", func() bool {
			return volumes(t, r.driver())[c.volume.ID].Mutable["iops"] == "5000"
		},
			func() any { return await.Events(t, bed.Home.Client(), namespace) })
		requireAttributes(t, c, fast)
	})
}

// requireAttributes waits until all that is behind a claim says that it has the
// attributes of a class.
func requireAttributes(t *testing.T, c chain, name string) {
	t.Helper()
	told := func() []string {
		claim, backing := claimOf(t, bed.Home, c.claim.Namespace, c.claim.Name), claimOf(t, c.cluster, c.backing.Namespace, c.backing.Name)
		return []string{
			ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""),
			ptr.Deref(volumeOf(t, bed.Home, c.virtual.Name).Spec.VolumeAttributesClassName, ""),
			ptr.Deref(backing.Spec.VolumeAttributesClassName, ""),
			ptr.Deref(backing.Status.CurrentVolumeAttributesClassName, ""),
			ptr.Deref(volumeOf(t, c.cluster, c.real.Name).Spec.VolumeAttributesClassName, ""),
		}
	}
	await.Until(t, "all say that the volume has the attributes of "+name, func() bool {
		return slices.Equal(told(), []string{name, name, name, name, name})
	}, func() any { return told() })
}

// attributes makes two classes of attributes in the cluster of a driver.
func attributes(t *testing.T, driver *sidecars.Driver, suffix string) (slow, fast string) {
	t.Helper()
	classes := clusterOf(driver).Client().StorageV1().VolumeAttributesClasses()
	slow, fast = "slow-"+suffix, "fast-"+suffix
	for name, iops := range map[string]string{slow: "100", fast: "5000"} {
		class := &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver.Name, Parameters: map[string]string{"iops": iops},
		}
		must.Create(t, classes, class)
		t.Cleanup(func() { assert.NoError(t, classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
	return slow, fast
}
