package remotepods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// refusedPod waits until a pod is refused, and checks that nothing of it is in
// west.
func refusedPod(t *testing.T, namespace, name, reason string) *corev1.Pod {
	t.Helper()
	pod := phase(t, namespace, name, corev1.PodFailed)
	assert.Equal(t, reason, pod.Status.Reason)
	assert.NotEmpty(t, pod.Status.Message)
	assert.Empty(t, pod.Finalizers)
	assert.Nil(t, shadow(t, namespace, name))
	assert.Equal(t, pod.Status.Message, await.Event(t, bed.Home.Client(), namespace, name, reason))
	return pod
}

// bind creates a pod and binds it to west's node, as a scheduler does that does
// not ask the extender.
func bind(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Spec.SchedulerName = "other"
	create(t, pod)
	require.NoError(t, bed.Home.Client().CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: fabric.WestNode},
	}, metav1.CreateOptions{}))
}

func TestPodOfAClosedNamespaceIsRefused(t *testing.T) {
	namespace := closed(t)
	bind(t, newPod(namespace, "web"))
	assert.Contains(t, refusedPod(t, namespace, "web", "NamespaceNotOpen").Status.Message, "lodestone.dev/offload=enabled")
}

func TestPodThatNamesItsNodeIsRefused(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web", func(p *corev1.Pod) { p.Spec.NodeName = fabric.WestNode }))
	refusedPod(t, namespace, "web", "NotScheduled")
}

func TestDaemonSetPodIsRefused(t *testing.T) {
	namespace := open(t)
	selector, pods := template(namespace, "log")
	// No scheduler takes its pods: this test binds the one of west's node.
	pods.Spec.SchedulerName = "other"
	pods.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err := bed.Home.Client().AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "log"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var name string
	await.Until(t, "the DaemonSet has a pod for west's node", func() bool {
		list, err := bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, pod := range list.Items {
			if meantFor(&pod, fabric.WestNode) {
				name = pod.Name
			}
		}
		return name != ""
	})
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: fabric.WestNode},
	}, metav1.CreateOptions{}))
	// The controller removes a failed pod soon; what was said stays.
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, name, "DaemonSetPod"), `DaemonSet "log"`)
	assert.Nil(t, shadow(t, namespace, name))
}

// meantFor says whether a DaemonSet made a pod for a node.
func meantFor(pod *corev1.Pod, node string) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 && field.Values[0] == node {
				return true
			}
		}
	}
	return false
}

func TestPodStaysWhenItsNamespaceIsClosedLater(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	label(t, namespace, nil)
	bind(t, newPod(namespace, "late"))
	refusedPod(t, namespace, "late", "NamespaceNotOpen")
	await.Always(t, "the first pod runs on", func() bool {
		pod, there := get(t, bed.Home, namespace, "web"), get(t, bed.West, namespace, "web")
		return pod.Status.Phase == corev1.PodRunning && there != nil && there.DeletionTimestamp == nil
	})
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}
