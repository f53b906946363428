package remotepods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestPodRunsInWest(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init"}}
	}))
	home, west := runs(t, namespace, "web")
	assert.Equal(t, "web", west.Labels["app"])
	assert.Equal(t, homeID, west.Labels[keys.HomeID])
	assert.Contains(t, home.Finalizers, keys.RemotePodFinalizer)
	assert.Contains(t, []string{"west-1", "west-2"}, west.Spec.NodeName)
	assert.Empty(t, home.Status.PodIP, "the pod networks are not routed")
	assert.Equal(t, "127.0.0.1", home.Status.HostIP)
	await.Until(t, "home's pod is ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	home = get(t, bed.Home, namespace, "web")
	assert.Len(t, home.Status.ContainerStatuses, 1)
	assert.Len(t, home.Status.InitContainerStatuses, 1)
	await.Until(t, "its address there is told", func() bool {
		return get(t, bed.Home, namespace, "web").Annotations[keys.RemoteIP] == west.Status.PodIP
	})

	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}

func TestGracefulDeletionIsPassedOn(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "slow", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(600)) }))
	_, west := runs(t, namespace, "slow")
	// The played kubelet ends a pod at once; a finalizer makes it take its time.
	hold(t, west, "test.dev/slow")
	remove(t, namespace, "slow", metav1.DeleteOptions{})
	await.Until(t, "the pod there is being deleted", func() bool {
		pod := get(t, bed.West, namespace, "slow")
		return pod != nil && pod.DeletionTimestamp != nil
	})
	found := shadow(t, namespace, "slow")
	require.NotNil(t, found)
	require.NotNil(t, found.Spec.GracePeriodSeconds)
	assert.Equal(t, int64(600), *found.Spec.GracePeriodSeconds)

	remove(t, namespace, "slow", forced())
	await.Until(t, "a shorter time is passed on", func() bool {
		found := shadow(t, namespace, "slow")
		return found != nil && *found.Spec.GracePeriodSeconds == 0
	})
	await.Always(t, "home's pod stays while the pod there does", func() bool { return get(t, bed.Home, namespace, "slow") != nil })
	hold(t, west, "")
	gone(t, namespace, "slow", made.UID)
}
