package provisioning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestMountOptionsOfARemoteVolumeAreThoseOfItsRealClass: the kubelet there mounts
// the real volume, and nothing of that one crosses. The user is told.
func TestMountOptionsOfARemoteVolumeAreThoseOfItsRealClass(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class := bed.WestStorage.Class("real-"+namespace, storagev1.VolumeBindingImmediate)
	class.MountOptions = []string{"noatime", "discard"}
	makeClass(t, bed.West, class)
	virtual, _, real := served(t, namespace, newClass(t, with(keys.RemoteClass, class.Name), func(c *storagev1.StorageClass) {
		c.MountOptions = []string{"sync", "noatime"}
	}), fabric.InWest, bed.West)
	assert.Equal(t, []string{"sync", "noatime"}, virtual.Spec.MountOptions)
	assert.Equal(t, []string{"noatime", "discard"}, real.Spec.MountOptions)
	told := await.Event(t, bed.Home.Client(), namespace, virtual.Spec.ClaimRef.Name, "MountOptionsIgnored")
	assert.Contains(t, told, `mount options "sync" of storage class`)
	assert.Contains(t, told, class.Name)
}
