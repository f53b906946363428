package csi

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// makeSnapshotClasses makes the default classes of snapshots: in each cluster that of
// its driver, at home also that of volumes in remote clusters.
func makeSnapshotClasses(ctx context.Context) error {
	for _, class := range []struct {
		cluster      *testbed.Cluster
		name, driver string
		parameters   string
	}{
		{bed.Home, "taken-here", homeDriver, "{}"},
		{bed.Home, "taken-there", keys.Driver, "{lodestone.dev/remote-class.west: taken}"},
		{bed.West, "taken", westDriver, "{}"},
	} {
		_, err := class.cluster.Kubectl(ctx, fmt.Sprintf(`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %s, annotations: {snapshot.storage.kubernetes.io/is-default-class: "%t"}}
driver: %s
deletionPolicy: Delete
parameters: %s
`, class.name, class.cluster == bed.Home, class.driver, class.parameters), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("make VolumeSnapshotClass %s: %w", class.name, err)
		}
	}
	return nil
}

// snap takes a snapshot of claim "data" and waits until it is ready.
func snap(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := bed.Home.Kubectl(t.Context(), fmt.Sprintf(`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: %s}
spec: {source: {persistentVolumeClaimName: data}}
`, name, namespace), "apply", "-f", "-")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = bed.Home.Kubectl(context.Background(), "", "delete", "volumesnapshot", "-n", namespace, name, "--ignore-not-found", "--timeout=20s")
	})
	await.Until(t, "the snapshot is ready", func() bool {
		return field(t, bed.Home, "volumesnapshot", namespace, name, "{.status.readyToUse}") == "true"
	}, func() any {
		return field(t, bed.Home, "volumesnapshotcontents", namespace, "", "{range .items[*]}{.spec.driver} {.status}{'\\n'}{end}")
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// field returns a field of an object, or of all of a kind without a name.
func field(t *testing.T, cluster *testbed.Cluster, kind, namespace, name, path string) string {
	t.Helper()
	args := []string{"get", kind, "-n", namespace, "-o", "jsonpath=" + path, "--ignore-not-found"}
	if name != "" {
		args = append(args, name)
	}
	got, err := cluster.Kubectl(t.Context(), "", args...)
	require.NoError(t, err)
	return got
}

// from makes a claim want its data from a snapshot.
func from(snapshot string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot}
	}
}

// restore makes a claim from a snapshot and a pod that may run anywhere.
func restore(t *testing.T, namespace, name, snapshot string) {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, virtual)
	from(snapshot)(claim)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, fabric.NewPod(namespace, name, name))
}

// snapshotsOf returns how many snapshots a driver has of a volume.
func snapshotsOf(t *testing.T, driver *sidecars.Driver, volume string) int {
	t.Helper()
	found, err := driver.Snapshots()
	require.NoError(t, err)
	n := 0
	for _, s := range found {
		if s.Source == volume {
			n++
		}
	}
	return n
}

// TestASnapshotIsTakenAndRestoredInTheClusterOfItsData restores a snapshot after its
// source is gone, and removes all there is.
func TestASnapshotIsTakenAndRestoredInTheClusterOfItsData(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			create(t, namespace, r.place)
			source := served(t, namespace, r.driver())
			write(t, r.driver(), source.volume.ID)
			snap(t, namespace, "kept")
			require.Equal(t, 1, snapshotsOf(t, r.driver(), source.volume.ID))
			remove(t, namespace)

			restore(t, namespace, "restored", "kept")
			runs(t, namespace, "restored")
			c := behind(t, namespace, "restored", r.driver())
			assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			await.Until(t, "nothing stands in for the snapshot any more", func() bool {
				return field(t, bed.Home, "volumesnapshots", fabric.Storage, "pvc-"+string(c.claim.UID), "{.metadata.name}") == "" &&
					field(t, bed.Home, "volumesnapshotcontents", "", "lodestone-pvc-"+string(c.claim.UID), "{.metadata.name}") == ""
			})
			require.Equal(t, 1, snapshotsOf(t, r.driver(), source.volume.ID), "the data was only read")

			_, err := bed.Home.Kubectl(t.Context(), "", "delete", "volumesnapshot", "-n", namespace, "kept", "--timeout=30s")
			require.NoError(t, err)
			await.Until(t, "the driver has no snapshot any more", func() bool { return snapshotsOf(t, r.driver(), source.volume.ID) == 0 })
			assert.Empty(t, field(t, bed.West, "volumesnapshots", namespace, "", "{.items[*].metadata.name}"))
		})
	}
}

// TestAClaimWaitsForItsSnapshot is about a claim that is made before its snapshot: it
// gets no empty volume meanwhile.
func TestAClaimWaitsForItsSnapshot(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			restore(t, namespace, "restored", "later")
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "restored", "SnapshotNotReady"), `VolumeSnapshot "later"`)
			create(t, namespace, r.place)
			source := served(t, namespace, r.driver())
			write(t, r.driver(), source.volume.ID)
			assert.Empty(t, claimOf(t, bed.Home, namespace, "restored").Spec.VolumeName)
			snap(t, namespace, "later")
			runs(t, namespace, "restored")
			assert.Equal(t, text, read(t, r.driver(), behind(t, namespace, "restored", r.driver()).volume.ID))
		})
	}
}

// TestAForgedClusterMovesNoSnapshot has a user claim that a snapshot of home is in
// west: the claim is refused there, and goes home.
func TestAForgedClusterMovesNoSnapshot(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	create(t, namespace, routes[0].place)
	source := served(t, namespace, home)
	write(t, home, source.volume.ID)
	snap(t, namespace, "kept")
	claim := fabric.NewClaim(namespace, "restored", virtual)
	from("kept")(claim)
	claim.Annotations = map[string]string{keys.SourceCluster: "west"}
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, fabric.NewPod(namespace, "restored", "restored"))
	runs(t, namespace, "restored")
	assert.Equal(t, text, read(t, home, behind(t, namespace, "restored", home).volume.ID))
	assert.Nil(t, claimOf(t, bed.West, namespace, "restored"))
}
