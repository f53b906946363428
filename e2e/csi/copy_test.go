package csi

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// copyRoute is a way to a copy whose volume the driver can make at the first try: it
// copies only on the node of the source, which kube-scheduler does not know.
type copyRoute struct {
	route
	real   string // the real class
	reader func(source chain) func(*corev1.Pod) *corev1.Pod
}

var copyRoutes = []copyRoute{
	{routes[0], waiting, func(source chain) func(*corev1.Pod) *corev1.Pod {
		return func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, source.volume.Node) }
	}},
	// The pod goes where the data is by itself.
	{routes[1], atOnce, func(chain) func(*corev1.Pod) *corev1.Pod { return anywhere }},
}

// source makes claim "data", of a class of the namespace's name, with something in
// its volume.
func (r copyRoute) source(t *testing.T, namespace string) chain {
	t.Helper()
	classFor(t, namespace, r.real)
	create(t, namespace, r.place, ofClass(namespace))
	c := awaitServed(t, namespace, r.driver())
	write(t, r.driver(), c.volume.ID)
	return c
}

// anywhere lets a pod run on all nodes.
func anywhere(pod *corev1.Pod) *corev1.Pod { return pod }

// copyOf makes a claim "copy" of claim "data", with a pod "reader".
func copyOf(t *testing.T, namespace string, place func(*corev1.Pod) *corev1.Pod, change ...func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claim := fabric.NewClaim(namespace, "copy", virtual)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	for _, c := range change {
		c(claim)
	}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, place(fabric.NewPod(namespace, "reader", "copy")))
}

// TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims has external-provisioner
// clone twins and shadows.
func TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims(t *testing.T) {
	t.Parallel()
	for _, r := range copyRoutes {
		for name, size := range map[string]string{"as large as its source": "1Gi", "larger than its source": "2Gi"} {
			t.Run(name+", "+r.name, func(t *testing.T) {
				namespace := beside(t)
				source := r.source(t, namespace)
				copyOf(t, namespace, r.reader(source), ofClass(namespace), sized(size))
				bed.AwaitRunning(t, namespace, "reader")
				c := chainOf(t, namespace, "copy", r.driver())
				assert.Equal(t, source.volume.ID, c.volume.Source, "what the driver has copied")
				assert.Equal(t, source.volume.Node, c.volume.Node)
				want := resource.MustParse(size)
				assert.Equal(t, want.Value(), c.volume.Bytes)
				assert.Equal(t, want.Value(), c.virtual.Spec.Capacity.Storage().Value())
				assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			})
		}
	}
}

// TestACopyIsMadeOfASourceThatHasGrown: external-provisioner compares with what the
// source's claim asks for.
func TestACopyIsMadeOfASourceThatHasGrown(t *testing.T) {
	t.Parallel()
	for _, r := range copyRoutes {
		t.Run(r.name, func(t *testing.T) {
			namespace := beside(t)
			source := r.source(t, namespace)
			requestSize(t, bed.Home, namespace, "data", "2Gi")
			source.requireGrown(t, r.driver(), 2)
			small := fabric.NewClaim(namespace, "small", namespace)
			small.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
			must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), small)
			bed.CreatePod(t, fabric.NewPod(namespace, "small", "small"))
			copyOf(t, namespace, r.reader(source), ofClass(namespace), sized("2Gi"))
			bed.AwaitRunning(t, namespace, "reader")
			c := chainOf(t, namespace, "copy", r.driver())
			assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			assert.Equal(t, int64(2*gibibyte), c.volume.Bytes)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "small", "InvalidClaim"), "less than the 2Gi")
		})
	}
}

