package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// A pod of a remote cluster that has gone can be given up, and only then.
func TestReleaseWhenTheRemoteClusterIsGone(t *testing.T) {
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

	_, err := bed.Home.Kubectl(t.Context(), "", "delete", "pod", "web", "-n", namespace, "--force", "--grace-period=0", "--wait=false")
	require.NoError(t, err)
	says(t, "kubectl lodestone release pod web -n "+namespace, "pod", "web", "-n", namespace)

	r = withInput(t, "yes\n", "release", "pod", "web", "-n", namespace).ends(t, refused)
	assert.Contains(t, r.stderr, "two copies may then run at the same time")
	assert.NotNil(t, podOf(t, namespace, "web"))
	r = withInput(t, "web\n", "release", "pod", "web", "-n", namespace).ends(t, done)
	assert.Equal(t, "pod/web released\n", r.out)
	assert.Nil(t, podOf(t, namespace, "web"))
	events, err := bed.Home.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Released"})
	require.NoError(t, err)
	assert.Len(t, events.Items, 1)
	lodestone(t, "release", "pod", "web", "-n", namespace, "--yes").ends(t, failed)
}
