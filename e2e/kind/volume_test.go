package kind

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// volume is where the files of a claim are.
type volume struct {
	in        *cluster
	directory string // in the node; of a disk, its image
	virtual   string // name of the virtual volume at home
	real      string // name of the real volume, in the cluster that it is in
	backing   string // namespace/name of the backing claim
}

// find returns the volume of a bound claim whose real volume is bound too.
func find(ctx context.Context, namespace, claim string) (*volume, error) {
	pvc, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s is %s", claim, pvc.Status.Phase)
	}
	virtual, err := home.client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	// cluster/namespace/name/uid
	parts := strings.Split(virtual.Annotations[keys.Backing], "/")
	if len(parts) != 4 {
		return nil, fmt.Errorf("volume %s has the backing claim %q", virtual.Name, virtual.Annotations[keys.Backing])
	}
	found := &volume{in: home, virtual: virtual.Name, backing: parts[1] + "/" + parts[2]}
	if parts[0] != keys.Home {
		found.in = west
	}
	backing, err := found.in.client.CoreV1().PersistentVolumeClaims(parts[1]).Get(ctx, parts[2], metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if backing.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("backing claim %s is %s", found.backing, backing.Status.Phase)
	}
	found.real = backing.Spec.VolumeName
	real, err := found.in.client.CoreV1().PersistentVolumes().Get(ctx, found.real, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	switch {
	case real.Spec.HostPath != nil:
		found.directory = real.Spec.HostPath.Path
	case real.Spec.Local != nil:
		found.directory = real.Spec.Local.Path
	case real.Spec.CSI != nil && real.Spec.CSI.Driver == diskDriver:
		found.directory = path.Join(disks, "volumes", real.Spec.CSI.VolumeHandle+".img")
	default:
		return nil, fmt.Errorf("real volume %s is neither a directory nor a disk of a node", real.Name)
	}
	return found, nil
}

// volumeOf waits until a claim has its real volume.
func volumeOf(t *testing.T, namespace, claim string) *volume {
	t.Helper()
	var found *volume
	eventually(t, "claim "+claim+" has a real volume", func(c *assert.CollectT) {
		var err error
		found, err = find(t.Context(), namespace, claim)
		require.NoError(c, err)
	})
	return found
}

// sum returns the SHA-256 sum of a file of the volume, read in the node.
func (v *volume) sum(t *testing.T, file string) string {
	t.Helper()
	sum, _, _ := strings.Cut(v.inNode(t, "sha256sum", file), " ")
	require.Len(t, sum, 64)
	return sum
}

// read returns a file of the volume, read in the node.
func (v *volume) read(t *testing.T, file string) string {
	t.Helper()
	return v.inNode(t, "cat", file)
}

// inNode runs a program in the node on a file of the volume, and returns its output. A disk is read where the node
// has it mounted, so that nothing of it is older than what its users see; one that nobody uses is mounted for it.
func (v *volume) inNode(t *testing.T, program, file string) string {
	t.Helper()
	output, err := v.in.inNode(t.Context(), "bash", "-ec", `
directory=$1
if [ -f "$1" ]; then
  device=$(losetup -nl -O NAME,BACK-FILE | grep -F "/${1##*/}" | cut -d " " -f 1)
  directory=$([ -z "$device" ] || findmnt -nr -o TARGET -S "$device" | head -n 1)
  if [ -z "$directory" ]; then
    directory=$(mktemp -d)
    mount -o loop,ro "$1" "$directory"
    trap 'umount "$directory"; rmdir "$directory"' EXIT
  fi
fi
"$2" "$directory/$3"`, "-", v.directory, program, file)
	require.NoError(t, err)
	return output
}

// starts returns which starts of keepers wrote rows, in their order. No two may have
// written at a time, and no row may be missing.
func (v *volume) starts(t *testing.T) []string {
	t.Helper()
	return startsOf(t, v.read(t, "rows"))
}

// startsOf is starts for rows that were read otherwise.
func startsOf(t *testing.T, rows string) []string {
	t.Helper()
	var starts []string
	next := 1
	for line := range strings.Lines(rows) {
		var start string
		var row int
		_, err := fmt.Sscan(line, &start, &row)
		require.NoError(t, err, "row %q", line)
		if len(starts) == 0 || starts[len(starts)-1] != start {
			require.NotContains(t, starts, start, "two keepers wrote at a time")
			starts, next = append(starts, start), 1
		}
		require.Equal(t, next, row, "a row of start %s is missing", start)
		next++
	}
	return starts
}

// there tells whether the volume's directory is in the node.
func (v *volume) there(ctx context.Context) (bool, error) { return v.in.hasFile(ctx, v.directory) }

