package csi

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

// snapshotClass makes a class of snapshots for the driver of home.
const snapshotClass = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %[1]s}
driver: files.home.test
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: kept, namespace: %[1]s}
spec:
  volumeSnapshotClassName: %[1]s
  source: {persistentVolumeClaimName: data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: restored, namespace: %[1]s}
spec:
  storageClassName: files-now
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: kept}
`

// TestASnapshotOfAVirtualClaimAtHome shows what the snapshot controller does with a
// virtual volume whose source is that of a real driver: its snapshot holds the data,
// and a claim of the real class can be made from it.
func TestASnapshotOfAVirtualClaimAtHome(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, routes[0].place)
	c := served(t, namespace, home)
	write(t, home, c.volume.ID)

	_, err := bed.Home.Kubectl(t.Context(), fmt.Sprintf(snapshotClass, namespace), "apply", "-f", "-")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := bed.Home.Kubectl(context.Background(), "", "delete", "volumesnapshotclass", namespace)
		assert.NoError(t, err)
	})
	await.Until(t, "the snapshot is ready", func() bool {
		ready, err := bed.Home.Kubectl(t.Context(), "", "get", "volumesnapshot", "-n", namespace, "kept", "-o", "jsonpath={.status.readyToUse}")
		require.NoError(t, err)
		return ready == "true"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })

	holds(t, namespace, "restored")
}

// TestACloneOfAVirtualClaimAtHome shows that external-provisioner copies a virtual
// volume whose source is that of its own driver into a volume of the real class.
func TestACloneOfAVirtualClaimAtHome(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, routes[0].place)
	c := served(t, namespace, home)
	write(t, home, c.volume.ID)
	claim := fabric.NewClaim(namespace, "clone", atOnce)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	clone := holds(t, namespace, "clone")
	assert.Equal(t, c.volume.ID, clone.Source)
}

const (
	// text is written and read in images, at place.
	text  = "precious"
	place = 1 << 20
)

// write puts text into a volume.
func write(t *testing.T, driver *sidecars.Driver, id string) {
	t.Helper()
	image, err := os.OpenFile(driver.Image(id), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = image.WriteAt([]byte(text), place)
	require.NoError(t, err)
	require.NoError(t, image.Close())
}

// holds waits until a claim of home is bound, and checks that its volume holds text.
func holds(t *testing.T, namespace, name string) sidecars.Volume {
	t.Helper()
	await.Until(t, "claim "+name+" is bound", func() bool { return claimOf(t, bed.Home, namespace, name).Spec.VolumeName != "" },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
	id := volumeOf(t, bed.Home, claimOf(t, bed.Home, namespace, name).Spec.VolumeName).Spec.CSI.VolumeHandle
	assert.Equal(t, text, read(t, home, id))
	return volumes(t, home)[id]
}

// read returns what is in a volume where write puts text.
func read(t *testing.T, driver *sidecars.Driver, id string) string {
	t.Helper()
	image, err := os.Open(driver.Image(id))
	require.NoError(t, err)
	defer image.Close()
	content := make([]byte, len(text))
	_, err = image.ReadAt(content, place)
	require.NoError(t, err)
	return string(content)
}
