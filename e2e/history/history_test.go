package history

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestARemoteClusterThatIsRestoredFromABackup has west go back to before a claim was
// made and another one was deleted.
func TestARemoteClusterThatIsRestoredFromABackup(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	namespace := bed.Namespace(t)
	kept, deleted := create(t, namespace, "kept", fabric.WestNode), create(t, namespace, "deleted", fabric.WestNode)
	handle, gone := awaitServed(t, kept), awaitServed(t, deleted)
	grown := create(t, namespace, "grown", fabric.WestNode)
	awaitServed(t, grown)
	left := published(t, deleted)
	backup, err := bed.West.Backup(t.Context())
	require.NoError(t, err)
	// A backup that is younger than home's last mark there is no earlier state.
	before := volumesMark(t)
	await.Until(t, "home renews its mark", func() bool { return volumesMark(t) != before })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))

	later := create(t, namespace, "later", fabric.WestNode)
	awaitServed(t, later)
	requestSize(t, bed.Home, grown, "2Gi")
	await.Until(t, "the claim has grown", func() bool {
		return await.Claim(t, bed.Home.Client(), namespace, grown.Name).Status.Capacity.Storage().String() == "2Gi"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	remove(t, deleted)
	await.Until(t, "what was deleted is gone, with its data", func() bool {
		return volumeOf(t, deleted) == nil && !bed.WestStorage.Exists(gone)
	})
	lost := version(t, bed.West)

	require.NoError(t, bed.West.Restore(t.Context(), backup))
	// Another copy of home may have come to act there in the time that the backup lost.
	awaitDoubt(t, bed, homeepoch.RemoteBehind)
	assert.Nil(t, await.Claim(t, bed.West.Client(), namespace, later.Name))
	code, _, said := lodestone(t, bed, "confirm", "west", "--yes")
	require.Equal(t, 0, code, said)
	awaitInForce(t, bed)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, later.Name, "BackingMissing"), "is gone")
	await.Until(t, "what is left there is told of", func() bool { return tellsLeft(t, namespace+"/"+deleted.Name) })
	overtake(t, lost)
	// What west's storage and its other controllers were told stays as it was, and so
	// they are told of what comes now.
	await.Until(t, "the real volume is asked to be as large as the virtual one", func() bool {
		return await.Claim(t, bed.West.Client(), namespace, grown.Name).Spec.Resources.Requests.Storage().String() == "2Gi"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	awaitServed(t, create(t, namespace, "next", fabric.WestNode))

	await.Always(t, "nothing is deleted", func() bool {
		shadow, virtual := await.Claim(t, bed.West.Client(), namespace, deleted.Name), volumeOf(t, later)
		return shadow != nil && shadow.UID == left.UID && shadow.DeletionTimestamp == nil && backing.Protected(shadow) &&
			await.Volume(t, bed.West.Client(), shadow.Spec.VolumeName) != nil &&
			bound(t, bed.Home, later) && virtual != nil && virtual.DeletionTimestamp == nil && virtual.Status.Phase == corev1.VolumeBound &&
			bound(t, bed.Home, kept) && bound(t, bed.West, kept) && bed.WestStorage.Exists(handle) && bound(t, bed.Home, grown)
	})
	// The claim whose data is gone can be given up.
	remove(t, later)
	await.Until(t, "its volume is gone", func() bool { return volumeOf(t, later) == nil })
}

// volumesMark returns home's mark in west, which has no agent.
func volumesMark(t *testing.T) homeepoch.Mark {
	t.Helper()
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	lease := must.Get(t, bed.West.Client().CoordinationV1().Leases(keys.VolumesNamespace), "home-"+id)
	return homeepoch.ParseMark(lease.Annotations[keys.HomeEpoch])
}

// published returns the shadow of a claim once it is known that home knows of it.
func published(t *testing.T, claim *corev1.PersistentVolumeClaim) (shadow *corev1.PersistentVolumeClaim) {
	t.Helper()
	await.Until(t, "the shadow is marked as published", func() bool {
		shadow = await.Claim(t, bed.West.Client(), claim.Namespace, claim.Name)
		return !backing.Unpublished(shadow)
	})
	return shadow
}

func tellsLeft(t *testing.T, shadow string) bool {
	t.Helper()
	events := must.List(t, bed.Home.Client().CoreV1().Events(""), metav1.ListOptions{FieldSelector: "reason=BackingLeft"})
	for _, event := range events.Items {
		if strings.Contains(event.Message, shadow) {
			return true
		}
	}
	return false
}

// overtake has west's history become longer than the one that was lost: until then
// those who watched that, as the storage that is played, are told nothing.
func overtake(t *testing.T, version string) {
	t.Helper()
	maps, name := bed.West.Client().CoreV1().ConfigMaps(metav1.NamespaceDefault), "history"
	made := must.Create(t, maps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	for n := 0; number(t, made.ResourceVersion) <= number(t, version); n++ {
		made.Data = map[string]string{"n": fmt.Sprint(n)}
		made = must.Update(t, maps, made)
	}
}

func number(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	require.NoError(t, err)
	return n
}

// TestChangesThatNoWatchTellsAnyMoreAreSeen cuts the provisioner off from both
// clusters, and lets it back in when their API servers have forgotten what happened
// meanwhile.
func TestChangesThatNoWatchTellsAnyMoreAreSeen(t *testing.T) {
	testbed.Require(t)
	namespace := bed.Namespace(t)
	kept, doomed := create(t, namespace, "kept", fabric.WestNode), create(t, namespace, "doomed", fabric.WestNode)
	awaitServed(t, kept)
	gone := awaitServed(t, doomed)
	versions := map[*testbed.Cluster]string{bed.Home: version(t, bed.Home), bed.West: version(t, bed.West)}

	home.HangUp(true)
	west.HangUp(true)
	remove(t, doomed)
	late := create(t, namespace, "late", fabric.WestNode)
	// West's administrator makes a volume larger.
	requestSize(t, bed.West, kept, "2Gi")
	await.Until(t, "the real volume is larger", func() bool {
		return await.Claim(t, bed.West.Client(), namespace, kept.Name).Status.Capacity.Storage().String() == "2Gi"
	})
	for cluster, before := range versions {
		require.NoError(t, cluster.Forget(t.Context()))
		require.True(t, expired(t, cluster, before), "the API server of %s goes on from where the provisioner was cut off", cluster.Name())
	}
	assert.False(t, bound(t, bed.Home, late))
	assert.True(t, bed.WestStorage.Exists(gone))

	home.Mend()
	west.Mend()
	awaitServed(t, late)
	await.Until(t, "what was deleted is gone, with its data", func() bool {
		return volumeOf(t, doomed) == nil && !bed.WestStorage.Exists(gone)
	})
	await.Until(t, "the virtual volume is as large as the real one", func() bool {
		return volumeOf(t, kept).Spec.Capacity.Storage().String() == "2Gi"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	awaitServed(t, create(t, namespace, "next", fabric.WestNode))
}

// version returns the resource version up to which watches have told all.
func version(t *testing.T, cluster *testbed.Cluster) string {
	t.Helper()
	claims := must.List(t, cluster.Client().CoreV1().PersistentVolumeClaims(""), metav1.ListOptions{Limit: 1})
	return claims.ResourceVersion
}

// expired says whether a watch from a version on is told that this is gone.
func expired(t *testing.T, cluster *testbed.Cluster, version string) bool {
	t.Helper()
	watcher, err := cluster.Client().CoreV1().PersistentVolumeClaims("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	require.NoError(t, err)
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if event.Type != watch.Error {
		return false
	}
	err = apierrors.FromObject(event.Object)
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
