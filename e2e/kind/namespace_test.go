package kind

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// namespace makes a namespace at home whose pods may run in west, and one there if
// Lodestone does so. Both are gone before the test ends.
func namespace(t *testing.T) string {
	t.Helper()
	needsClusters(t)
	made, err := home.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{keys.Offload: keys.OffloadEnabled}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { removeNamespace(t, made.Name) })
	return made.Name
}

// removeNamespace deletes a namespace with all that is in it, and waits until it is
// gone in both clusters. A failed test leaves it: it is part of what explains why.
func removeNamespace(t *testing.T, name string) {
	t.Helper()
	if t.Failed() {
		t.Logf("Namespace %s is left as it is.", name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	err := home.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	eventually(t, "namespace "+name+" is gone in both clusters", func(c *assert.CollectT) {
		for _, cluster := range []*cluster{home, west} {
			_, err := cluster.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			assert.True(c, apierrors.IsNotFound(err), "in %s: %v", cluster.name, err)
		}
	})
}
