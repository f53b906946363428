package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAVolumeAndItsSuccessor(t *testing.T) {
	before := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-u1", UID: "v1", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", "external-attacher/disk",
				"external-provisioner.volume.kubernetes.io/finalizer"},
			Labels: map[string]string{keys.Cluster: keys.Home, "team": "a"},
			Annotations: map[string]string{keys.Backing: "home/s/pvc-u1/b1", keys.BackingVolume: "real-1",
				"pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "lodestone",
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u1", ResourceVersion: "5"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	kept := volumeForRecord(before)
	assert.Equal(t, before.UID, kept.UID, "which one it was")
	assert.Empty(t, kept.ResourceVersion)
	assert.Empty(t, kept.Status)
	assert.Equal(t, []string{"external-provisioner.volume.kubernetes.io/finalizer"}, kept.Finalizers)
	assert.Empty(t, kept.Spec.ClaimRef.ResourceVersion)
	assert.Equal(t, before.Spec.ClaimRef.UID, kept.Spec.ClaimRef.UID)

	next := inherit(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", Labels: map[string]string{keys.Cluster: "west"},
			Annotations: map[string]string{keys.Backing: "west/shop/data/b2"}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
	}, kept)
	assert.Equal(t, map[string]string{keys.Cluster: "west", "team": "a"}, next.Labels)
	assert.Equal(t, map[string]string{keys.Backing: "west/shop/data/b2", "pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"},
		next.Annotations, "the real volume of the source is not that of the target")
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, next.Spec.PersistentVolumeReclaimPolicy, "as the administrator chose")
	assert.Equal(t, kept.Finalizers, next.Finalizers)
	assert.Equal(t, kept.Spec.ClaimRef, next.Spec.ClaimRef)
}
