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

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// sharedDirectory is where the nodes of both clusters have one and the same directory.
const sharedDirectory = "/var/lib/lodestone-shared"

// exchange is a claim that an administrator makes for the content of moves, whose volume is
// a directory that both clusters have.
const exchange = `apiVersion: v1
kind: PersistentVolume
metadata: {name: e2e-exchange}
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 1Gi}
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: %[1]s, name: e2e-exchange}
  hostPath: {path: %[2]s, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %[1]s, name: e2e-exchange}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: e2e-exchange
  resources: {requests: {storage: 1Gi}}
`

// exchangesThrough makes the claim in a namespace of a cluster, and removes it at the end.
func (c *cluster) exchangesThrough(t *testing.T, namespace, directory string) {
	t.Helper()
	t.Cleanup(func() {
		for _, object := range [][]string{{"pvc", "e2e-exchange", "-n", namespace}, {"pv", "e2e-exchange"}} {
			_, err := c.try(context.Background(), "", append([]string{"delete", "--ignore-not-found", "--timeout=60s"}, object...)...)
			assert.NoError(t, err)
		}
	})
	eventually(t, "namespace "+namespace+" is there in "+c.name, func(col *assert.CollectT) {
		_, err := c.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		assert.NoError(col, err)
	})
	c.apply(t, fmt.Sprintf(exchange, namespace, directory))
	eventually(t, "the claim in "+c.name+" is bound", func(col *assert.CollectT) {
		claim, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "e2e-exchange", metav1.GetOptions{})
		require.NoError(col, err)
		assert.Equal(col, corev1.ClaimBound, claim.Status.Phase)
	})
}

// moveRepository says how the content of moves to and from west travels.
func moveRepository(t *testing.T, value string) {
	t.Helper()
	_, err := home.try(context.Background(), "", "patch", "remotecluster", "west", "--type=merge", "-p", `{"spec":{"moveRepository":`+value+`}}`)
	require.NoError(t, err)
}

// TestContentOfAMoveTravelsThroughAClaimThatBothClustersMount: to west and back. No other
// test runs beside, whose moves would want that claim, too.
func TestContentOfAMoveTravelsThroughAClaimThatBothClustersMount(t *testing.T) {
	shop := namespace(t)
	directory := path.Join(sharedDirectory, shop)
	t.Cleanup(func() {
		_, err := home.inNode(context.Background(), "rm", "-rf", directory)
		assert.NoError(t, err)
	})
	home.exchangesThrough(t, storage, directory)
	west.exchangesThrough(t, shop, directory)
	moveRepository(t, `{"claimName":"e2e-exchange"}`)
	t.Cleanup(func() { moveRepository(t, "null") })
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	db.unpin(t)
	const content = 40 << 20
	shell(t, shop, db.pod(0), fmt.Sprintf(`mkdir /data/small && cd /data/small
dd if=/dev/urandom of=large bs=1M count=%d 2>/dev/null
i=0; while [ $i -lt 500 ]; do echo "small $i" >"file $i"; i=$((i+1)); done
ln "file 1" linked; ln -s large "a link"; chmod 640 "file 7"; sync`, content>>20))
	const look = `cd /data && find small blob sum | sort && ls -lin small | awk 'NR>1 {print $2, $3, $4, $5, $6}' | sort && find small blob sum -type f | sort | tr '\n' '\0' | xargs -0 sha256sum`
	before := shell(t, shop, db.pod(0), look)
	data := volumeOf(t, shop, db.claim(0))

	for _, cluster := range []string{"west", keys.Home} {
		done := requireMoved(t, move(t, shop, db.claim(0), cluster))

		carried := done.Status.Claims[0]
		assert.Equal(t, "west", carried.Repository)
		assert.GreaterOrEqual(t, carried.Stored, int64(content), "bytes through the claim")
		assert.Less(t, carried.Sent, int64(content/4), "bytes from mover to mover")
		t.Logf("to %s: %d bytes through the claim, %d from mover to mover", cluster, carried.Stored, carried.Sent)
		db.ready(t, 1)
		assert.Equal(t, before, shell(t, shop, db.pod(0), look))
		now := volumeOf(t, shop, db.claim(0))
		assert.NotEqual(t, data.in, now.in)
		data.requireCopyGone(t)
		data = now
		requireExchanged(t, directory, shop)
	}
	assert.Len(t, startsOf(t, db.rows(t)), 4, "the first, the one without a place of its own, and one a move")
}

// requireExchanged waits until, seen from both nodes, movers were in a directory and have
// left nothing there but the empty directory of a namespace.
func requireExchanged(t *testing.T, directory, namespace string) {
	t.Helper()
	eventually(t, "nothing of a move is left in "+directory, func(col *assert.CollectT) {
		for _, c := range []*cluster{home, west} {
			found, err := c.inNode(t.Context(), "find", directory, "-mindepth", "1", "-printf", "%y %P\n")
			require.NoError(col, err)
			left := strings.Split(strings.TrimSpace(found), "\n")
			require.Len(col, left, 3, "in %s: %s", c.name, found)
			assert.Equal(col, "d lodestone-moves", left[0])
			assert.Regexp(col, `^d lodestone-moves/[^/]+$`, left[1])
			assert.Equal(col, left[1]+"/"+namespace, left[2])
		}
	})
}
