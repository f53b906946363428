package testbed_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestNodeFallsSilentReturnsAndIsTakenAway(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	ctx, name := t.Context(), "spare-"+rand.String(5)
	require.NoError(t, homeNodes.AddNodes(ctx, hollow.Node{
		Name: name, Taints: []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}},
	}))
	require.ErrorContains(t, homeNodes.AddNodes(ctx, hollow.Node{Name: name}), "is played already")
	node, err := home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)

	require.NoError(t, homeNodes.SetAlive(name, false))
	late := pod("late")
	late.Spec.NodeName = name
	createPod(t, home, namespace, late)
	require.Eventually(t, func() bool { return !ready(t, name) }, long, often)
	silent := eventuallyPod(t, home, namespace, "late", func(*corev1.Pod) bool { return true })
	require.Equal(t, corev1.PodPending, silent.Status.Phase)

	require.NoError(t, homeNodes.SetAlive(name, true))
	require.Eventually(t, func() bool { return ready(t, name) }, long, often)
	eventuallyPod(t, home, namespace, "late", runs)

	require.NoError(t, homeNodes.RemoveNode(ctx, name))
	_, err = home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.Error(t, homeNodes.SetAlive(name, true))
}
