package kind

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAVolumeGoesToWestAndBackWhileItsPodRuns(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]keepers{
		"directories": {},
		"disks":       {class: diskClass, size: "512Mi"},
		"for one pod": {class: diskClass, size: "512Mi", access: "ReadWriteOncePod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db.namespace, db.name, db.replicas, db.spec = namespace(t), "db", 1, atHome
			home.apply(t, db.manifest())
			db.unpin(t)
			claim := claimOf(t, db.namespace, db.claim(0))
			before := shell(t, db.namespace, db.pod(0), "cd /data && sha256sum blob")
			for i, target := range []struct{ cluster, node string }{{"west", virtualNode}, {keys.Home, home.node}} {
				from := volumeOf(t, db.namespace, db.claim(0))

				requireMoved(t, move(t, db.namespace, db.claim(0), target.cluster))

				pod := db.ready(t, 1)[0]
				assert.Equal(t, target.node, pod.Spec.NodeName)
				assert.NotEqual(t, from.in, volumeOf(t, db.namespace, db.claim(0)).in)
				assert.Equal(t, before, shell(t, db.namespace, db.pod(0), "cd /data && sha256sum blob"))
				assert.Len(t, startsOf(t, db.rows(t)), i+3, "the first, the one without a place of its own, and one a move")
				from.requireCopyGone(t)
				requireFree(t, db.namespace, db.claim(0), claim)
			}
		})
	}
}

// packets is how many packets the filter of block has thrown away.
var packets = regexp.MustCompile(`packets (\d+)`)

// block keeps connections to movers from leaving home, so that only the way through
// west's API server leads there. It returns how many packets it has kept back.
func block(t *testing.T) func() int {
	t.Helper()
	filter := func(ctx context.Context, args ...string) (string, error) {
		return home.inNode(ctx, append([]string{"nft"}, args...)...)
	}
	for _, command := range [][]string{
		{"add", "table", "inet", "e2e_movers"},
		{"add", "chain", "inet", "e2e_movers", "forward", "{ type filter hook forward priority -5; }"},
		{"add", "rule", "inet", "e2e_movers", "forward", "tcp", "dport", "8440-8441", "counter", "drop"},
	} {
		_, err := filter(t.Context(), command...)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := filter(context.Background(), "delete", "table", "inet", "e2e_movers")
		assert.NoError(t, err)
	})
	return func() int {
		listed, err := filter(t.Context(), "list", "table", "inet", "e2e_movers")
		require.NoError(t, err)
		match := packets.FindStringSubmatch(listed)
		require.NotNil(t, match, listed)
		count, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		return count
	}
}

// TestAMoveFindsItsWayThroughTheAPIServer: nothing else leads to the mover in west. No
// other test runs beside, whose movers would lose their connections, too.
func TestAMoveFindsItsWayThroughTheAPIServer(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	kept := block(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	db.unpin(t)
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	for _, cluster := range []string{"west", keys.Home} {
		requireMoved(t, move(t, shop, db.claim(0), cluster))
		db.ready(t, 1)
		now := volumeOf(t, shop, db.claim(0))
		assert.NotEqual(t, data.in, now.in)
		assert.Equal(t, before, now.sum(t, "blob"))
		data = now
	}
	assert.Positive(t, kept(), "packets to the movers that did not get there directly")
}

func objects(t *testing.T) *clients.VolumeMoveClient {
	t.Helper()
	client, err := clients.NewVolumeMoveClient(home.config)
	require.NoError(t, err)
	return client
}

func moves(t *testing.T, namespace string) *clients.VolumeMoves { return objects(t).In(namespace) }

// move makes a VolumeMove of a claim that keeps the source no longer than it must.
func move(t *testing.T, namespace, claim, cluster string, tune ...func(*v1alpha1.VolumeMoveSpec)) *v1alpha1.VolumeMove {
	t.Helper()
	wanted := &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{GenerateName: claim + "-"},
		Spec: v1alpha1.VolumeMoveSpec{Claims: []string{claim}, Target: v1alpha1.MoveTarget{Cluster: cluster},
			KeepSourceFor: &metav1.Duration{Duration: time.Second}},
	}
	for _, change := range tune {
		change(&wanted.Spec)
	}
	return must.Create(t, moves(t, namespace), wanted)
}

