package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The program for virtual nodes ends the pods of a cluster that is deleted; once
// it is to be forgotten, it must not.
func TestForgetOfAClusterThatIsBeingDeletedLeavesItsPodsAlone(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	_, err := bed.Home.Client().PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	podInWest(t, namespace, "web")
	require.NoError(t, bed.Remotes.Delete(t.Context(), "west", metav1.DeleteOptions{}))
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
	_, err := bed.Home.Kubectl(t.Context(), "", "annotate", "secret", "west", "-n", fabric.System, keys.ClusterUID+"-")
	require.NoError(t, err)
	before := kubeconfigOf(t, "west")
	remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = bed.Remotes.Create(t.Context(), &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: remote.Spec.KubeconfigSecretRef},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	r := lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, `RemoteCluster "twin" uses the kubeconfig`)
	assert.Equal(t, before, kubeconfigOf(t, "west"))
	require.NoError(t, bed.Remotes.Delete(t.Context(), "twin", metav1.DeleteOptions{}))
	await.Until(t, "twin is gone", func() bool {
		_, err := bed.Remotes.Get(t.Context(), "twin", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	r = lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, done)
	assert.Contains(t, r.stderr, "under key kubeconfig.forgotten")
	secret, err := secrets.Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"kubeconfig.forgotten": []byte(before)}, secret.Data)
	assert.Nil(t, secret.DeletionTimestamp)
}

func reasonOf(t *testing.T, cluster, condition string) string {
	t.Helper()
	remote, err := bed.Remotes.Get(t.Context(), cluster, metav1.GetOptions{})
	require.NoError(t, err)
	if found := meta.FindStatusCondition(remote.Status.Conditions, condition); found != nil {
		return found.Reason
	}
	return ""
}
