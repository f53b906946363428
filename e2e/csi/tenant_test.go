package csi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
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
  labels: {lodestone.dev/claim-uid: %[5]s, lodestone.dev/home: "%[6]s", lodestone.dev/content-uid: %[4]s, lodestone.dev/move: %[5]s}
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
  labels: {lodestone.dev/home: "%[6]s", lodestone.dev/content-uid: %[4]s}
  annotations: {lodestone.dev/content: %[3]s, lodestone.dev/driver: files.west.test}
spec: {volumeSnapshotClassName: taken, source: {persistentVolumeClaimName: data}}
`

// TestASnapshotReachesNothingOfAnotherTenant has a tenant forge snapshots at home and in the
// remote cluster, and the status of one, which a tenant may be allowed to write.
func TestASnapshotReachesNothingOfAnotherTenant(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			victim, attacker := newNamespace(t), newNamespace(t)
			create(t, victim, r.place)
			create(t, attacker, r.place)
			theirs, own := awaitServed(t, victim, r.driver()), awaitServed(t, attacker, r.driver())
			write(t, r.driver(), theirs.volume.ID)
			takeSnapshot(t, victim, "kept")
			content := field(t, bed.Home, "volumesnapshot", victim, "kept", "{.status.boundVolumeSnapshotContentName}")
			contentUID := field(t, bed.Home, "volumesnapshotcontent", "", content, "{.metadata.uid}")
			handle := field(t, bed.Home, "volumesnapshotcontent", "", content, "{.status.snapshotHandle}")
			id, err := bed.HomeID(t.Context())
			require.NoError(t, err)
			forged := func(text string) string {
				return fmt.Sprintf(text, attacker, victim, content, contentUID, theirs.claim.UID, id)
			}
			must.Kubectl(t, bed.Home, forged(forgedSnapshots), "apply", "-f", "-")
			must.Kubectl(t, bed.West, forged(thereToo), "apply", "-f", "-")
			status := fmt.Sprintf(`{"status":{"boundVolumeSnapshotContentName":%q,"readyToUse":true,"restoreSize":"1Gi"}}`, content)
			for _, name := range []string{"of-content", "of-path", "of-twin"} {
				must.Kubectl(t, bed.Home, "", "patch", "volumesnapshot", "-n", attacker, name, "--subresource=status", "--type=merge", "-p", status)
				claim := fabric.NewClaim(attacker, name, virtual)
				fromSnapshot(name)(claim)
				claim.Annotations = map[string]string{keys.SourceCluster: theirs.virtual.Labels[keys.Cluster]}
				must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(attacker), claim)
				bed.CreatePod(t, r.place(fabric.NewPod(attacker, name, name)))
			}
			await.Event(t, bed.Home.Client(), attacker, "of-content", "InvalidSnapshot")

			// A forged one of the own claim is what it is: a snapshot of that.
			await.Until(t, "the snapshot of the own claim is ready", func() bool {
				return field(t, bed.Home, "volumesnapshot", attacker, "kept", "{.status.readyToUse}") == "true"
			}, func() any { return await.Events(t, bed.Home.Client(), attacker) })
			restore(t, attacker, "restored", "kept")
			bed.AwaitRunning(t, attacker, "restored")
			got := chainOf(t, attacker, "restored", r.driver())
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
			bed.AwaitRunning(t, victim, "restored")
			assert.Equal(t, text, read(t, r.driver(), chainOf(t, victim, "restored", r.driver()).volume.ID))
			assert.NotEqual(t, own.volume.ID, got.volume.ID)
		})
	}
}

// deleteTwin deletes the twin of a claim, as an administrator does by mistake.
func (c chain) deleteTwin(t *testing.T) {
	t.Helper()
	twins := bed.Home.Client().CoreV1().PersistentVolumeClaims(c.backing.Namespace)
	must.Delete(t, twins, c.backing.Name)
}

// requireHealed waits until another twin is bound to the same real volume, and all
// is as before.
func (c chain) requireHealed(t *testing.T) {
	t.Helper()
	await.Until(t, "another twin is bound to the real volume", func() bool {
		twin := claimOf(t, bed.Home, c.backing.Namespace, c.backing.Name)
		return twin != nil && twin.UID != c.backing.UID && twin.Status.Phase == corev1.ClaimBound && twin.Spec.VolumeName == c.real.Name
	}, func() any { return claimOf(t, bed.Home, c.backing.Namespace, c.backing.Name) })
	await.Until(t, "the real volume is to be deleted with its claim again", func() bool {
		return volumeOf(t, bed.Home, c.real.Name).Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	})
	assert.Equal(t, c.volume.ID, volumeOf(t, bed.Home, c.real.Name).Spec.CSI.VolumeHandle)
}

func TestAVolumeWhoseTwinCameBackGrowsIsCopiedAndGoesWithItsClaim(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	create(t, namespace, fabric.AtHome)
	c := awaitServed(t, namespace, home)
	write(t, home, c.volume.ID)
	c.deleteTwin(t)
	c.requireHealed(t)
	requestSize(t, bed.Home, namespace, "data", "2Gi")
	c.requireGrown(t, home, 2)

	copyOf(t, namespace, func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, c.volume.Node) }, sized("2Gi"))
	bed.AwaitRunning(t, namespace, "reader")
	copied := chainOf(t, namespace, "copy", home)
	assert.Equal(t, c.volume.ID, copied.volume.Source)
	assert.Equal(t, text, read(t, home, copied.volume.ID))
	assert.Equal(t, text, read(t, home, c.volume.ID))

	remove(t, namespace)
	await.Until(t, "the driver has deleted the volume, and that alone", func() bool {
		left := volumes(t, home)
		_, there := left[c.volume.ID]
		return !there && left[copied.volume.ID].ID != ""
	})
	await.Until(t, "no volume is left of it", func() bool {
		return volumeOf(t, bed.Home, c.real.Name) == nil && volumeOf(t, bed.Home, c.virtual.Name) == nil
	})
}

// TestATwinThatIsDeletedWhileItsVolumeGrowsComesBack does not run in parallel: it
// makes the driver of home slow.
func TestATwinThatIsDeletedWhileItsVolumeGrowsComesBack(t *testing.T) {
	testbed.NotInShort(t)
	namespace := newNamespace(t)
	create(t, namespace, fabric.AtHome)
	c := awaitServed(t, namespace, home)
	write(t, home, c.volume.ID)
	require.NoError(t, home.FailNext("ControllerExpandVolume", sidecars.Fault{Delay: "1s", Code: "DEADLINE_EXCEEDED", Done: true}))
	t.Cleanup(func() { require.NoError(t, home.Heal("ControllerExpandVolume")) })
	requestSize(t, bed.Home, namespace, "data", "2Gi")
	await.Until(t, "the driver is growing the volume", func() bool {
		left, err := home.Ordered("ControllerExpandVolume")
		require.NoError(t, err)
		return !left
	})
	c.deleteTwin(t)
	c.requireHealed(t)
	c.requireGrown(t, home, 2)
	assert.Equal(t, text, read(t, home, c.volume.ID))
}

// TestTheSourceOfACopyIsDeletedWhileItIsCopied does not run in parallel: it makes
// the drivers slow. Where the pod of the copy is on a node that has not the source,
// the driver refuses in the end, and nobody may go on holding the source.
func TestTheSourceOfACopyIsDeletedWhileItIsCopied(t *testing.T) {
	testbed.NotInShort(t)
	elsewhere := copyRoute{route{"at home, on another node", fabric.AtHome, routes[0].driver}, waiting,
		func(source chain) func(*corev1.Pod) *corev1.Pod {
			other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[source.volume.Node]
			return func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, other) }
		}}
	for _, r := range append([]copyRoute{elsewhere}, copyRoutes...) {
		t.Run(r.name, func(t *testing.T) {
			namespace := newNamespace(t)
			c := r.source(t, namespace)
			require.NoError(t, r.driver().FailNext("CreateVolume", sidecars.Fault{Delay: "2s"}))
			t.Cleanup(func() { require.NoError(t, r.driver().Heal("CreateVolume")) })
			copyOf(t, namespace, r.reader(c), ofClass(namespace))
			await.Until(t, "the driver is making the copy", func() bool {
				left, err := r.driver().Ordered("CreateVolume")
				require.NoError(t, err)
				return !left
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			remove(t, namespace)
			// What becomes of the copy depends on who comes first: it has the data, or it
			// waits for a source and has no volume. It is never empty.
			await.Until(t, "the source is gone", func() bool {
				_, there := volumes(t, r.driver())[c.volume.ID]
				return !there
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
			await.Until(t, "the copy is made, or its user is told why not", func() bool {
				claim := claimOf(t, bed.Home, namespace, "copy")
				if claim.Status.Phase == corev1.ClaimBound {
					return assert.Equal(t, text, read(t, r.driver(), chainOf(t, namespace, "copy", r.driver()).volume.ID))
				}
				for _, event := range await.Events(t, bed.Home.Client(), namespace) {
					if strings.Contains(event, "PersistentVolumeClaim/copy SourceNotBound: ") {
						return true
					}
				}
				return false
			}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
		})
	}
}

// TestSizeAndAttributesChangeAtOnce asks for both in one write.
func TestSizeAndAttributesChangeAtOnce(t *testing.T) {
	onRoutes(t, func(t *testing.T, r route, namespace string) {
		slow, fast := attributes(t, r.driver(), namespace)
		create(t, namespace, r.place, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = &slow })
		c := awaitServed(t, namespace, r.driver())
		must.Kubectl(t, bed.Home, "", "patch", "pvc", "-n", namespace, "data",
			"-p", `{"spec":{"volumeAttributesClassName":"`+fast+`","resources":{"requests":{"storage":"2Gi"}}}}`)
		c.requireGrown(t, r.driver(), 2)
		requireAttributes(t, c, fast)
		assert.Equal(t, "5000", volumes(t, r.driver())[c.volume.ID].Mutable["iops"])
	})
}