// reaches waits until a move is in one of some phases, or over.
func reaches(t *testing.T, made *v1alpha1.VolumeMove, phases ...v1alpha1.MovePhase) *v1alpha1.VolumeMove {
	t.Helper()
	phases = append(phases, v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed)
	var now *v1alpha1.VolumeMove
	// A phase may be over soon.
	const often = 20 * time.Millisecond
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		now, err = moves(t, made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.True(c, slices.Contains(phases, now.Status.Phase), "it is in phase %q: %s", now.Status.Phase, now.Status.Message)
	}, 4*long, often, "VolumeMove %s gets to %v", made.Name, phases)
	return now
}

// requireMoved waits until a move is done, and checks that Kubernetes has not said meanwhile that the claim's data is lost.
func requireMoved(t *testing.T, made *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	t.Helper()
	done := reaches(t, made)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	require.Len(t, done.Status.Claims, 1)
	assert.NotEmpty(t, done.Status.Claims[0].SourceRoot)
	assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
	require.NotNil(t, done.Status.Downtime)
	t.Logf("to %s: pods could not use the claim for %s: %s", done.Status.Target.Cluster, done.Status.Downtime.Duration, spans(done))
	requireNoAlarm(t, made.Namespace, made.Spec.Claims[0])
	t.Logf("its data travelled %s %+v %s", done.Status.Claims[0].Transport, done.Status.Claims[0].Legs, done.Status.Claims[0].TransportMessage)
	return done
}

// requireNoAlarm checks that no event of a claim says that its data is lost, as of a claim whose volume is seen to be gone. Where
// kube-controller-manager is slow that can happen, so it only counts where E2E_LONG asks for all.
func requireNoAlarm(t *testing.T, namespace, claim string) {
	t.Helper()
	events := must.List(t, home.client.CoreV1().Events(namespace), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=PersistentVolumeClaim,reason=ClaimLost,involvedObject.name=" + claim})
	for _, event := range events.Items {
		t.Logf("an alarm for nothing: claim %s: %s: %s", claim, event.Reason, event.Message)
		assert.False(t, thorough(), "an alarm for nothing")
	}
}

// requireRefused waits until a move has come to nothing, and returns why.
func requireRefused(t *testing.T, made *v1alpha1.VolumeMove) string {
	t.Helper()
	ended := reaches(t, made)
	require.Equal(t, v1alpha1.MoveFailed, ended.Status.Phase, ended.Status.Message)
	t.Logf("refused: %s", ended.Status.Message)
	return ended.Status.Message
}

// spans says how long each phase took.
func spans(done *v1alpha1.VolumeMove) string {
	text := ""
	for i, phase := range done.Status.Phases[:len(done.Status.Phases)-1] {
		text += fmt.Sprintf("%s %s ", phase.Phase, done.Status.Phases[i+1].Since.Sub(phase.Since.Time).Round(time.Millisecond))
	}
	return text
}

// unpin lets the pods of keepers that were begun on one side run anywhere.
func (k keepers) unpin(t *testing.T) {
	t.Helper()
	before := k.ready(t, 1)[0]
	home.kubectl(t, "patch", "statefulset", k.name, "-n", k.namespace, "--type=json", "-p",
		`[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]`)
	requireReplaced(t, before)
}

// rows returns what the keeper of a pod has written.
func (k keepers) rows(t *testing.T) string {
	t.Helper()
	return shell(t, k.namespace, k.pod(0), "cat /data/rows")
}

// requireCopyGone waits until the copy that a volume had is gone, and what it had been.
func (v *volume) requireCopyGone(t *testing.T) {
	t.Helper()
	eventually(t, "the copy in "+v.in.name+" is gone, and its objects", func(c *assert.CollectT) {
		there, err := v.there(t.Context())
		require.NoError(c, err)
		assert.False(c, there, v.directory)
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumes().Get(t.Context(), v.real, metav1.GetOptions{})))
	})
}

// requireFree checks that nothing of a move is left on a claim.
func requireFree(t *testing.T, namespace, claim string, before *corev1.PersistentVolumeClaim) {
	t.Helper()
	now := must.Get(t, home.client.CoreV1().PersistentVolumeClaims(namespace), claim)
	assert.Equal(t, before.UID, now.UID)
	assert.Equal(t, corev1.ClaimBound, now.Status.Phase)
	assert.NotContains(t, now.Finalizers, keys.MoveFinalizer)
	assert.NotContains(t, now.Labels, keys.Moving)
}

// claimOf returns a claim at home.
func claimOf(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Get(t, home.client.CoreV1().PersistentVolumeClaims(namespace), name)
}

