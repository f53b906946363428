package testbed_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestClaimsOfEitherBindingModeBindAndTheirPodsRun(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "at-once", immediate)
	createClaim(t, home, namespace, "later", wait)

	volume := eventuallyBound(t, home, namespace, "at-once")
	require.Equal(t, driver, volume.Spec.CSI.Driver)
	require.Equal(t, []string{"noatime"}, volume.Spec.MountOptions)
	require.Equal(t, "2Mi", volume.Spec.Capacity.Storage().String())
	require.Nil(t, volume.Spec.NodeAffinity)

	createPod(t, home, namespace, pod("web", "at-once", "later"))
	running := eventuallyPod(t, home, namespace, "web", runs)
	volume = eventuallyBound(t, home, namespace, "later")
	expression := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	require.Equal(t, []string{running.Spec.NodeName}, expression.Values)
	require.Len(t, homeDisks.VolumesOf(namespace), 2)
	require.Empty(t, homeNodes.Violations(namespace))

	deletePod(t, home, namespace, "web")
	require.NoError(t, home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "later", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return !homeDisks.Exists(volume.Spec.CSI.VolumeHandle) }, long, often)
}

func TestProvisionerBehavesAsItIsTold(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	homeDisks.SetClaim(namespace, "refused", instant.Behavior{Refuse: "the array is on fire"})
	homeDisks.SetClaim(namespace, "hanging", instant.Behavior{Never: true})
	homeDisks.SetClaim(namespace, "homeless", instant.Behavior{FullNodes: []string{instant.EveryNode}})
	createClaim(t, home, namespace, "refused", immediate)
	createClaim(t, home, namespace, "hanging", immediate)
	createClaim(t, home, namespace, "homeless", wait)

	eventuallyEvent(t, home, namespace, "refused", "the array is on fire")
	homeDisks.ResetClaim(namespace, "refused")
	eventuallyBound(t, home, namespace, "refused")

	require.Len(t, homeDisks.VolumesOf(namespace), 1, "a claim that hangs must have no volume")
	homeDisks.ResetClaim(namespace, "hanging")
	eventuallyBound(t, home, namespace, "hanging")

	createPod(t, home, namespace, pod("mover", "homeless"))
	eventuallyEvent(t, home, namespace, "homeless", "has no room for the volume")
	homeDisks.ResetClaim(namespace, "homeless")
	eventuallyPod(t, home, namespace, "mover", runs) // which takes a new choice of a node
}

func TestVolumeThatCannotBeDeletedStays(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	homeDisks.SetClaim(namespace, "sticky", instant.Behavior{DeleteNever: true})
	createClaim(t, home, namespace, "sticky", immediate)
	volume := eventuallyBound(t, home, namespace, "sticky")
	require.NoError(t, home.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "sticky", metav1.DeleteOptions{}))
	eventuallyEvent(t, home, "default", volume.Name, "refuses to delete")
	require.True(t, homeDisks.Exists(volume.Spec.CSI.VolumeHandle))

	homeDisks.ResetClaim(namespace, "sticky")
	require.Eventually(t, func() bool { return !homeDisks.Exists(volume.Spec.CSI.VolumeHandle) }, long, often)
}

func TestPodThatBypassesTheSchedulerDoesNotMountAVolumeOfAnotherNode(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "data", wait)
	createPod(t, home, namespace, pod("first", "data"))
	first := eventuallyPod(t, home, namespace, "first", runs)

	other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[first.Spec.NodeName]
	bypass := pod("bypass", "data")
	bypass.Spec.NodeName = other
	createPod(t, home, namespace, bypass)
	eventuallyEvent(t, home, namespace, "bypass", "cannot be reached from this node")
	blocked := eventuallyPod(t, home, namespace, "bypass", func(*corev1.Pod) bool { return true })
	require.Equal(t, corev1.PodPending, blocked.Status.Phase)
	violations := homeNodes.Violations(namespace)
	require.Len(t, violations, 1)
	require.Equal(t, "bypass", violations[0].Pod)
	require.Equal(t, other, violations[0].Node)
}
