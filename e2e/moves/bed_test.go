package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// TestApplicationsReallyWriteToTheirVolumes is about the bed itself: without it the
// other tests would show nothing.
func TestApplicationsReallyWriteToTheirVolumes(t *testing.T) {
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "here", fabric.Class), fabric.AtHome(application(namespace, "here", "here")))
	makes(t, fabric.NewClaim(namespace, "there", fabric.Class), onWest(application(namespace, "there", "there")))
	for _, claim := range []string{"here", "there"} {
		counts(t, folder(t, namespace, claim), 5)
	}
	assert.NotEqual(t, folder(t, namespace, "here"), folder(t, namespace, "there"))

	// It ends with its pod.
	pods := bed.Home.Client().CoreV1().Pods(namespace)
	require.NoError(t, pods.Delete(t.Context(), "there", metav1.DeleteOptions{}))
	await.Until(t, "the pod is gone", func() bool {
		_, err := pods.Get(t.Context(), "there", metav1.GetOptions{})
		return err != nil
	})
	ended := counted(t, folder(t, namespace, "there"))
	await.Never(t, "nobody may write when the pod is gone", func() bool { return counted(t, folder(t, namespace, "there")) != ended })
}
