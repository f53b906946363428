package kind

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// eventually waits until all that check asserts is so.
func eventually(t *testing.T, message string, check func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, check, long, poll, message)
}

// consistently checks that something is so again and again for a while.
func consistently(t *testing.T, message string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(steady); time.Now().Before(end); time.Sleep(poll) {
		require.True(t, check(), message)
	}
}

// namespace makes a namespace at home whose pods may run in west. It is gone before
// the test ends; the one in west, which is given back some time later, before the
// suite ends.
func namespace(t *testing.T) string {
	t.Helper()
	needsClusters(t)
	made := must.Create(t, home.client.CoreV1().Namespaces(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}},
	})
	t.Cleanup(func() {
		// A failed test leaves it: it is part of what explains why.
		if t.Failed() {
			t.Logf("Namespace %s is left as it is.", made.Name)
			return
		}
		removeNamespace(t, home, made.Name)
	})
	if ofLiqo() {
		offload(t, made.Name, "EnforceSameName")
	}
	return made.Name
}

// prefix is that of all namespaces of the suite.
const prefix = "e2e-"

func removeNamespace(t *testing.T, in *cluster, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	err := in.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	eventually(t, "namespace "+name+" is gone in "+in.name, func(c *assert.CollectT) {
		assert.NoError(c, gone(in.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})))
	})
}

