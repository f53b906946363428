package movers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
)

// ends are the movers of a copy.
var ends = []movers.Mover{
	{Ref: backing.Ref{Cluster: keys.Home, Namespace: "storage", Name: "pvc-u1"}, Name: "move-m1-0-source", Session: "m1-0",
		Role: moverapi.Sender, Image: "mover:1", HomeID: "h1"},
	{Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data"}, Name: "move-m1-0-target", Session: "m1-0",
		Role: moverapi.Receiver, Image: "mover:1", HomeID: "h1"},
}

func TestAMoverHasWhatItNeedsAndNoMore(t *testing.T) {
	for _, m := range ends {
		spec := movers.PodSpec(m, "node-1")
		assert.Equal(t, m.Image, spec.Containers[0].Image)
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
	for _, m := range ends {
		spec := movers.PodSpec(m, "")
		assert.Equal(t, m.Ref.Name, spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		assert.Equal(t, m.Name, spec.Volumes[1].Secret.SecretName)
		assert.Contains(t, spec.Containers[0].Args, "--move=m1-0")
		assert.Empty(t, spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields)
	}
}

func TestAMoverWithoutRootIsLikeThePodsOfItsVolume(t *testing.T) {
	user := &movers.User{ID: 12345, Group: ptr.To(int64(23456)), Groups: []int64{34567}, FSGroup: ptr.To(int64(45678))}
	for _, m := range ends {
		m.User = user
		spec := movers.PodSpec(m, "")
		security, mover := spec.SecurityContext, spec.Containers[0]
		assert.True(t, *security.RunAsNonRoot)
		assert.Equal(t, []int64{12345, 23456, 45678}, []int64{*security.RunAsUser, *security.RunAsGroup, *security.FSGroup})
		assert.Equal(t, []int64{34567}, security.SupplementalGroups)
		assert.Equal(t, corev1.FSGroupChangeOnRootMismatch, *security.FSGroupChangePolicy, "a volume in use is left as it is")
		assert.Empty(t, mover.SecurityContext.Capabilities.Add)
		assert.Contains(t, mover.Args, "--rootless")
		assert.Equal(t, int32(0o444), *spec.Volumes[1].Secret.DefaultMode, "its keys are root's files")

		m.User = &movers.User{ID: 12345}
		assert.Nil(t, movers.PodSpec(m, "").SecurityContext.FSGroupChangePolicy, "no group is given to a volume that has none")

		m.User = nil
		assert.NotContains(t, movers.PodSpec(m, "").Containers[0].Args, "--rootless")
	}
}

func TestAMoverIsBoundOnTheDiskOfItsNodeAndStopsBeforeTheNodeEndsIt(t *testing.T) {
	sized := func(size string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}
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
			for _, m := range ends {
				m.Scratch = movers.ScratchLimit(row.told, row.volume)
				spec := movers.PodSpec(m, "")
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
	block := corev1.PersistentVolumeBlock
	for _, m := range ends {
		m.Block = movers.IsBlock(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeMode: &block}})
		mover := movers.PodSpec(m, "").Containers[0]
		assert.Equal(t, []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}, mover.VolumeDevices)
		assert.Contains(t, mover.Args, "--block")
		for _, mount := range mover.VolumeMounts {
			assert.NotEqual(t, "volume", mount.Name)
		}
	}
}