// tight is a virtual class whose volumes have no bound at home, where they are
// directories, and one in west, where they are file systems of the claim's size. One of
// the real classes that it allows does not exist.
const tight = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: e2e-tight}
provisioner: lodestone.dev
volumeBindingMode: WaitForFirstConsumer
parameters: {lodestone.dev/local-class: standard, lodestone.dev/remote-class: disk, lodestone.dev/classes: "standard,disk,e2e-ghost"}
`

// TestAMoveToATargetThatIsFullLeavesTheApplicationAtHome: west's file system has 512 MiB.
func TestAMoveToATargetThatIsFullLeavesTheApplicationAtHome(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, tight)
	t.Cleanup(func() {
		_, _ = home.try(context.Background(), "", "delete", "storageclass", "e2e-tight", "--ignore-not-found")
	})
	// The last thing that it does may be too much.
	db := keepers{namespace: shop, name: "db", class: "e2e-tight", size: "512Mi", replicas: 1, spec: atHome,
		leave: "! [ -e /tmp/hoard ] || dd if=/dev/urandom of=/data/late bs=1M count=300 2>/dev/null"}
	home.apply(t, db.manifest())
	db.unpin(t)
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	pod := db.ready(t, 1)[0]
	requireUntouched := func() {
		t.Helper()
		now := db.ready(t, 1)[0]
		assert.Equal(t, pod.UID, now.UID, "the application was not stopped")
		assert.Zero(t, now.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, data, volumeOf(t, shop, db.claim(0)))
		assert.Equal(t, before, data.sum(t, "blob"))
	}

	t.Log("The real class does not exist.")
	said := requireRefused(t, move(t, shop, db.claim(0), "west", func(spec *v1alpha1.VolumeMoveSpec) { spec.ClassName = "e2e-ghost" }))
	assert.Contains(t, said, "e2e-ghost")
	requireUntouched()

	t.Log("The files are more than there is room for.")
	shell(t, shop, pod.Name, "dd if=/dev/zero of=/data/large bs=1M count=600 2>/dev/null")
	said = requireRefused(t, move(t, shop, db.claim(0), "west"))
	assert.Contains(t, said, "the target is too small")
	requireUntouched()

	t.Log("They become so at the last moment.")
	shell(t, shop, pod.Name, "dd if=/dev/urandom of=/data/large bs=1M count=250 2>/dev/null; touch /tmp/hoard")
	said = requireRefused(t, move(t, shop, db.claim(0), "west"))
	assert.Contains(t, said, "full")
	next := db.ready(t, 1)[0]
	assert.Equal(t, home.node, next.Spec.NodeName)
	assert.Equal(t, data, volumeOf(t, shop, db.claim(0)))
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Equal(t, "314572800\n", shell(t, shop, next.Name, "wc -c </data/late"))
	assert.Len(t, data.starts(t), 3)
}

func TestManySmallFilesAreMoved(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	db.unpin(t)
	const sum = "cd /data/many && for d in *; do (cd $d && cat *); done | sha256sum && find . | wc -l"
	directories := 20
	if thorough() {
		directories = 100
	}
	shell(t, shop, db.pod(0), fmt.Sprintf(`mkdir /data/many && cd /data/many
d=0; while [ $d -lt %d ]; do
  mkdir d$d; i=0; while [ $i -lt 1000 ]; do echo $d $i $i $i $i >d$d/file-$i; i=$((i+1)); done; d=$((d+1))
done; sync`, directories))
	before := shell(t, shop, db.pod(0), sum)
	began := time.Now()

	done := requireMoved(t, move(t, shop, db.claim(0), "west"))

	t.Logf("%d,000 small files: moved in %s, of which pods could not use them for %s", directories, time.Since(began).Round(time.Second),
		done.Status.Downtime.Duration)
	db.ready(t, 1)
	assert.Equal(t, before, shell(t, shop, db.pod(0), sum))
}

// thorough says whether tests that take many minutes run, too.
func thorough() bool { return os.Getenv("E2E_LONG") != "" }

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
	_, err := home.try(context.Background(), "", "patch", "remotecluster", "west", "--type=merge", "-p", `{"spec":{"moveRepository":`+value+
		`}}`)
	require.NoError(t, err)
}

// TestContentOfAMoveTravelsThroughAClaimThatBothClustersMount: to west and back. No other
// test runs beside, whose moves would want that claim, too.
func TestContentOfAMoveTravelsThroughAClaimThatBothClustersMount(t *testing.T) {
	testbed.NotInShort(t)
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