// clearNamespaces deletes what a failed run has left in home. A run that succeeds sees at its end whether it is gone.
func clearNamespaces(ctx context.Context) {
	namespaces, err := home.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		panic(err) // it answered just now
	}
	for _, namespace := range namespaces.Items {
		if strings.HasPrefix(namespace.Name, prefix) {
			fmt.Printf("deleting namespace %s, which a failed run has left\n", namespace.Name)
			if err := home.client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

// leftovers returns, once nothing changes that any more, what the suite has left in
// the clusters: namespaces, volumes, their attachments, and directories, images and devices of volumes.
func leftovers(ctx context.Context) (left []string) {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(poll) {
		left = nil
		for _, c := range every() {
			namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return []string{err.Error()}
			}
			for _, namespace := range namespaces.Items {
				if strings.HasPrefix(namespace.Name, prefix) || namespace.Name == guided {
					left = append(left, "namespace "+namespace.Name+" in "+c.name)
				}
			}
			volumes, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return []string{err.Error()}
			}
			for _, volume := range volumes.Items {
				left = append(left, fmt.Sprintf("volume %s in %s: %s, being deleted since %v, with %v", volume.Name, c.name, volume.Status.Phase,
					volume.DeletionTimestamp, volume.Finalizers))
			}
			attachments, err := c.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
			if err != nil {
				return []string{err.Error()}
			}
			for _, attachment := range attachments.Items {
				left = append(left, fmt.Sprintf("attachment %s of volume %s in %s: being deleted since %v", attachment.Name,
					ptr.Deref(attachment.Spec.Source.PersistentVolumeName, ""), c.name, attachment.DeletionTimestamp))
			}
			files, err := c.inNode(ctx, "sh", "-c", "! test -e /var/local-path-provisioner || ls /var/local-path-provisioner; "+
				"ls "+sharedDirectory+"; ls "+disks+"/volumes "+disks+"/snapshots | grep json; losetup --list --noheadings --output "+
				"BACK-FILE | grep -o '"+disks+"[^ ]*'; true")
			if err != nil {
				return []string{err.Error()}
			}
			for _, file := range strings.Fields(files) {
				left = append(left, "file or directory "+file+" in "+c.node)
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}

func TestTwinIsNeverMountedAndItsFilesOutliveThePod(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	require.Equal(t, home, data.in)
	before := data.sum(t, "blob")

	deletePod(t, pod)
	next := db.ready(t, 1)[0]

	assert.NotEqual(t, pod.UID, next.UID)
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Len(t, data.starts(t), 2)
	pods := must.List(t, home.client.CoreV1().Pods(storage))
	for _, beside := range pods.Items { // movers of other tests
		for _, mounted := range beside.Spec.Volumes {
			if claim := mounted.PersistentVolumeClaim; claim != nil {
				assert.NotEqual(t, data.backing, storage+"/"+claim.ClaimName, "pod %s mounts the twin", beside.Name)
			}
		}
	}

	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(0), "-n", shop)
	data.requireGone(t)
}

// away is how long west stands still in the midst of a move: longer than a pod takes to
// be missed, or in a thorough run longer than any lease holds.
func away() time.Duration {
	if thorough() {
		return pauseTime()
	}
	return 20 * time.Second
}

// TestAMoveOutlivesThatWestIsAway: whatever was going on, the move goes on by itself, and
// nothing is lost.
func TestAMoveOutlivesThatWestIsAway(t *testing.T) {
	all := []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync,
		v1alpha1.MoveVerifying, v1alpha1.MoveCommit, v1alpha1.MoveResume, v1alpha1.MoveRetain}
	// These last for seconds: by the limit of bandwidth, the end of the pod, and keepSourceFor.
	// One of the others may be over before anybody can see it.
	lasting := []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce, v1alpha1.MoveFinalSync, v1alpha1.MoveRetain}
	phases := all
	if !thorough() {
		phases = []v1alpha1.MovePhase{v1alpha1.MoveFinalSync}
	}
	shop := namespace(t)
	// It takes some seconds to end, and leaves the last pass something to do.
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: atHome,
		leave: "dd if=/dev/urandom of=/data/late bs=64k count=96 2>/dev/null; sha256sum late >late.sum; sleep 3"}
	home.apply(t, db.manifest())
	db.unpin(t)
	before := shell(t, shop, db.pod(0), "sha256sum /data/blob")
	starts := 2
	var missed []v1alpha1.MovePhase
	for i, phase := range phases {
		// To and fro: west is the target, and then the source.
		cluster := "west"
		if i%2 == 1 {
			cluster = keys.Home
		}
		t.Run(string(phase), func(t *testing.T) {
			from := volumeOf(t, shop, db.claim(0))
			made := move(t, shop, db.claim(0), cluster, func(spec *v1alpha1.VolumeMoveSpec) {
				limit := resource.MustParse("2Mi")
				spec.BandwidthLimit = &limit
				spec.KeepSourceFor.Duration = 15 * time.Second
			})
			at := reaches(t, made, all[slices.Index(all, phase):]...)
			require.Contains(t, all, at.Status.Phase, at.Status.Message)
			require.NoError(t, west.container(t.Context(), "pause"))
			t.Cleanup(func() { _ = west.container(context.Background(), "unpause") })
			cut := must.Get(t, moves(t, shop), made.Name)
			t.Logf("west went away between %s and %s", at.Status.Phase, cut.Status.Phase)
			if slices.Contains(lasting, phase) {
				assert.Equal(t, phase, cut.Status.Phase, "this phase lasts for seconds, and was missed")
			} else if cut.Status.Phase != phase {
				missed = append(missed, phase)
			}
			time.Sleep(away())
			during := must.Get(t, moves(t, shop), made.Name)
			t.Logf("after %s without it, in %s: %s", away(), during.Status.Phase, during.Status.Message)
			require.NoError(t, west.container(t.Context(), "unpause"))

			requireMoved(t, made)

			starts++
			db.ready(t, 1)
			assert.NotEqual(t, from.in, volumeOf(t, shop, db.claim(0)).in)
			assert.Equal(t, before, shell(t, shop, db.pod(0), "sha256sum /data/blob"))
			shell(t, shop, db.pod(0), "cd /data && sha256sum -c late.sum")
			assert.Len(t, startsOf(t, db.rows(t)), starts)
			from.requireCopyGone(t)
		})
	}
	t.Logf("west went away in each of %v but %v", phases, missed)
}
