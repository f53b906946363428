package moves

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestAVolumeAndItsSuccessor(t *testing.T) {
	before := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-u1", UID: "v1", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", "external-attacher/disk", "external-provisioner.volume.kubernetes.io/finalizer"},
			Labels:      map[string]string{keys.Cluster: keys.Home, "team": "a"},
			Annotations: map[string]string{keys.Backing: "home/s/pvc-u1/b1", keys.BackingVolume: "real-1", "pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "lodestone",
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u1", ResourceVersion: "5"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	kept := remembered(before)
	assert.Equal(t, before.UID, kept.UID, "which one it was")
	assert.Empty(t, kept.ResourceVersion)
	assert.Empty(t, kept.Status)
	assert.Equal(t, []string{"external-provisioner.volume.kubernetes.io/finalizer"}, kept.Finalizers)
	assert.Empty(t, kept.Spec.ClaimRef.ResourceVersion)
	assert.Equal(t, before.Spec.ClaimRef.UID, kept.Spec.ClaimRef.UID)

	next := succeed(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", Labels: map[string]string{keys.Cluster: "west"}, Annotations: map[string]string{keys.Backing: "west/shop/data/b2"}},
		Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
	}, kept)
	assert.Equal(t, map[string]string{keys.Cluster: "west", "team": "a"}, next.Labels)
	assert.Equal(t, map[string]string{keys.Backing: "west/shop/data/b2", "pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"}, next.Annotations,
		"the real volume of the source is not that of the target")
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, next.Spec.PersistentVolumeReclaimPolicy, "as the administrator chose")
	assert.Equal(t, kept.Finalizers, next.Finalizers)
	assert.Equal(t, kept.Spec.ClaimRef, next.Spec.ClaimRef)
}

func TestAMoverHasWhatItNeedsAndNoMore(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	for _, end := range record.Ends {
		spec := c.moverSpec(r, 0, end, "node-1")
		assert.False(t, *spec.AutomountServiceAccountToken)
		assert.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC)
		security := spec.Containers[0].SecurityContext
		assert.Equal(t, []corev1.Capability{"ALL"}, security.Capabilities.Drop)
		assert.Equal(t, []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}, security.Capabilities.Add)
		assert.False(t, *security.AllowPrivilegeEscalation)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type)
		assert.NotEmpty(t, spec.Containers[0].Resources.Limits)
		for _, volume := range spec.Volumes {
			assert.True(t, volume.HostPath == nil && volume.Projected == nil)
		}
		terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		assert.Equal(t, keys.Cluster, terms[0].MatchExpressions[0].Key, "never on a node that stands for another cluster")
		assert.Equal(t, []string{"node-1"}, terms[0].MatchFields[0].Values)
	}
	assert.Equal(t, "pvc-u1", c.moverSpec(r, 0, record.Source, "").Volumes[0].PersistentVolumeClaim.ClaimName)
	assert.Equal(t, "data", c.moverSpec(r, 0, record.Target, "").Volumes[0].PersistentVolumeClaim.ClaimName)
}

func TestAMoverIsBoundOnTheDiskOfItsNodeAndStopsBeforeTheNodeEndsIt(t *testing.T) {
	sized := func(size string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}
	}
	for name, row := range map[string]struct {
		volume *corev1.PersistentVolume
		told   int64
		want   int64
	}{
		"a small volume":           {sized("1Gi"), 0, 4<<30 + 64<<20},
		"a large one":              {sized("16Ti"), 0, 4<<30 + 1<<40},
		"one of which is not told": {nil, 0, 4 << 30},
		"as configured":            {sized("16Ti"), 20 << 30, 20 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Image: "mover:1", Scratch: row.told})
			r := recordIn("PreCopy")
			r.Claims[0].Volume = row.volume
			for _, end := range record.Ends {
				spec := c.moverSpec(r, 0, end, "")
				mover := spec.Containers[0]
				assert.Contains(t, mover.Args, fmt.Sprintf("--scratch-limit=%d", row.want))
				var limit *resource.Quantity
				for _, volume := range spec.Volumes {
					if volume.EmptyDir != nil {
						limit = volume.EmptyDir.SizeLimit
					}
				}
				require.NotNil(t, limit)
				assert.Greater(t, limit.Value(), row.want)
				assert.Greater(t, mover.Resources.Limits.StorageEphemeral().Value(), limit.Value())
				assert.Contains(t, mover.Resources.Requests, corev1.ResourceEphemeralStorage)
				assert.Zero(t, mover.Resources.Requests.StorageEphemeral().Value(), "any node will do")
			}
		})
	}
}

func TestAMoverOfABlockVolumeHasTheDevice(t *testing.T) {
	c := New(Config{Image: "mover:1"})
	r := recordIn("PreCopy")
	block := corev1.PersistentVolumeBlock
	r.Claims[0].Volume = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeMode: &block}}
	for _, end := range record.Ends {
		mover := c.moverSpec(r, 0, end, "").Containers[0]
		assert.Equal(t, []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}, mover.VolumeDevices)
		assert.Contains(t, mover.Args, "--block")
		for _, mount := range mover.VolumeMounts {
			assert.NotEqual(t, "volume", mount.Name)
		}
	}
}
