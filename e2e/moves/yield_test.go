package moves

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// podsOf returns the pods of a Deployment.
func podsOf(t *testing.T, namespace, app string) []corev1.Pod {
	t.Helper()
	pods, err := bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(t, err)
	return pods.Items
}

// sender returns the node of the mover at home of a move; empty while there is none.
func sender(t *testing.T, made *v1alpha1.VolumeMove) string {
	t.Helper()
	pods, err := bed.Home.Client().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// wants has the pods of a Deployment stop before new ones start, on a node.
func wants(t *testing.T, namespace, name, affinity string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"affinity":%s}}}}`, affinity)
	_, err := bed.Home.Client().AppsV1().Deployments(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestAMoverMakesWayForAPodThatGoesToAnotherNode(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeNow) // its volumes are reached from both nodes
	deploysIn(t, namespace, namespace, "data")
	from := folder(t, namespace, "data")
	fill(t, from)
	made := move(t, namespace, "data", "west", limited)
	reaches(t, made, v1alpha1.MovePreCopy)
	var before string
	await.Until(t, "the mover runs", func() bool { before = sender(t, made); return before != "" })
	require.Equal(t, before, podsOf(t, namespace, "data")[0].Spec.NodeName, "beside the pod")

	other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[before]
	wants(t, namespace, "data", fmt.Sprintf(`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":[%q]}]}]}}}`, other))
	var running []corev1.Pod
	await.Until(t, "the pod runs on the other node", func() bool {
		running = podsOf(t, namespace, "data")
		return len(running) == 1 && running[0].Spec.NodeName == other && running[0].Status.Phase == corev1.PodRunning
	}, func() any { return running }, func() any { return await.Events(t, bed.Home.Client(), namespace) }, func() any { return movers(t, made) })
	counts(t, from, counted(t, from)+10)
	await.Until(t, "the mover runs beside it again", func() bool { return sender(t, made) == other }, func() any { return movers(t, made) })

	wants(t, namespace, "data", "null")
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	to := folder(t, namespace, "data")
	assert.NotEqual(t, from, to)
	counts(t, to, counted(t, to)+10)
	nothingLeft(t, namespace, done)
}