// requireGone waits until neither files nor objects of the volume are left.
func (v *volume) requireGone(t *testing.T) {
	t.Helper()
	eventually(t, "the directory of "+v.virtual+" in "+v.in.name+" is gone, and its objects", func(c *assert.CollectT) {
		there, err := v.there(t.Context())
		require.NoError(c, err)
		assert.False(c, there, "directory %s", v.directory)
		assert.NoError(c, gone(home.client.CoreV1().PersistentVolumes().Get(t.Context(), v.virtual, metav1.GetOptions{})))
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumes().Get(t.Context(), v.real, metav1.GetOptions{})))
		namespace, name, _ := strings.Cut(v.backing, "/")
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})))
	})
}

// raw is a claim for a device, and raw pods that use it.
const (
	raw = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: device}
spec:
  storageClassName: e2e-disk
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
`
	rawPod = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
%[4]s  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[3]s", command: [sleep, "36000"], volumeDevices: [{name: device, devicePath: /dev/disk}]}
  volumes: [{name: device, persistentVolumeClaim: {claimName: device}}]
`
)

func TestADeviceIsWrittenByOnePodAndReadByTheNext(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			home.apply(t, fmt.Sprintf(raw, shop))
			side = strings.TrimPrefix(side, "    ")
			home.apply(t, fmt.Sprintf(rawPod, shop, "writer", image, side))
			writer := readyPod(t, shop, "writer")
			shell(t, shop, "writer", "test -b /dev/disk && echo precious | dd of=/dev/disk bs=512 seek=2048 conv=notrunc && sync")
			data := volumeOf(t, shop, "device")
			deletePod(t, writer)

			home.apply(t, fmt.Sprintf(rawPod, shop, "reader", image, ""))
			readyPod(t, shop, "reader")
			assert.Equal(t, "precious\n", shell(t, shop, "reader", "dd if=/dev/disk bs=512 skip=2048 count=1 2>/dev/null | head -n 1"))
			assert.Equal(t, data, volumeOf(t, shop, "device"))
		})
	}
}

func TestReadWriteOncePodKeepsASecondPodOut(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			db := keepers{namespace: shop, name: "db", class: diskClass, size: "512Mi", replicas: 1, access: "ReadWriteOncePod", spec: side}
			home.apply(t, db.manifest())
			first := db.ready(t, 1)[0]
			sum := shell(t, shop, first.Name, "sha256sum /data/blob")

			home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: second}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, shop, image, db.claim(0)))
			eventually(t, "the scheduler says why the second pod waits", func(c *assert.CollectT) {
				events, err := home.client.CoreV1().Events(shop).List(t.Context(),
					metav1.ListOptions{FieldSelector: "involvedObject.name=second,reason=FailedScheduling"})
				require.NoError(c, err)
				require.NotEmpty(c, events.Items)
				assert.Contains(c, events.Items[len(events.Items)-1].Message, "ReadWriteOncePod")
			})
			second := must.Get(t, home.client.CoreV1().Pods(shop), "second")
			assert.Equal(t, corev1.PodPending, second.Status.Phase)

			t.Log("Once the first is gone, it has the files.")
			db.scale(t, 0)
			readyPod(t, shop, "second")
			assert.Equal(t, sum, shell(t, shop, "second", "sha256sum /data/blob"))
		})
	}
}

func TestKubeletAtHomeRefusesAVolumeOfWest(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	db.ready(t, 1)
	data := volumeOf(t, shop, db.claim(0))
	require.Equal(t, west, data.in)

	// Past the scheduler, straight to the kubelet.
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: thief}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: thief, image: "%s", command: [sleep, "3600"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, shop, home.node, image, db.claim(0)))

	eventually(t, "the kubelet says that it does not mount the volume", func(c *assert.CollectT) {
		events, err := home.client.CoreV1().Events(shop).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=thief,reason=FailedMount"})
		require.NoError(c, err)
		var messages []string
		for _, event := range events.Items {
			messages = append(messages, event.Message)
		}
		assert.Contains(c, strings.Join(messages, "\n"), data.virtual, "events say which volume")
	})
	thief := must.Get(t, home.client.CoreV1().Pods(shop), "thief")
	assert.Equal(t, corev1.PodPending, thief.Status.Phase)
	assert.Len(t, data.starts(t), 1, "the pod in west goes on")
	assert.Equal(t, data.in, volumeOf(t, shop, db.claim(0)).in)
}

// rawSet is an owner of a pod that uses the device of raw.
const rawSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: %[1]s, name: writer}
spec:
  replicas: 1
  serviceName: writer
  selector: {matchLabels: {app: writer}}
  template:
    metadata: {labels: {app: writer}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: "%[2]s", command: [sleep, "36000"], volumeDevices: [{name: device, devicePath: /dev/disk}]}
      volumes: [{name: device, persistentVolumeClaim: {claimName: device}}]