// makeSnapshotClasses makes the default classes of snapshots, of one volume and of several: in each cluster that of
// its driver, at home also that of volumes in remote clusters.
func makeSnapshotClasses(ctx context.Context) error {
	for _, of := range []struct{ api, kind, mark, name string }{
		{"snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "snapshot.storage.kubernetes.io", "taken"},
		{"groupsnapshot.storage.k8s.io/v1beta2", "VolumeGroupSnapshotClass", "groupsnapshot.storage.kubernetes.io", "together"},
	} {
		for _, class := range []struct {
			cluster                  *testbed.Cluster
			name, driver, parameters string
		}{
			{bed.Home, of.name + "-here", homeDriver, "{}"},
			{bed.Home, of.name + "-there", keys.Driver, "{lodestone.dev/remote-class.west: " + of.name + "}"},
			{bed.West, of.name, westDriver, "{}"},
		} {
			_, err := class.cluster.Kubectl(ctx, fmt.Sprintf(`
apiVersion: %s
kind: %s
metadata: {name: %s, annotations: {%s/is-default-class: "%t"}}
driver: %s
deletionPolicy: Delete
parameters: %s
`, of.api, of.kind, class.name, of.mark, class.cluster == bed.Home, class.driver, class.parameters), "apply", "-f", "-")
			if err != nil {
				return fmt.Errorf("make %s %s: %w", of.kind, class.name, err)
			}
		}
	}
	return nil
}

// takeSnapshot takes a snapshot of claim "data" and waits until it is ready.
func takeSnapshot(t *testing.T, namespace, name string) {
	t.Helper()
	must.Kubectl(t, bed.Home, fmt.Sprintf(`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: %s}
spec: {source: {persistentVolumeClaimName: data}}
`, name, namespace), "apply", "-f", "-")
	t.Cleanup(func() {
		_, _ = bed.Home.Kubectl(context.Background(), "", "delete", "volumesnapshot", "-n", namespace, name, "--ignore-not-found",
			"--timeout=20s")
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
	return must.Kubectl(t, cluster, "", args...)
}

// fromSnapshot makes a claim want its data from a snapshot.
func fromSnapshot(snapshot string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot",
			Name: snapshot}
	}
}

// restore makes a claim from a snapshot and a pod that may run anywhere.
func restore(t *testing.T, namespace, name, snapshot string) {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, virtual)
	fromSnapshot(snapshot)(claim)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, fabric.NewPod(namespace, name, name))
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
			namespace := beside(t)
			create(t, namespace, r.place)
			source := awaitServed(t, namespace, r.driver())
			write(t, r.driver(), source.volume.ID)
			takeSnapshot(t, namespace, "kept")
			require.Equal(t, 1, snapshotsOf(t, r.driver(), source.volume.ID))
			remove(t, namespace)

			restore(t, namespace, "restored", "kept")
			bed.AwaitRunning(t, namespace, "restored")
			c := chainOf(t, namespace, "restored", r.driver())
			assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			await.Until(t, "nothing stands in for the snapshot any more", func() bool {
				return field(t, bed.Home, "volumesnapshots", fabric.Storage, "pvc-"+string(c.claim.UID), "{.metadata.name}") == "" &&
					field(t, bed.Home, "volumesnapshotcontents", "", "lodestone-pvc-"+string(c.claim.UID), "{.metadata.name}") == ""
			})
			require.Equal(t, 1, snapshotsOf(t, r.driver(), source.volume.ID), "the data was only read")

			must.Kubectl(t, bed.Home, "", "delete", "volumesnapshot", "-n", namespace, "kept", "--timeout=30s")
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
			namespace := beside(t)
			restore(t, namespace, "restored", "later")
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "restored", "SnapshotNotReady"), `VolumeSnapshot "later"`)
			create(t, namespace, r.place)
			source := awaitServed(t, namespace, r.driver())
			write(t, r.driver(), source.volume.ID)
			assert.Empty(t, claimOf(t, bed.Home, namespace, "restored").Spec.VolumeName)
			takeSnapshot(t, namespace, "later")
			bed.AwaitRunning(t, namespace, "restored")
			assert.Equal(t, text, read(t, r.driver(), chainOf(t, namespace, "restored", r.driver()).volume.ID))
		})
	}
}

// TestAForgedClusterMovesNoSnapshot has a user claim that a snapshot of home is in
// west: the claim is refused there, and goes home.
func TestAForgedClusterMovesNoSnapshot(t *testing.T) {
	namespace := beside(t)
	create(t, namespace, routes[0].place)
	source := awaitServed(t, namespace, home)
	write(t, home, source.volume.ID)
	takeSnapshot(t, namespace, "kept")
	claim := fabric.NewClaim(namespace, "restored", virtual)
	fromSnapshot("kept")(claim)
	claim.Annotations = map[string]string{keys.SourceCluster: "west"}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	bed.CreatePod(t, fabric.NewPod(namespace, "restored", "restored"))
	bed.AwaitRunning(t, namespace, "restored")
	assert.Equal(t, text, read(t, home, chainOf(t, namespace, "restored", home).volume.ID))
	assert.Nil(t, claimOf(t, bed.West, namespace, "restored"))
}

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
	namespace := beside(t)
	create(t, namespace, routes[0].place)
	c := awaitServed(t, namespace, home)
	write(t, home, c.volume.ID)

	must.Kubectl(t, bed.Home, fmt.Sprintf(snapshotClass, namespace), "apply", "-f", "-")
	t.Cleanup(func() {
		_, err := bed.Home.Kubectl(context.Background(), "", "delete", "volumesnapshotclass", namespace)
		assert.NoError(t, err)
	})
	await.Until(t, "the snapshot is ready", func() bool {
		ready := must.Kubectl(t, bed.Home, "", "get", "volumesnapshot", "-n", namespace, "kept", "-o", "jsonpath={.status.readyToUse}")
		return ready == "true"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })

	awaitContent(t, namespace, "restored")
}

