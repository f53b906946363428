package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

func TestUnpeerRemovesWhatPeerMade(t *testing.T) {
	peered(t)
	r := lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/west unpeered\n", r.out)
	nothingIsLeft(t)
	_, err := homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err))

	t.Run("and again says that nothing is there", func(t *testing.T) {
		lodestone(t, "unpeer", "west").ends(t, failed)
		lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	})
	t.Run("and home is no cluster to unpeer", func(t *testing.T) {
		lodestone(t, "unpeer", "home", "--forget", "--yes").ends(t, usage)
	})
}

func TestUnpeerWithoutTheRemoteContextSaysWhatIsLeft(t *testing.T) {
	peered(t)
	r := lodestone(t, "unpeer", "west").ends(t, done)
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	assert.Contains(t, r.stderr, "kubectl delete homecluster "+id)
	nothingIsLeft(t)
	lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	_, err = homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err))
}

func TestUnpeerOfTheWrongClusterIsRefused(t *testing.T) {
	peered(t, "--name", "occident")
	r := lodestone(t, "unpeer", "occident", "--remote-context", "home-again").ends(t, refused)
	assert.Contains(t, r.stderr, "does not lead to the cluster")
	r = lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, refused)
	assert.Contains(t, r.stderr, `peered as "occident"`)
	_, err := homeClusterOf(t)
	assert.NoError(t, err)
}

func TestUnpeerIsRefusedWhileAVolumeIsThereAndForgetTouchesNothingInWest(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	volume := volumeInWest(t, namespace, "data")
	podInWest(t, namespace, "web", "data")

	r := lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, refused)
	assert.Contains(t, r.stderr, volume)
	assert.Contains(t, r.stderr, namespace+"/data")
	remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, remote.DeletionTimestamp, "nothing was changed")

	r = lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "neither declared lost nor named, so nothing was changed: "+volume+";")
	r = withInput(t, "no\n", "unpeer", "west", "--forget", "--volume", volume).ends(t, refused)
	assert.Contains(t, r.stderr, "nothing was changed")
	assert.NotEmpty(t, secretOf(t, "west").Data["kubeconfig"])

	withInput(t, "west\n", "unpeer", "west", "--forget", "--volume", volume).ends(t, done)
	nothingIsLeft(t)
	_, err = bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	shadow, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, shadow.DeletionTimestamp, "the data is still there")
	assert.Equal(t, corev1.ClaimBound, shadow.Status.Phase)

	await.Until(t, "the home pod is gone", func() bool { return podOf(t, namespace, "web") == nil })
	await.Never(t, "the pod in west is touched", func() bool {
		pod, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning
	})
	_, err = bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "the virtual node: %v", err)

	// For the HomeCluster to go after the test.
	_, err = bed.West.Kubectl(t.Context(), "", "patch", "pvc", "data", "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
	require.NoError(t, bed.West.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
}

func nothingIsLeft(t *testing.T) {
	t.Helper()
	_, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "RemoteCluster: %v", err)
	await.Until(t, "the Secret is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func secretOf(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return secret
}

func homeClusterOf(t *testing.T) (*remotev1alpha1.HomeCluster, error) {
	t.Helper()
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	return bed.Agents.HomeClusters().Get(t.Context(), id, metav1.GetOptions{})
}
