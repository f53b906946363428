package csi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

func TestModesReachTheDriverOfTheRealClass(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		access corev1.PersistentVolumeAccessMode
		mode   corev1.PersistentVolumeMode
	}{
		{name: "a file system for one pod", access: corev1.ReadWriteOncePod, mode: corev1.PersistentVolumeFilesystem},
		{name: "a file system that is only read", access: corev1.ReadOnlyMany, mode: corev1.PersistentVolumeFilesystem},
		{name: "a device", access: corev1.ReadWriteOnce, mode: corev1.PersistentVolumeBlock},
		{name: "a device for all nodes", access: corev1.ReadWriteMany, mode: corev1.PersistentVolumeBlock},
	} {
		for _, r := range routes {
			t.Run(row.name+", "+r.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				create(t, namespace, func(pod *corev1.Pod) *corev1.Pod {
					if row.mode == corev1.PersistentVolumeBlock {
						pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
					}
					return r.place(pod)
				}, func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.AccessModes, claim.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{row.access}, ptr.To(row.mode)
				})
				c := served(t, namespace, r.driver())
				for _, volume := range []*corev1.PersistentVolume{c.real, c.virtual} {
					assert.Equal(t, []corev1.PersistentVolumeAccessMode{row.access}, volume.Spec.AccessModes)
					assert.Equal(t, row.mode, ptr.Deref(volume.Spec.VolumeMode, ""))
				}
				if row.mode == corev1.PersistentVolumeFilesystem {
					assert.Equal(t, "ext4", c.real.Spec.CSI.FSType)
				} else {
					assert.Empty(t, c.real.Spec.CSI.FSType)
				}
			})
		}
	}
}

// TestWhatTheDriverRefusesIsSaidInItsWords asks for what a disk cannot be.
func TestWhatTheDriverRefusesIsSaidInItsWords(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, fabric.AtHome, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	twin := "pvc-" + string(claimOf(t, bed.Home, namespace, "data").UID)
	assert.Contains(t, await.Event(t, bed.Home.Client(), fabric.Storage, twin, "ProvisioningFailed"), "one node at a time")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "WaitingForBacking"), twin)
}