// TestACloneOfAVirtualClaimAtHome shows that external-provisioner copies a virtual
// volume whose source is that of its own driver into a volume of the real class.
func TestACloneOfAVirtualClaimAtHome(t *testing.T) {
	namespace := beside(t)
	create(t, namespace, routes[0].place)
	c := awaitServed(t, namespace, home)
	write(t, home, c.volume.ID)
	claim := fabric.NewClaim(namespace, "clone", atOnce)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	clone := awaitContent(t, namespace, "clone")
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

// awaitContent waits until a claim of home is bound, and checks that its volume holds
// text.
func awaitContent(t *testing.T, namespace, name string) sidecars.Volume {
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

// makeAnew makes a shadow anew with its volume, as docs/lifecycle.md tells an
// administrator of the remote cluster, and waits until home has taken it.
func (c *chain) makeAnew(t *testing.T) {
	t.Helper()
	shadow := c.backing
	policy := func(name string) string { return `{"spec":{"persistentVolumeReclaimPolicy":"` + name + `"}}` }
	kubectl := func(args ...string) {
		t.Helper()
		must.Kubectl(t, c.cluster, "", args...)
	}
	kubectl("patch", "pv", c.real.Name, "-p", policy("Retain"))
	kubectl("delete", "pvc", "-n", shadow.Namespace, shadow.Name, "--wait=false")
	kubectl("patch", "pvc", "-n", shadow.Namespace, shadow.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	await.Until(t, "the old shadow is gone", func() bool { return claimOf(t, c.cluster, shadow.Namespace, shadow.Name) == nil })
	kubectl("patch", "pv", c.real.Name, "--type=merge", "-p", `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	again := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: shadow.Namespace, Name: shadow.Name, Labels: shadow.Labels, Annotations: map[string]string{},
		Finalizers: []string{keys.BackingFinalizer},
	}, Spec: shadow.Spec}
	for key, value := range shadow.Annotations {
		if !strings.HasPrefix(key, "pv.kubernetes.io/") {
			again.Annotations[key] = value
		}
	}
	must.Create(t, c.cluster.Client().CoreV1().PersistentVolumeClaims(shadow.Namespace), again)
	await.Until(t, "the virtual volume names the new shadow", func() bool {
		ref, err := backing.RefOf(volumeOf(t, bed.Home, c.virtual.Name))
		require.NoError(t, err)
		return ref.UID != shadow.UID
	}, func() any { return await.Events(t, bed.Home.Client(), c.claim.Namespace) })
	kubectl("patch", "pv", c.real.Name, "-p", policy("Delete"))
	*c = chainOf(t, c.claim.Namespace, c.claim.Name, west)
	require.NotEqual(t, shadow.UID, c.backing.UID)
}

// TestSnapshotsBeforeAndAfterAShadowIsMadeAnew makes a shadow anew twice: the handle of
// the virtual volume names the first for ever. A snapshot can be taken each time, and
// the one from before can be restored and deleted.
func TestSnapshotsBeforeAndAfterAShadowIsMadeAnew(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	create(t, namespace, fabric.InWest)
	c := awaitServed(t, namespace, west)
	write(t, west, c.volume.ID)
	handle := c.virtual.Spec.CSI.VolumeHandle
	takeSnapshot(t, namespace, "before")
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "db")
	await.Until(t, "no pod there uses the shadow", func() bool {
		pods := must.List(t, bed.West.Client().CoreV1().Pods(namespace))
		return len(pods.Items) == 0
	})
	for _, name := range []string{"after", "again"} {
		c.makeAnew(t)
		require.Equal(t, handle, c.virtual.Spec.CSI.VolumeHandle)
		takeSnapshot(t, namespace, name)
	}
	require.Equal(t, 3, snapshotsOf(t, west, c.volume.ID))
	for _, name := range []string{"before", "again"} {
		restore(t, namespace, "from-"+name, name)
		bed.AwaitRunning(t, namespace, "from-"+name)
		assert.Equal(t, text, read(t, west, chainOf(t, namespace, "from-"+name, west).volume.ID))
	}
	for _, name := range []string{"before", "after", "again"} {
		must.Kubectl(t, bed.Home, "", "delete", "volumesnapshot", "-n", namespace, name, "--timeout=30s")
	}
	await.Until(t, "the driver has no snapshot any more", func() bool { return snapshotsOf(t, west, c.volume.ID) == 0 })
}
