package kind

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// couple is a pod with two claims.
const couple = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
%[3]s  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[4]s
    command: [sh, -ec, %[5]q]
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: wal, mountPath: /wal}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: %[6]s}}
  - {name: wal, persistentVolumeClaim: {claimName: %[7]s}}
`

// countInTwo counts in data, then in wal, and locks the image of each while it writes there: the driver locks both while it takes a
// snapshot of them, for it cannot freeze what is mounted. It is in Python, which has locks, and so runs in the image of Patroni.
const countInTwo = `exec python3 -c '
import fcntl, itertools, time
def count(n, image, path):
    fcntl.flock(image, fcntl.LOCK_SH)
    with open(path, "a") as log:
        print(n, file=log)
    fcntl.flock(image, fcntl.LOCK_UN)
data, wal = open("/images/%s"), open("/images/%s")
for n in itertools.count(1):
    count(n, data, "/data/log")
    count(n, wal, "/wal/log")
    time.sleep(0.02)
'`

// TestVersionsOfAGroupAreOfOneMoment: each version has of two disks what they had at one moment, for which the snapshots of real sidecars
// are taken together.
func TestVersionsOfAGroupAreOfOneMoment(t *testing.T) {
	if !thorough() {
		t.Skip("three versions of two disks are made and tried: set E2E_LONG")
	}
	shop := namespace(t)
	side := strings.TrimPrefix(atHome, "    ")
	home.apply(t, fmt.Sprintf(diskClaim, shop, "data", diskClass, "")+fmt.Sprintf(diskClaim, shop, "wal", diskClass, "")+
		fmt.Sprintf(couple, shop, "first", side, image, "sleep 36000", "data", "wal"))
	deletePod(t, readyPod(t, shop, "first"))
	data, wal := volumeOf(t, shop, "data"), volumeOf(t, shop, "wal")
	withImages := strings.NewReplacer("    volumeMounts:\n", "    volumeMounts:\n    - {name: images, mountPath: /images, readOnly: true}\n",
		"  volumes:\n", "  volumes:\n  - {name: images, hostPath: {path: "+path.Dir(data.directory)+"}}\n").Replace(couple)
	count := fmt.Sprintf(countInTwo, path.Base(data.directory), path.Base(wal.directory))
	home.apply(t, fmt.Sprintf(withImages, shop, "counter", side, "docker.io/lodestone-e2e/patroni:1", count, "data", "wal"))
	readyPod(t, shop, "counter")

	succeed(t, "replicate", "data", "wal", "-n", shop, "--group", "--to", "west", "--rpo", "30s", "--keep", "3", "--wait")
	awaitLater(t, shop, "data-west")
	awaitLater(t, shop, "data-west")
	versions := awaitPaused(t, shop, "data-west").Versions
	require.GreaterOrEqual(t, len(versions), 3)
	newer := 1 << 30
	for _, version := range versions[:3] {
		succeed(t, "failover", "data", "-n", shop, "--test", "--version", version.Name)
		home.apply(t, fmt.Sprintf(couple, shop, "drill", "", image, "sleep 36000", "data-drill", "wal-drill"))
		require.Equal(t, virtualNode, readyPod(t, shop, "drill").Spec.NodeName)
		var n, w int
		_, err := fmt.Sscan(shell(t, shop, "drill", "tail -n 1 /data/log; tail -n 1 /wal/log"), &n, &w)
		require.NoError(t, err)
		require.Contains(t, []int{w, w + 1}, n, "version %s is of two moments", version.Name)
		require.Less(t, n, newer, "version %s is of an earlier moment than the one before it", version.Name)
		newer = n
		t.Logf("the version of %s has %d and %d", version.Cut, n, w)
		home.kubectl(t, "delete", "pod", "drill", "-n", shop)
		home.kubectl(t, "delete", "pvc", "data-drill", "wal-drill", "-n", shop)
	}
	home.kubectl(t, "delete", "pod", "counter", "-n", shop)
	succeed(t, "replicate", "delete", "data-west", "-n", shop, "--yes")
}
