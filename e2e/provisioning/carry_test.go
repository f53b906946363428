package provisioning

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
