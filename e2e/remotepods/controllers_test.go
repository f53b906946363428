package remotepods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// template returns the template of pods that run in west.
func template(namespace, name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	pod := newPod(namespace, name)
	return &metav1.LabelSelector{MatchLabels: pod.Labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
}

func statefulSet(t *testing.T, namespace, name string) {
	t.Helper()
	selector, pods := template(namespace, name)
	_, err := bed.Home.Client().AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: selector, Template: pods, ServiceName: name},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestReplicaSetRunsInWest(t *testing.T) {
	namespace := open(t)
	selector, pods := template(namespace, "web")
	_, err := bed.Home.Client().AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(3)), Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "three replicas are ready", func() bool {
		set, err := bed.Home.Client().AppsV1().ReplicaSets(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		return set.Status.ReadyReplicas == 3
	})
	require.NoError(t, bed.Home.Client().AppsV1().ReplicaSets(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	await.Until(t, "nothing is left in west", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		shadows, err := bed.Agents.ShadowPods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(pods.Items)+len(shadows.Items) == 0
	})
}

func TestStatefulSetReplacesAPodThatWestLost(t *testing.T) {
	namespace := open(t)
	statefulSet(t, namespace, "db")
	first, west := runs(t, namespace, "db-0")
	require.NoError(t, bed.West.Client().CoreV1().Pods(namespace).Delete(t.Context(), west.Name, metav1.DeleteOptions{}))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "db-0", "RemotePodLost"), "removed from this cluster")
	await.Until(t, "another pod of the set runs", func() bool {
		pod, there := get(t, bed.Home, namespace, "db-0"), get(t, bed.West, namespace, "db-0")
		return pod != nil && pod.UID != first.UID && pod.Status.Phase == corev1.PodRunning && there != nil && there.Labels[keys.PodUID] == string(pod.UID)
	})
}

func TestJobEndsWithItsPodInWest(t *testing.T) {
	namespace := open(t)
	_, pods := template(namespace, "once")
	pods.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := bed.Home.Client().BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: pods},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	name := ""
	await.Until(t, "the Job has a pod", func() bool {
		pods, err := bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		if len(pods.Items) == 1 {
			name = pods.Items[0].Name
		}
		return name != ""
	})
	_, west := runs(t, namespace, name)
	end(t, west, corev1.PodSucceeded, "", "")
	await.Until(t, "the Job is complete", func() bool {
		job, err := bed.Home.Client().BatchV1().Jobs(namespace).Get(t.Context(), "once", metav1.GetOptions{})
		require.NoError(t, err)
		return job.Status.Succeeded == 1
	})
	await.Always(t, "its pod there stays, for its log", func() bool { return get(t, bed.West, namespace, name) != nil })
	uid := get(t, bed.Home, namespace, name).UID
	remove(t, namespace, name, metav1.DeleteOptions{})
	gone(t, namespace, name, uid)
}

func TestEvictionThereIsSeenHere(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	end(t, west, corev1.PodFailed, "Evicted", "The node was low on memory.")
	home := phase(t, namespace, "web", corev1.PodFailed)
	assert.Equal(t, "Evicted", home.Status.Reason)
	assert.Equal(t, "The node was low on memory.", home.Status.Message)
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}
