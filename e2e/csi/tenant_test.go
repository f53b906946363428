package csi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// forgedSnapshots are what a tenant writes who may do everything with VolumeSnapshots of
// the own namespace, %[1]s: another tenant's content is %[3]s and its UID %[4]s, its
// namespace %[2]s, its claim's UID %[5]s, home's ID %[6]s.
const forgedSnapshots = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: of-content, namespace: %[1]s}
spec: {source: {volumeSnapshotContentName: %[3]s}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: of-path, namespace: %[1]s}
spec: {source: {persistentVolumeClaimName: "../%[2]s/data"}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: of-twin, namespace: %[1]s}
spec: {source: {persistentVolumeClaimName: pvc-%[5]s}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: kept
  namespace: %[1]s
  labels: {lodestone.dev/claim-uid: %[5]s, lodestone.dev/home: %[6]s, lodestone.dev/content-uid: %[4]s, lodestone.dev/move: %[5]s}
  annotations: {lodestone.dev/content: %[3]s, lodestone.dev/source-cluster: west, lodestone.dev/unpublished: "true",
    snapshot.storage.kubernetes.io/deletion-secret-name: west, snapshot.storage.kubernetes.io/deletion-secret-namespace: lodestone-system}
spec: {source: {persistentVolumeClaimName: data}}
`

// thereToo is what the same tenant writes in the namespace that is theirs in the remote
// cluster, where home's own snapshots are beside theirs.
const thereToo = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: snapshot-%[4]s
  namespace: %[1]s
  labels: {lodestone.dev/home: %[6]s, lodestone.dev/content-uid: %[4]s}
  annotations: {lodestone.dev/content: %[3]s, lodestone.dev/driver: files.west.test}
spec: {volumeSnapshotClassName: taken, source: {persistentVolumeClaimName: data}}
`

// TestASnapshotReachesNothingOfAnotherTenant has a tenant forge snapshots at home and in the
// remote cluster, and the status of one, which a tenant may be allowed to write.
func TestASnapshotReachesNothingOfAnotherTenant(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			victim, attacker := space(t), space(t)
			create(t, victim, r.place)
			create(t, attacker, r.place)
			theirs, own := served(t, victim, r.driver()), served(t, attacker, r.driver())
			write(t, r.driver(), theirs.volume.ID)
			snap(t, victim, "kept")
			content := field(t, bed.Home, "volumesnapshot", victim, "kept", "{.status.boundVolumeSnapshotContentName}")
			contentUID := field(t, bed.Home, "volumesnapshotcontent", "", content, "{.metadata.uid}")
			handle := field(t, bed.Home, "volumesnapshotcontent", "", content, "{.status.snapshotHandle}")
			id, err := bed.HomeID(t.Context())
			require.NoError(t, err)
			forged := func(text string) string {
				return fmt.Sprintf(text, attacker, victim, content, contentUID, theirs.claim.UID, id)
			}
			_, err = bed.Home.Kubectl(t.Context(), forged(forgedSnapshots), "apply", "-f", "-")
			require.NoError(t, err)
			_, err = bed.West.Kubectl(t.Context(), forged(thereToo), "apply", "-f", "-")
			require.NoError(t, err)
			status := fmt.Sprintf(`{"status":{"boundVolumeSnapshotContentName":%q,"readyToUse":true,"restoreSize":"1Gi"}}`, content)
			for _, name := range []string{"of-content", "of-path", "of-twin"} {
				_, err = bed.Home.Kubectl(t.Context(), "", "patch", "volumesnapshot", "-n", attacker, name, "--subresource=status", "--type=merge", "-p", status)
				require.NoError(t, err)
				claim := fabric.NewClaim(attacker, name, virtual)
				from(name)(claim)
				claim.Annotations = map[string]string{keys.SourceCluster: theirs.virtual.Labels[keys.Cluster]}
				_, err = bed.Home.Client().CoreV1().PersistentVolumeClaims(attacker).Create(t.Context(), claim, metav1.CreateOptions{})
				require.NoError(t, err)
				createPod(t, r.place(fabric.NewPod(attacker, name, name)))
			}
			await.Event(t, bed.Home.Client(), attacker, "of-content", "InvalidSnapshot")

			// A forged one of the own claim is what it is: a snapshot of that.
			await.Until(t, "the snapshot of the own claim is ready", func() bool {
				return field(t, bed.Home, "volumesnapshot", attacker, "kept", "{.status.readyToUse}") == "true"
			}, func() any { return await.Events(t, bed.Home.Client(), attacker) })
			restore(t, attacker, "restored", "kept")
			runs(t, attacker, "restored")
			got := behind(t, attacker, "restored", r.driver())
			assert.NotEqual(t, text, read(t, r.driver(), got.volume.ID))
			assert.Equal(t, 1, snapshotsOf(t, r.driver(), theirs.volume.ID), "nobody else took one")

			for _, name := range []string{"of-content", "of-path", "of-twin"} {
				claim := claimOf(t, bed.Home, attacker, name)
				assert.Empty(t, claim.Spec.VolumeName, name)
				assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID)), name)
				assert.Nil(t, claimOf(t, bed.West, attacker, name), name)
			}
			for _, v := range volumes(t, r.driver()) {
				assert.NotEqual(t, theirs.volume.ID, v.Source, "volume %s was made of another tenant's", v.ID)
			}
			// Theirs is what it was, and still good.
			assert.Equal(t, handle, field(t, bed.Home, "volumesnapshotcontent", "", content, "{.status.snapshotHandle}"))
			assert.Empty(t, field(t, bed.Home, "volumesnapshotcontent", "", content, "{.metadata.deletionTimestamp}"))
			restore(t, victim, "restored", "kept")
			runs(t, victim, "restored")
			assert.Equal(t, text, read(t, r.driver(), behind(t, victim, "restored", r.driver()).volume.ID))
			assert.NotEqual(t, own.volume.ID, got.volume.ID)
		})
	}
}
