package kind

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	// diskDriver is the CSI driver that storage.sh runs in both nodes, disks where
	// it keeps its volumes there, and diskClass the virtual class that leads to it.
	diskDriver = "disk.e2e.lodestone.dev"
	disks      = "/var/lib/lodestone-disk"
	diskClass  = "e2e-disk"
)

// sides are the clusters that a pod can be sent to, as lines of its spec.
var sides = map[string]string{"at home": atHome, "in west": inWest}

// keepBlob has one pod keep a file on a volume of the driver, and returns the pod,
// where its data is, and the checksum of the file.
func keepBlob(t *testing.T, side string) (keepers, *corev1.Pod, *volume, string) {
	t.Helper()
	db := keepers{namespace: namespace(t), name: "db", class: diskClass, size: "512Mi", replicas: 1, spec: side}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	return db, pod, volumeOf(t, db.namespace, db.claim(0)), shell(t, db.namespace, pod.Name, "sha256sum /data/blob")
}

// shell runs a command in a pod of home, wherever it runs.
func shell(t *testing.T, namespace, pod, command string) string {
	t.Helper()
	return home.kubectl(t, "exec", pod, "-n", namespace, "--", "sh", "-c", command)
}

// fileSystemSize returns the size of the file system that a pod has at /data, in
// mebibytes.
func fileSystemSize(t *testing.T, namespace, pod string) int {
	t.Helper()
	// The last line, of which the second field is the size in kibibytes.
	fields := strings.Fields(shell(t, namespace, pod, "df -P -k /data | tail -n 1"))
	require.Greater(t, len(fields), 2)
	kibibytes, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	return kibibytes / 1024
}

// requireSize waits until a claim says that it has a size, and nothing of an
// expansion any more.
func requireSize(t *testing.T, namespace, claim, size string) {
	t.Helper()
	eventually(t, "claim "+claim+" has "+size, func(c *assert.CollectT) {
		pvc, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, size, pvc.Status.Capacity.Storage().String(), "%+v", pvc.Status)
		assert.Empty(c, ofExpansion(pvc))
	})
}

// ofExpansion are the conditions of a claim but for that by which Kubernetes 1.37 says of each whether a pod uses it.
func ofExpansion(claim *corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(claim.Status.Conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == "Unused"
	})
}

// fail has each call of a method of the driver for tests fail or take long in a cluster, as its fault says in JSON, until the returned
// function is called, which may be done twice.
func (c *cluster) fail(t *testing.T, method, fault string) (heal func()) {
	t.Helper()
	path := disks + "/faults/" + method
	_, err := c.inNode(t.Context(), "sh", "-c", `echo "$1" >"$2"`, "-", fault, path)
	require.NoError(t, err)
	heal = func() {
		_, err := c.inNode(context.Background(), "rm", "-f", path)
		require.NoError(t, err)
	}
	t.Cleanup(heal)
	return heal
}

// TestFilesStayWhileTheirClaimGrowsInUse is the only one that has file systems grow:
// the drivers fail for a while. Kubelets look about once a minute.
func TestFilesStayWhileTheirClaimGrowsInUse(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			db, pod, data, before := keepBlob(t, side)
			shop := db.namespace
			assert.Less(t, fileSystemSize(t, shop, pod.Name), 513)

			t.Log("The kubelet cannot make the file system larger, and the claim says why.")
			heal := data.in.fail(t, "NodeExpandVolume", `{"code": "INTERNAL", "message": "the disk is sick"}`)
			home.kubectl(t, "patch", "pvc", db.claim(0), "-n", shop, "-p", `{"spec": {"resources": {"requests": {"storage": "1Gi"}}}}`)
			eventually(t, "the claim says why it does not grow", func(c *assert.CollectT) {
				pvc, err := home.client.CoreV1().PersistentVolumeClaims(shop).Get(t.Context(), db.claim(0), metav1.GetOptions{})
				require.NoError(c, err)
				said := ""
				for _, condition := range pvc.Status.Conditions {
					if condition.Type == corev1.PersistentVolumeClaimNodeResizeError {
						said = condition.Message
					}
				}
				assert.Contains(c, said, "the disk is sick", "%+v", pvc.Status)
				assert.Equal(c, "512Mi", pvc.Status.Capacity.Storage().String())
			})

			t.Log("Then it can.")
			heal()
			requireSize(t, shop, db.claim(0), "1Gi")
			assert.Greater(t, fileSystemSize(t, shop, pod.Name), 900)
			assert.Equal(t, before, shell(t, shop, pod.Name, "sha256sum /data/blob"))
			same := readyPod(t, shop, pod.Name)
			assert.Equal(t, pod.UID, same.UID)
			assert.Zero(t, same.Status.ContainerStatuses[0].RestartCount, "restarts of the container")
			backing, name, _ := strings.Cut(data.backing, "/")
			eventually(t, "the real claim says so, too", func(c *assert.CollectT) {
				pvc, err := data.in.client.CoreV1().PersistentVolumeClaims(backing).Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(c, err)
				assert.Equal(c, "1Gi", pvc.Spec.Resources.Requests.Storage().String())
				assert.Equal(c, "1Gi", pvc.Status.Capacity.Storage().String())
				assert.Empty(c, ofExpansion(pvc))
			})

			t.Log("The next pod has all of it.")
			deletePod(t, same)
			db.ready(t, 1)
			assert.Greater(t, fileSystemSize(t, shop, pod.Name), 900)
			assert.Equal(t, before, shell(t, shop, pod.Name, "sha256sum /data/blob"))
			db.scale(t, 0)
			home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
			data.requireGone(t)
		})
	}
}

