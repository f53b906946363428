package remotepods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lodestone-storage/lodestone/e2e/await"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestChangesFollowThePod(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	patch := []byte(`{"metadata":{"labels":{"color":"blue"},"annotations":{"note":"new"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}`)
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	await.Until(t, "image, label and annotation arrive", func() bool {
		pod := get(t, bed.West, namespace, "web")
		return pod.Spec.Containers[0].Image == "app:2" && pod.Labels["color"] == "blue" && pod.Annotations["note"] == "new"
	})
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID, "it is the same pod")
}

// orphan returns a ShadowPod for a home pod that may not exist.
func orphan(namespace, name string, uid types.UID) *remotev1alpha1.ShadowPod {
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: homeID, keys.PodUID: string(uid)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true,
			Home:  remotev1alpha1.HomePod{Cluster: homeID, Namespace: namespace, Name: name, UID: uid},
			Pod:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}
}

func TestShadowPodOfNoPodIsRemoved(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	home, _ := runs(t, namespace, "web")
	for name, uid := range map[string]types.UID{"left": uuid.NewUUID(), "stray": home.UID} {
		_, err := bed.Agents.ShadowPods(namespace).Create(t.Context(), orphan(namespace, name, uid), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, name := range []string{"left", "stray"} {
		await.Until(t, "ShadowPod "+name+" and its pod are gone", func() bool {
			return shadow(t, namespace, name) == nil && get(t, bed.West, namespace, name) == nil
		})
	}
	assert.Equal(t, corev1.PodRunning, get(t, bed.Home, namespace, "web").Status.Phase)
	assert.NotNil(t, get(t, bed.West, namespace, "web"))
}

func TestNameIsFreeForTheNextPodWhenTheEarlierIsGone(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "first"))
	runs(t, namespace, "first") // the namespace is there
	left := orphan(namespace, "web", uuid.NewUUID())
	_, err := bed.Agents.ShadowPods(namespace).Create(t.Context(), left, metav1.CreateOptions{})
	require.NoError(t, err)
	made := create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	assert.Equal(t, string(made.UID), west.Labels[keys.PodUID])
}

func TestShadowPodDeletedInWestFailsThePod(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	require.NoError(t, bed.Agents.ShadowPods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	home := phase(t, namespace, "web", corev1.PodFailed)
	assert.Contains(t, []string{"RemotePodGone", ""}, home.Status.Reason)
	await.Until(t, "nothing holds the pod any more", func() bool {
		return len(get(t, bed.Home, namespace, "web").Finalizers) == 0
	})
	await.Always(t, "it is not made again", func() bool {
		return get(t, bed.West, namespace, "web") == nil && shadow(t, namespace, "web") == nil
	})
}

// end writes the status of a pod in west, as a kubelet does.
func end(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase, reason, message string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase, "reason": reason, "message": message}})
	require.NoError(t, err)
	_, err = bed.West.Client().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}
