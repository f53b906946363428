package replicas

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// switchOver makes the VolumeMove of claim data to a cluster.
func switchOver(t *testing.T, namespace, cluster string) *v1alpha1.VolumeMove {
	t.Helper()
	return must.Create(t, objects(t).In(namespace), &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: "to-" + cluster},
		Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"data"}, Target: v1alpha1.MoveTarget{Cluster: cluster},
			KeepSourceFor: &metav1.Duration{Duration: time.Second}},
	})
}

// accepted is what a move says of what it begins with.
func accepted(move *v1alpha1.VolumeMove) string {
	if condition := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.MoveAccepted); condition != nil {
		return condition.Message
	}
	return ""
}

// TestAPlannedSwitchoverSendsWhatDiffersAlone moves a replicated claim to its standby, and home again.
func TestAPlannedSwitchoverSendsWhatDiffersAlone(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	made := replicate(t, namespace, "west")
	sealed(t, made, time.Time{})
	now := pause(t, made)
	version := now.Status.Standbys[0].Versions[0]
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, version.Name))
	changes(t, from)
	before, wanted := beyond(t, namespace, has+20), filepath.Join(t.TempDir(), "much")
	content, err := os.ReadFile(filepath.Join(from, "much"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(wanted, content, 0o600))

	code, out, said := plugin(t, append([]string{"move", "data", "--target-cluster", "west", "--dry-run"}, editor(t, namespace)...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out+said, "beginning with version "+version.Name+" of VolumeReplica data")

	move := inPhase(t, switchOver(t, namespace, "west"), v1alpha1.MoveDone)
	t.Logf("%d bytes travelled, pods could not use the claim for %s", move.Status.Claims[0].Sent, move.Status.Downtime)
	assert.LessOrEqual(t, move.Status.Claims[0].Sent, int64(16<<20/10), "what the standby has does not travel again")
	says := "the copy of claim data begins with version " + version.Name + " of VolumeReplica data, and what differs from that is copied"
	assert.Equal(t, says, accepted(move))
	_, out, _ = plugin(t, "move", "status", "to-west", "-n", namespace)
	assert.Contains(t, out, says+"\n")
	to := folder(t, namespace)
	require.True(t, strings.HasPrefix(to, filepath.Join(bed.Disks.Root, westDriver)), to)
	assertSame(t, wanted, filepath.Join(to, "much"))
	beyond(t, namespace, before)
	assert.Equal(t, has, counted(t, contentOf(t, bed.West, westDriver, namespace, version.Name)), "the version is as it was sealed")

	// The replica has its copy where the claim is, until that goes home.
	must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
	inSameCluster(t, made)
	assert.Contains(t, versionsOf(must.Get(t, objects(t).Replicas(namespace), made.Name)), version.Name)
	back := inPhase(t, switchOver(t, namespace, keys.Home), v1alpha1.MoveDone)
	assert.Greater(t, back.Status.Claims[0].Sent, int64(8<<20), "there is no version at home")
	assert.Empty(t, accepted(back))
	assertSame(t, wanted, filepath.Join(folder(t, namespace), "much"))
	beyond(t, namespace, counted(t, folder(t, namespace)))
	now = sealed(t, made, version.Cut.Time)
	assert.LessOrEqual(t, now.Status.Standbys[0].Sent, int64(16<<20/10))
	removes(t, made)
}

// inSameCluster waits until a replica says that its claim is where its copy is.
func inSameCluster(t *testing.T, made *v1alpha1.VolumeReplica) {
	t.Helper()
	says(t, made, "SameCluster", "is in cluster west, where its copy is, too")
}

// cordonWest has nothing scheduled in west, whose storage waits for a pod, until the returned function is called.
func cordonWest(t *testing.T) (uncordon func()) {
	t.Helper()
	nodes := strings.Fields(must.Kubectl(t, bed.West, "", "get", "nodes", "-o", "name"))
	each := func(verb string) {
		for _, node := range nodes {
			must.Kubectl(t, bed.West, "", verb, node)
		}
	}
	each("cordon")
	uncordon = sync.OnceFunc(func() { each("uncordon") })
	t.Cleanup(uncordon)
	return uncordon
}

// targetOf is what the real claim at the target of a move in west is made from, and its UID; a space alone without one.
func targetOf(t *testing.T, move *v1alpha1.VolumeMove) string {
	t.Helper()
	return must.Kubectl(t, bed.West, "", "get", "pvc", "-n", move.Namespace, "-l", keys.MoveOf+"="+string(move.UID), "-o",
		"jsonpath={.items[*].spec.dataSource.name} {.items[*].metadata.uid}")
}

// isEmptyTarget says of what targetOf returns whether there is a target, and it is made from nothing.
func isEmptyTarget(target string) bool { return strings.HasPrefix(target, " ") && len(target) > 1 }

// TestAMoveEndsWellWithoutTheVersionThatItBeganWith has all versions deleted while a move waits for the volume that is to come of one.
func TestAMoveEndsWellWithoutTheVersionThatItBeganWith(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	fill(t, folder(t, namespace))
	made := replicate(t, namespace, "west")
	sealed(t, made, time.Time{})
	version := pause(t, made).Status.Standbys[0].Versions[0].Name
	before := counted(t, folder(t, namespace))

	uncordon := cordonWest(t)
	move := switchOver(t, namespace, "west")
	await.Until(t, "the target is to be made from the version", func() bool { return strings.HasPrefix(targetOf(t, move), version+" ") },
		func() any { return must.Get(t, objects(t).In(namespace), move.Name).Status })
	first := targetOf(t, move)
	must.Kubectl(t, bed.West, "", "delete", "volumesnapshots", "-n", namespace, "--all", "--wait=false")
	await.Until(t, "another target is made empty", func() bool {
		now := targetOf(t, move)
		return isEmptyTarget(now) && !strings.HasSuffix(first, now)
	}, func() any { return must.Get(t, objects(t).In(namespace), move.Name).Status }, func() any { return targetOf(t, move) })
	uncordon()
	move = inPhase(t, move, v1alpha1.MoveDone)
	assert.Contains(t, accepted(move), "the copy of claim data does not begin with version "+version+" of VolumeReplica data, and all is "+
		"copied: VolumeSnapshot "+namespace+"/"+version+", which has the version, was deleted")
	assert.Greater(t, move.Status.Claims[0].Sent, int64(16<<20))
	beyond(t, namespace, before)
	// The snapshot controller looks for claims that are made from a snapshot every quarter of an hour, or when that changes.
	must.Kubectl(t, bed.West, "", "annotate", "volumesnapshots", "-n", namespace, "--all", "looked-at=again")
	removes(t, made)
}