// reader is a pod, and the claim that it uses, which more is said of.
const reader = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  storageClassName: e2e-disk
%[3]s---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[4]s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[2]s}}]
`

func TestACopyHasTheFilesOfItsSource(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			db := keepers{namespace: shop, name: "db", class: diskClass, size: "512Mi", replicas: 1, spec: side}
			home.apply(t, db.manifest())
			pod := db.ready(t, 1)[0]
			source := volumeOf(t, shop, db.claim(0))

			// Its pod may run anywhere; the data says where.
			home.apply(t, fmt.Sprintf(reader, shop, "copy", `  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  dataSource: {kind: PersistentVolumeClaim, name: `+db.claim(0)+`}
`, image))
			readyPod(t, shop, "copy")

			assert.Equal(t, shell(t, shop, pod.Name, "sha256sum /data/blob"), shell(t, shop, "copy", "sha256sum /data/blob"))
			assert.Greater(t, fileSystemSize(t, shop, "copy"), 900)
			data := volumeOf(t, shop, "copy")
			assert.Equal(t, source.in, data.in)
			assert.NotEqual(t, source.directory, data.directory)
		})
	}
}

// TestABackingClaimThatAnAdministratorDeletesComesBackWithItsFiles: at home by the
// provisioner, in west by the agent there.
func TestABackingClaimThatAnAdministratorDeletesComesBackWithItsFiles(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			db, pod, data, before := keepBlob(t, side)
			shop := db.namespace
			backing, name, _ := strings.Cut(data.backing, "/")
			claims := data.in.client.CoreV1().PersistentVolumeClaims(backing)
			deleted := must.Get(t, claims, name)

			must.Delete(t, claims, name)
			if data.in == west {
				// A claim that a pod uses stays until the pod ends.
				deletePod(t, pod)
			}

			eventually(t, "another one is bound to the same volume", func(c *assert.CollectT) {
				next, err := claims.Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(c, err)
				assert.NotEqual(c, deleted.UID, next.UID)
				assert.Equal(c, corev1.ClaimBound, next.Status.Phase)
				assert.Equal(c, data.real, next.Spec.VolumeName)
			})
			if data.in == home {
				deletePod(t, pod)
			}
			next := db.ready(t, 1)[0]
			assert.NotEqual(t, pod.UID, next.UID)
			assert.Equal(t, before, shell(t, shop, next.Name, "sha256sum /data/blob"))
			assert.Equal(t, data.directory, volumeOf(t, shop, db.claim(0)).directory)
			db.scale(t, 0)
			home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
			data.requireGone(t)
		})
	}
}

func TestAClaimThatHomeHasNoRoomForGoesToWest(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(reader, shop, "large", `  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Gi}}
`, image))
	pod := readyPod(t, shop, "large")
	assert.Equal(t, virtualNode, pod.Spec.NodeName)
	assert.Equal(t, west, volumeOf(t, shop, "large").in)
	assert.Greater(t, fileSystemSize(t, shop, "large"), 10000)
}
