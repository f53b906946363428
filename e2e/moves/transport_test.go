package moves

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisionerapp "github.com/lodestone-storage/lodestone/provisioner/app"
)

// dataPort is where movers wait for each other.
const dataPort = 8440

// joinedHere counts the connections to the mover of a move in a cluster that this
// process has, in which the provisioner of the tests runs.
func joinedHere(t *testing.T, cluster *testbed.Cluster, made *v1alpha1.VolumeMove, end string) int {
	t.Helper()
	pods := must.List(t, cluster.Client().CoreV1().Pods(""), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
	at := ""
	for _, pod := range pods.Items {
		if strings.HasSuffix(pod.Name, end) {
			at = pod.Status.PodIP
		}
	}
	require.NotEmpty(t, at, "the mover at the %s has no address", end)
	four := netip.MustParseAddr(at).As4()
	remote := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(four[:]), dataPort)
	ours := map[string]bool{}
	files, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, file := range files {
		// Files come and go meanwhile.
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "socket:[") {
			ours[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[2] == remote && ours[fields[9]] {
			found++
		}
	}
	return found
}

// travels waits until the data of a move travels in a way, and returns what is said of it.
func travels(t *testing.T, made *v1alpha1.VolumeMove, way v1alpha1.MoveTransport) v1alpha1.MovedClaim {
	t.Helper()
	var now *v1alpha1.VolumeMove
	await.Until(t, "the data travels "+string(way), func() bool {
		now = must.Get(t, moves(t, made.Namespace), made.Name)
		return len(now.Status.Claims) == 1 && now.Status.Claims[0].Transport == way && now.Status.Claims[0].Bytes > 0
	}, func() any { return now.Status })
	require.Equal(t, v1alpha1.MovePreCopy, now.Status.Phase, "the move is too far to see how the data travels")
	return now.Status.Claims[0]
}

// anew gives a move a name that no other one has.
func anew(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName = "", "anew-" }

// network says whether west's pods and those of home reach each other.
func network(t *testing.T, is v1alpha1.PodNetwork) {
	t.Helper()
	_, err := bed.Remotes.Patch(context.WithoutCancel(t.Context()), "west", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"podNetwork":%q}}`, is), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestMoversDialEachOtherWhereTheirNetworksAreShared(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	network(t, v1alpha1.Routed)
	defer network(t, v1alpha1.Isolated)
	ends := map[bool]*testbed.Cluster{true: bed.West, false: bed.Home}
	for _, cluster := range []string{"west", keys.Home} {
		west := cluster == "west"
		made := move(t, namespace, "data", cluster, slowly, anew)
		claim := travels(t, made, v1alpha1.TransportDirect)
		assert.Nil(t, claim.Legs)
		assert.Empty(t, claim.TransportMessage)
		assert.Zero(t, joinedHere(t, ends[west], made, "target"), "data goes through the provisioner")
		assert.Zero(t, joinedHere(t, ends[!west], made, "source"), "data goes through the provisioner")
		done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, v1alpha1.TransportDirect, done.Status.Claims[0].Transport)
		at := folder(t, namespace, "data")
		counts(t, at, counted(t, at)+10)
	}
	network(t, v1alpha1.Isolated)
	made := move(t, namespace, "data", "west", slowly, anew)
	claim := travels(t, made, v1alpha1.TransportSpliced)
	assert.Equal(t, &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAddress}, claim.Legs)
	assert.Contains(t, claim.TransportMessage, "the pods of cluster west have no addresses for other clusters")
	assert.Positive(t, joinedHere(t, bed.West, made, "target"))
	act(t, made, v1alpha1.ActionAbort)
	reaches(t, made, v1alpha1.MoveAborted)
}

// replaced stops the provisioner and starts one that lets movers dial each other in one
// network.
func replaced(t *testing.T, network string) {
	t.Helper()
	restart(t, func(config *provisionerapp.Config) {
		config.MoverNetworks = []string{network}
	})
}

func TestMoversAreJoinedWhereTheAddressOfOneLeadsNowhere(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	from := folder(t, namespace, "data")
	made := move(t, namespace, "data", keys.Home, slowly, toNode(elsewhere(t, namespace)))
	travels(t, made, v1alpha1.TransportDirect)
	assert.Zero(t, joinedHere(t, bed.Home, made, "target"), "data goes through the provisioner")

	// Now they may not dial each other there any more, and nowhere else can they.
	defer replaced(t, processes.Network)
	replaced(t, processes.Nowhere)
	claim := travels(t, made, v1alpha1.TransportSpliced)
	assert.Equal(t, &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAddress}, claim.Legs)
	assert.Contains(t, claim.TransportMessage, "reach the receiver: dial tcp [100::")
	assert.Positive(t, joinedHere(t, bed.Home, made, "target"))

	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Equal(t, v1alpha1.TransportSpliced, done.Status.Claims[0].Transport)
	at := folder(t, namespace, "data")
	assert.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, made)
}