`

// content returns the checksum of the 16 MiB that the claim of a device asks for.
func content(t *testing.T, namespace, pod string) string {
	t.Helper()
	return shell(t, namespace, pod, "head -c 16777216 /dev/disk | sha256sum")
}

func TestADeviceGoesToWestAndBackWhileItsPodRuns(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(raw, shop))
	home.apply(t, fmt.Sprintf(rawPod, shop, "first", image, strings.TrimPrefix(atHome, "    ")))
	first := readyPod(t, shop, "first")
	shell(t, shop, "first", "dd if=/dev/urandom of=/dev/disk bs=64k seek=48 count=64 conv=notrunc 2>/dev/null && sync")
	before := content(t, shop, "first")
	deletePod(t, first)
	home.apply(t, fmt.Sprintf(rawSet, shop, image))
	readyPod(t, shop, "writer-0")

	for _, target := range []struct{ cluster, node string }{{"west", virtualNode}, {keys.Home, home.node}} {
		from := volumeOf(t, shop, "device")
		requireMoved(t, move(t, shop, "device", target.cluster))
		pod := readyPod(t, shop, "writer-0")
		assert.Equal(t, target.node, pod.Spec.NodeName)
		assert.NotEqual(t, from.in, volumeOf(t, shop, "device").in)
		assert.Equal(t, before, content(t, shop, "writer-0"))
		from.requireCopyGone(t)

		shell(t, shop, "writer-0", "echo written in "+target.cluster+" | dd of=/dev/disk bs=512 seek=4096 conv=notrunc 2>/dev/null && sync")
		before = content(t, shop, "writer-0")
	}
}

// retained is a virtual class whose volumes outlive their claims.
const retained = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: e2e-retain}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Retain
`

func TestFilesOutliveTheClaimAndItsNamespaceWithPolicyRetain(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, retained)
	t.Cleanup(func() {
		_, _ = home.try(context.Background(), "", "delete", "storageclass", "e2e-retain", "--ignore-not-found")
	})
	db := keepers{namespace: shop, name: "db", class: "e2e-retain"}
	volumes, index := spread(t, db)
	before := map[string]string{}
	for name, data := range volumes {
		before[name] = data.sum(t, "blob")
	}

	db.scale(t, 0)
	for name := range volumes {
		home.kubectl(t, "delete", "pvc", db.claim(index[name]), "-n", shop)
	}
	removeNamespace(t, home, shop)

	consistently(t, "the files stay", func() bool {
		for _, data := range volumes {
			if there, err := data.there(t.Context()); err != nil || !there {
				return false
			}
		}
		return true
	})
	for name, data := range volumes {
		assert.Equal(t, before[name], data.sum(t, "blob"), "in %s", name)
		_, err := data.in.client.CoreV1().PersistentVolumes().Get(t.Context(), data.real, metav1.GetOptions{})
		require.NoError(t, err, "the real volume in %s", name)
	}

	t.Log("Made Delete afterwards, they go.")
	for _, data := range volumes {
		home.kubectl(t, "patch", "pv", data.virtual, "-p", `{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}`)
	}
	for _, data := range volumes {
		data.requireGone(t)
	}
}

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
	of := must.Get(t, in.client.StorageV1().StorageClasses(), "disk")
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
	testbed.NotInShort(t)
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
	testbed.NotInShort(t)
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

func TestAClaimMadeFromASnapshotHasTheFilesOfThatTime(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			db := keepers{namespace: shop, name: "db", class: diskClass, size: "512Mi", replicas: 1, spec: side}
			home.apply(t, db.manifest())
			pod := db.ready(t, 1)[0]
			source := volumeOf(t, shop, db.claim(0))
			shell(t, shop, pod.Name, "echo old >/data/note && sync")

			home.apply(t, fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {namespace: %s, name: friday}
spec: {source: {persistentVolumeClaimName: %s}}
`, shop, db.claim(0)))
			eventually(t, "the snapshot is ready", func(c *assert.CollectT) {
				status, err := home.try(t.Context(), "", "get", "volumesnapshot", "friday", "-n", shop, "-o",
					"jsonpath={.status.readyToUse} {.status.error.message}")
				require.NoError(c, err)
				assert.Equal(c, "true ", status)
			})
			shell(t, shop, pod.Name, "echo new >/data/note && sync")

			// Its pod may run anywhere; the data says where.
			home.apply(t, fmt.Sprintf(reader, shop, "restored", `  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 512Mi}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: friday}
`, image))
			readyPod(t, shop, "restored")

			assert.Equal(t, "old\n", shell(t, shop, "restored", "cat /data/note"))
			assert.Equal(t, "new\n", shell(t, shop, pod.Name, "cat /data/note"))
			assert.Equal(t, shell(t, shop, pod.Name, "sha256sum /data/blob"), shell(t, shop, "restored", "sha256sum /data/blob"))
			assert.Equal(t, source.in, volumeOf(t, shop, "restored").in)
		})
	}
}

// Only kube-scheduler is told of the marker. The scheduler of these clusters is not,
// so the pod names its node.
func TestKubeletRunsAPodThatCarriesTheMarker(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: marked}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%s", command: [sleep, "3600"], resources: {requests: {%[4]s: 1}, limits: {%[4]s: 1}}}
`, shop, home.node, image, keys.MarkerResource))
	eventually(t, "the kubelet runs it, although its node has no such resource", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "marked", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, corev1.PodRunning, pod.Status.Phase, pod.Status.Message)
	})
}
