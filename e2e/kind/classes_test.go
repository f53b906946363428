package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownClasses makes a class of the driver in both clusters, with more fields and more
// parameters, and a virtual class of the same name that leads to them.
func ownClasses(t *testing.T, name, fields, parameters string) {
	t.Helper()
	needsClusters(t)
	for _, in := range []*cluster{home, west} {
		realClass(t, in, name+"-real", fields, parameters)
	}
	home.apply(t, fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
parameters: {lodestone.dev/local-class: %[1]s-real, lodestone.dev/remote-class: %[1]s-real}
`, name))
	t.Cleanup(func() { _, _ = home.try(t.Context(), "", "delete", "storageclass", name, "--ignore-not-found") })
}

// realClass makes a class of the driver in a cluster.
func realClass(t *testing.T, in *cluster, name, fields, parameters string) {
	t.Helper()
	of, err := in.client.StorageV1().StorageClasses().Get(t.Context(), "disk", metav1.GetOptions{})
	require.NoError(t, err)
	in.apply(t, fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
volumeBindingMode: WaitForFirstConsumer
parameters: {csi.storage.k8s.io/fstype: %s%s}
%s
`, name, of.Provisioner, of.Parameters["csi.storage.k8s.io/fstype"], parameters, fields))
	t.Cleanup(func() { _, _ = in.try(t.Context(), "", "delete", "storageclass", name, "--ignore-not-found") })
}

func TestAFileSystemIsMountedWithTheOptionsOfItsClass(t *testing.T) {
	t.Parallel()
	const name = "e2e-mount-options"
	ownClasses(t, name, "mountOptions: [noatime, nodev]", "")
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

func TestPodsShareAFileSystemAndReadersACopyOfIt(t *testing.T) {
	t.Parallel()
	const name = "e2e-shared"
	ownClasses(t, name, "", ", share: \"true\"")
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: shared}
spec: {storageClassName: %s, accessModes: [ReadWriteMany], resources: {requests: {storage: 512Mi}}}
`, shop, name))
			const of = "{name: data, persistentVolumeClaim: {claimName: shared}}"
			sleeps(t, shop, "one", side, of)
			sleeps(t, shop, "two", "", of)
			shell(t, shop, "one", "echo precious > /data/of-one")
			shell(t, shop, "two", "cat /data/of-one > /data/of-two && sync")
			assert.Equal(t, "precious\n", shell(t, shop, "one", "cat /data/of-two"))

			home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: copy}
spec:
  storageClassName: %s
  accessModes: [ReadOnlyMany]
  resources: {requests: {storage: 512Mi}}
  dataSource: {kind: PersistentVolumeClaim, name: shared}
`, shop, name))
			const readOnly = "{name: data, persistentVolumeClaim: {claimName: copy, readOnly: true}}"
			for _, reader := range []string{"three", "four"} {
				sleeps(t, shop, reader, "", readOnly)
				assert.Equal(t, "precious\n", shell(t, shop, reader, "cat /data/of-two"))
				said, err := home.try(t.Context(), "", "exec", reader, "-n", shop, "--", "touch", "/data/mine")
				require.Error(t, err, said)
				assert.Contains(t, said+err.Error(), "Read-only file system")
			}
		})
	}
}
