package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Only the very volume that somebody names is given up, only while its cluster
// is away, and if the cluster comes back its data is there.
func TestAVolumeIsLostOnlyWhenAUserSaysSo(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	gone, kept := volumeInWest(t, namespace, "gone"), volumeInWest(t, namespace, "kept")
	shadow := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "gone")
	r := lodestone(t, "lose", "pv", gone, "--yes", "--away", "0s").ends(t, refused)
	assert.Contains(t, r.stderr, `cluster "west" answers, so nothing there is lost`)

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() { dropShadow(t, namespace, "gone") })
	await.Until(t, "status says that west is not Ready", func() bool {
		return strings.Contains(lodestone(t, "status").ends(t, done).out, "NotReachable")
	})
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "gone")
	await.Until(t, "its deletion waits for west", func() bool {
		volume := volumeOf(t, gone)
		return volume != nil && volume.Status.Phase == corev1.VolumeReleased
	})

	r = lodestone(t, "lose", "pv", gone, "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "which may be a short outage")
	r = withInput(t, "gone\n", "lose", "pv", gone, "--away", "0s").ends(t, refused)
	assert.Contains(t, r.stderr, "claim      "+namespace+"/gone")
	assert.Contains(t, r.stderr, "data       cluster west, real claim "+namespace+"/gone")
	assert.NotContains(t, volumeOf(t, gone).Annotations, keys.Lost)
	r = withInput(t, gone+"\n", "lose", "pv", gone, "--away", "0s").ends(t, done)
	assert.Equal(t, "persistentvolume/"+gone+" declared lost\n", r.out)
	await.Until(t, "the volume is gone without west", func() bool { return volumeOf(t, gone) == nil })

	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--yes", "--away", "0s").ends(t, done)
	assert.Contains(t, volumeOf(t, kept).Annotations, keys.Lost)
	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--yes").ends(t, done)
	lodestone(t, "lose", "pvc", "kept", "-n", namespace, "--undo").ends(t, done)
	assert.NotContains(t, volumeOf(t, kept).Annotations, keys.Lost, "the other one is not given up with it")

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	await.Until(t, "what is left in west is told of", func() bool {
		events, err := bed.Home.Client().CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BackingLeft"})
		return err == nil &&
			slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, namespace+"/gone") })
	})
	// That of the other one goes, so the provisioner deletes there again.
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "kept")
	await.Until(t, "the other volume is gone with its data", func() bool { return volumeOf(t, kept) == nil })
	after := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "gone")
	assert.Equal(t, shadow.UID, after.UID)
	assert.Nil(t, after.DeletionTimestamp)
	assert.Contains(t, after.Finalizers, keys.BackingFinalizer)
}

// volumeOf returns a volume of home, nil if it is gone.
func volumeOf(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	return must.Find(t, bed.Home.Client().CoreV1().PersistentVolumes(), name)
}

// dropShadow removes a backing claim in west that home has let go.
func dropShadow(t *testing.T, namespace, name string) {
	t.Helper()
	claims := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	// In the other order the agent would make it anew.
	_, err := claims.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	deleted(t, err)
	deleted(t, claims.Delete(context.Background(), name, metav1.DeleteOptions{}))
}

// The program for virtual nodes ends the pods of a cluster that is deleted; once
// it is to be forgotten, it must not.
func TestForgetOfAClusterThatIsBeingDeletedLeavesItsPodsAlone(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	must.Create(t, bed.Home.Client().PolicyV1().PodDisruptionBudgets(namespace), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	})
	podInWest(t, namespace, "web")
	must.Delete(t, bed.Remotes, "west")
	await.Until(t, "its node is being emptied", func() bool { return reasonOf(t, "west", v1alpha1.VirtualNode) == "Leaving" })

	lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, done)
	nothingIsLeft(t)
	await.Until(t, "the home pod is gone", func() bool { return podOf(t, namespace, "web") == nil })
	await.Never(t, "the pod in west is touched", func() bool {
		pod, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning
	})
	// For the HomeCluster to go after the test.
	assert.NoError(t, bed.West.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
}

// A kubeconfig that somebody made by hand is not lost, nor taken from another
// RemoteCluster.
func TestForgetKeepsAKubeconfigThatPeerDidNotMake(t *testing.T) {
	peered(t)
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	must.Kubectl(t, bed.Home, "", "annotate", "secret", "west", "-n", fabric.System, keys.ClusterUID+"-")
	before := kubeconfigOf(t, "west")
	remote := must.Get(t, bed.Remotes, "west")
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: remote.Spec.KubeconfigSecretRef},
	})

	r := lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, `RemoteCluster "twin" uses the kubeconfig`)
	assert.Equal(t, before, kubeconfigOf(t, "west"))
	must.Delete(t, bed.Remotes, "twin")
	await.Until(t, "twin is gone", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "twin", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	r = lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, done)
	assert.Contains(t, r.stderr, "under key kubeconfig.forgotten")
	secret := must.Get(t, secrets, "west")
	assert.Equal(t, map[string][]byte{"kubeconfig.forgotten": []byte(before)}, secret.Data)
	assert.Nil(t, secret.DeletionTimestamp)
}

func reasonOf(t *testing.T, cluster, condition string) string {
	t.Helper()
	remote := must.Get(t, bed.Remotes, cluster)
	if found := meta.FindStatusCondition(remote.Status.Conditions, condition); found != nil {
		return found.Reason
	}
	return ""
}

// A pod of a remote cluster that has gone can be given up, and only then.
func TestReleaseWhenTheRemoteClusterIsGone(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	podInWest(t, namespace, "web")

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, bed.West.StartAPIServer(context.Background()))
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionFalse))
	says(t, "is in cluster \"west\", which does not answer", "pod", "web", "-n", namespace)
	await.Until(t, "status says that west is not Ready", func() bool {
		return strings.Contains(lodestone(t, "status").ends(t, done).out, "NotReachable")
	})
	r := lodestone(t, "peer", "--remote-context", "west", "--timeout", "10s").ends(t, failed)
	assert.Contains(t, r.stderr, "does not answer")

	must.Kubectl(t, bed.Home, "", "delete", "pod", "web", "-n", namespace, "--force", "--grace-period=0", "--wait=false")
	says(t, "kubectl lodestone release pod web -n "+namespace, "pod", "web", "-n", namespace)

	r = withInput(t, "yes\n", "release", "pod", "web", "-n", namespace).ends(t, refused)
	assert.Contains(t, r.stderr, "two copies may then run at the same time")
	assert.NotNil(t, podOf(t, namespace, "web"))
	r = withInput(t, "web\n", "release", "pod", "web", "-n", namespace).ends(t, done)
	assert.Equal(t, "pod/web released\n", r.out)
	assert.Nil(t, podOf(t, namespace, "web"))
	events := must.List(t, bed.Home.Client().CoreV1().Events(namespace), metav1.ListOptions{FieldSelector: "reason=Released"})
	assert.Len(t, events.Items, 1)
	lodestone(t, "release", "pod", "web", "-n", namespace, "--yes").ends(t, failed)
}
