package csi

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
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
	namespace := space(t)
	create(t, namespace, routes[0].place)
	c := served(t, namespace, home)
	image, err := os.OpenFile(home.Image(c.volume.ID), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = image.WriteAt([]byte("precious"), 1<<20)
	require.NoError(t, err)
	require.NoError(t, image.Close())

	_, err = bed.Home.Kubectl(t.Context(), fmt.Sprintf(snapshotClass, namespace), "apply", "-f", "-")
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

	var id string
	await.Until(t, "the restored claim is bound", func() bool {
		claim := claimOf(t, bed.Home, namespace, "restored")
		if claim.Spec.VolumeName == "" {
			return false
		}
		id = volumeOf(t, bed.Home, claim.Spec.VolumeName).Spec.CSI.VolumeHandle
		return true
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	restored, err := os.Open(home.Image(id))
	require.NoError(t, err)
	defer restored.Close()
	content := make([]byte, 8)
	_, err = restored.ReadAt(content, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(content))
}
