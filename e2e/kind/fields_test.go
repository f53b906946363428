package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plain is a pod that sleeps, with a volume at /data: the last line.
const plain = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
%[4]s  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[3]s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [%[5]s]
`

// sleeps makes such a pod on a side, and waits until it is ready.
func sleeps(t *testing.T, namespace, name, side, volume string) {
	t.Helper()
	home.apply(t, fmt.Sprintf(plain, namespace, name, image, strings.TrimPrefix(side, "    "), volume))
	readyPod(t, namespace, name)
}

// realClass makes a class of the driver in a cluster.
func realClass(t *testing.T, in *cluster, name, more string) {
	t.Helper()
	of, err := in.client.StorageV1().StorageClasses().Get(t.Context(), "disk", metav1.GetOptions{})
	require.NoError(t, err)
	in.apply(t, fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
volumeBindingMode: WaitForFirstConsumer
parameters: {csi.storage.k8s.io/fstype: %s}
%s
`, name, of.Provisioner, of.Parameters["csi.storage.k8s.io/fstype"], more))
	t.Cleanup(func() { _, _ = in.try(t.Context(), "", "delete", "storageclass", name, "--ignore-not-found") })
}

func TestAFileSystemIsMountedWithTheOptionsOfItsClass(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	const name = "e2e-mount-options"
	for _, in := range []*cluster{home, west} {
		realClass(t, in, name+"-real", "mountOptions: [noatime, nodev]")
	}
	home.apply(t, fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
parameters: {lodestone.dev/local-class: %[1]s-real, lodestone.dev/remote-class: %[1]s-real}
`, name))
	t.Cleanup(func() { _, _ = home.try(t.Context(), "", "delete", "storageclass", name, "--ignore-not-found") })
	shop := namespace(t)
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			claim := strings.ReplaceAll(where, " ", "-")
			home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}
`, shop, claim, name))
			sleeps(t, shop, claim, side, fmt.Sprintf("{name: data, persistentVolumeClaim: {claimName: %s}}", claim))
			mounted := shell(t, shop, claim, "grep ' /data ' /proc/mounts")
			assert.Contains(t, mounted, "noatime")
			assert.Contains(t, mounted, "nodev")
		})
	}
}

func TestAnEphemeralVolumeComesAndGoesWithItsPod(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			sleeps(t, shop, "worker", side, "{name: data, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: e2e-disk, accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}}}}")
			shell(t, shop, "worker", "echo scratch > /data/file && sync")
			data := volumeOf(t, shop, "worker-data")
			deletePod(t, readyPod(t, shop, "worker"))
			data.requireGone(t)
		})
	}
}

func TestAnImportedClaimHasTheFilesThatItHad(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: data}
spec: {storageClassName: disk, accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}
`, shop))
	const of = "{name: data, persistentVolumeClaim: {claimName: data}}"
	sleeps(t, shop, "before", atHome, of)
	shell(t, shop, "before", "echo precious > /data/file && sync")
	deletePod(t, readyPod(t, shop, "before"))
	claim := claimOf(t, shop, "data")
	real := claim.Spec.VolumeName
	said, code := lodestone(t, "import", "pvc", "data", "-n", shop, "--class", diskClass, "--yes")
	require.Zero(t, code, said)
	data := volumeOf(t, shop, "data")
	assert.Equal(t, real, data.real, "nothing is copied")
	assert.NotEqual(t, claim.UID, claimOf(t, shop, "data").UID)
	sleeps(t, shop, "after", "", of)
	assert.Equal(t, "precious\n", shell(t, shop, "after", "cat /data/file"))
	deletePod(t, readyPod(t, shop, "after"))
	home.kubectl(t, "delete", "pvc", "data", "-n", shop)
	data.requireGone(t)
}
