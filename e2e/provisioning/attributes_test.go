package provisioning

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// attributesClass makes a VolumeAttributesClass for the driver of a route's real
// classes, of the same name in each of the clusters.
func attributesClass(t *testing.T, driver string, clusters ...*testbed.Cluster) string {
	t.Helper()
	name := "attributes-" + rand.String(8)
	for _, cluster := range clusters {
		classes := cluster.Client().StorageV1().VolumeAttributesClasses()
		_, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"iops": "100"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return name
}

func TestAttributesClassGoesToTheBackingClaim(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			name := attributesClass(t, route.storage().Name(), route.cluster())
			claim := fabric.NewClaim(namespace, "data", newClass(t))
			claim.Spec.VolumeAttributesClassName = &name
			createClaim(t, claim)
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			runs(t, namespace, "db")
			have, virtual := bound(t, bed.Home, namespace, "data")
			b := backingOf(t, virtual)
			assert.Equal(t, name, ptr.Deref(b.Spec.VolumeAttributesClassName, ""))
			assert.Equal(t, name, ptr.Deref(virtual.Spec.VolumeAttributesClassName, ""))
			assert.Equal(t, name, ptr.Deref(have.Status.CurrentVolumeAttributesClassName, ""))
		})
	}
}

// A place without the class that is asked for is passed over.
func TestAttributesClassMustExistWhereTheVolumeIs(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	name := attributesClass(t, bed.HomeStorage.Name(), bed.Home)
	class := newClass(t)
	hasRoom(t, class, fabric.WestNode)
	claim := fabric.NewClaim(namespace, "data", class)
	claim.Spec.VolumeAttributesClassName = &name
	claim = createClaim(t, claim)
	createPod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoAttributesClass"), name)
	assert.Nil(t, claimOf(t, bed.West, namespace, "data"), "nothing was made there")
	bound(t, bed.Home, fabric.Storage, twinOf(claim))
}

// No program changes volumes on the test bed: the test says that it is done.
func TestAttributesOfARemoteVolumeAreChanged(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	silver, gold := attributesClass(t, bed.WestStorage.Name(), bed.West), attributesClass(t, bed.WestStorage.Name(), bed.West)
	claim := fabric.NewClaim(namespace, "data", newClass(t))
	claim.Spec.VolumeAttributesClassName = &silver
	claim = createClaim(t, claim)
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")

	wanting := func(name string) map[string]any {
		return map[string]any{"spec": map[string]any{"volumeAttributesClassName": name}}
	}
	absent := "absent-" + rand.String(8)
	change(t, bed.Home, claim, wanting(absent))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoAttributesClass"), absent)
	assert.Equal(t, silver, *claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName)

	change(t, bed.Home, claim, wanting(gold))
	eventually(t, func() bool { return *claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName == gold }, func() string { return "the shadow does not ask for it" })
	_, virtual := bound(t, bed.Home, namespace, "data")
	assert.Equal(t, silver, *virtual.Spec.VolumeAttributesClassName, "nobody has changed the volume yet")

	change(t, bed.West, claim, map[string]any{"status": map[string]any{"currentVolumeAttributesClassName": gold}}, "status")
	eventually(t, func() bool {
		have, virtual := bound(t, bed.Home, namespace, "data")
		return *virtual.Spec.VolumeAttributesClassName == gold && ptr.Deref(have.Status.CurrentVolumeAttributesClassName, "") == gold
	}, func() string { return "home does not tell" })
}

// A change that never came about is taken back as Kubernetes allows it.
func TestAttributesThatFailThereAreToldAndTakenBack(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	gold := attributesClass(t, bed.WestStorage.Name(), bed.Home, bed.West)
	claim := claimAndPod(t, namespace, newClass(t), fabric.InWest)
	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": gold}})
	asks := func() string {
		return ptr.Deref(claimOf(t, bed.West, namespace, "data").Spec.VolumeAttributesClassName, "")
	}
	eventually(t, func() bool { return asks() == gold }, func() string { return "the shadow does not ask for it" })

	change(t, bed.West, claim, map[string]any{"status": map[string]any{
		"modifyVolumeStatus": map[string]any{"targetVolumeAttributesClassName": gold, "status": corev1.PersistentVolumeClaimModifyVolumeInfeasible},
		"conditions":         []map[string]any{{"type": corev1.PersistentVolumeClaimVolumeModifyVolumeError, "status": "True", "message": "no gold left"}},
	}}, "status")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "AttributesFailed"), gold)
	eventually(t, func() bool {
		have, _ := bound(t, bed.Home, namespace, "data")
		state := have.Status.ModifyVolumeStatus
		return state != nil && state.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible && slices.ContainsFunc(have.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && c.Message == "no gold left"
		})
	}, func() string { return "the claim does not say so" })

	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": nil}})
	eventually(t, func() bool { return asks() == "" }, func() string { return "the shadow still asks for it" })
	change(t, bed.West, claim, map[string]any{"status": map[string]any{"modifyVolumeStatus": nil, "conditions": nil}}, "status")
	eventually(t, func() bool {
		have, _ := bound(t, bed.Home, namespace, "data")
		return have.Status.ModifyVolumeStatus == nil && len(have.Status.Conditions) == 0
	}, func() string { return "the claim still tells of it" })
}

// At home the driver of the real volume does it; the test says that it is done.
func TestAttributesOfAVolumeAtHomeAreRecordedOnItsTwin(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	gold := attributesClass(t, bed.HomeStorage.Name(), bed.Home)
	claim := claimAndPod(t, namespace, newClass(t), fabric.AtHome)
	change(t, bed.Home, claim, map[string]any{"spec": map[string]any{"volumeAttributesClassName": gold}})
	consistently(t, func() bool {
		return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)).Spec.VolumeAttributesClassName == nil
	}, "the twin is changed before the volume")
	change(t, bed.Home, claim, map[string]any{"status": map[string]any{"currentVolumeAttributesClassName": gold}}, "status")
	eventually(t, func() bool {
		return ptr.Deref(claimOf(t, bed.Home, fabric.Storage, twinOf(claim)).Spec.VolumeAttributesClassName, "") == gold
	}, func() string { return "the twin does not record it" })
}
