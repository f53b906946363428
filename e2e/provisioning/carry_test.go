package provisioning

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// change merges a change into a claim, as its user or an administrator may.
func change(t *testing.T, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, patch map[string]any, subresource ...string) {
	t.Helper()
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, data, metav1.PatchOptions{}, subresource...)
	require.NoError(t, err)
}

func annotations(pairs map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": pairs}}
}

func TestLabelsAndAnnotationsThatTheClassListsAreCarried(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			claim := annotated(annotated(fabric.NewClaim(namespace, "data", newClass(t, with(keys.Carry, "team,backup/*"))), "backup/daily", "yes"), "note", "mine")
			claim.Labels = map[string]string{"team": "a", "app": "db"}
			claim = createClaim(t, claim)
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			runs(t, namespace, "db")
			_, virtual := bound(t, bed.Home, namespace, "data")
			first := backingOf(t, virtual)
			assert.Equal(t, "a", first.Labels["team"])
			assert.Equal(t, "yes", first.Annotations["backup/daily"])
			assert.NotContains(t, first.Labels, "app")
			assert.NotContains(t, first.Annotations, "note")

			change(t, bed.Home, claim, annotations(map[string]any{"backup/daily": nil, "backup/hourly": "yes", "note": "ours"}))
			eventually(t, func() bool {
				b := backingOf(t, virtual)
				_, daily := b.Annotations["backup/daily"]
				return b.Annotations["backup/hourly"] == "yes" && !daily
			}, func() string { return "what the user changed is not carried" })

			change(t, route.cluster(), first, annotations(map[string]any{"backup/hourly": "no", "local": "theirs"}))
			eventually(t, func() bool {
				b := backingOf(t, virtual)
				return b.Annotations["backup/hourly"] == "yes" && b.Annotations["local"] == "theirs"
			}, func() string { return "what drifted is not put right, or more than that" })
			assert.Equal(t, string(claim.UID), backingOf(t, virtual).Labels[keys.ClaimUID])
		})
	}
}

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
	claim := fabric.NewClaim(namespace, "data", newClass(t))
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

// Classes cannot be changed, but made anew.
func TestWhatAClassNoLongerListsIsTakenOff(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	name := newClass(t, with(keys.Carry, "team"))
	claim := annotated(fabric.NewClaim(namespace, "data", name), "team", "a")
	createClaim(t, claim)
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	runs(t, namespace, "db")
	assert.Equal(t, "a", claimOf(t, bed.West, namespace, "data").Annotations["team"])

	classes := bed.Home.Client().StorageV1().StorageClasses()
	class, err := classes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, classes.Delete(t.Context(), name, metav1.DeleteOptions{}))
	consistently(t, func() bool { return claimOf(t, bed.West, namespace, "data").Annotations["team"] == "a" }, "it is taken off without a class")
	class.ObjectMeta, class.Parameters = metav1.ObjectMeta{Name: name}, nil
	_, err = classes.Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool {
		shadow := claimOf(t, bed.West, namespace, "data")
		return shadow.Annotations["team"] == "" && shadow.Annotations[keys.Carried] == ""
	}, func() string { return "it stays" })
}

// What a claim asks for of its volume is asked of the real one.
func TestAccessAndVolumeModesArePassedOn(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, access := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod, corev1.ReadWriteMany, corev1.ReadOnlyMany} {
			for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
				t.Run(route.name+" "+string(access)+" "+string(mode), func(t *testing.T) {
					t.Parallel()
					namespace := space(t)
					claim := fabric.NewClaim(namespace, "data", fabric.Class)
					claim.Spec.AccessModes, claim.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{access}, &mode
					createClaim(t, claim)
					pod := route.place(fabric.NewPod(namespace, "db", "data"))
					if mode == corev1.PersistentVolumeBlock {
						pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
					}
					createPod(t, pod)
					runs(t, namespace, "db")
					_, virtual := bound(t, bed.Home, namespace, "data")
					b := backingOf(t, virtual)
					_, real := bound(t, route.cluster(), b.Namespace, b.Name)
					for _, volume := range []*corev1.PersistentVolume{virtual, real} {
						assert.Equal(t, claim.Spec.AccessModes, volume.Spec.AccessModes)
						assert.Equal(t, mode, *volume.Spec.VolumeMode)
					}
					assert.Equal(t, claim.Spec.AccessModes, b.Spec.AccessModes)
				})
			}
		}
	}
}
