package namespaces

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// shadowPod is the copy of a home pod.
func shadowPod(home *corev1.Pod) *remotev1alpha1.ShadowPod {
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: home.Name, Namespace: home.Namespace, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: owner.homeID, keys.PodUID: string(home.UID)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: owner.homeID, Namespace: home.Namespace, Name: home.Name, UID: home.UID},
			Pod:  corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}
}

// heldPod makes a pod at home that no scheduler places.
func heldPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "test.lodestone.dev/held"}},
			Containers:      []corev1.Container{{Name: "app", Image: "app"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}

// No virtual node runs here: what a pod has left in west when its home pod is gone,
// given up by a user for instance, the provisioner ends before it leaves.
// It does not run in parallel: it takes west away.
func TestARemovedClusterGivesBackItsNamespaces(t *testing.T) {
	namespace := space(t, "shop-", true)
	awaitGiven(t, namespace)
	kept, gone := heldPod(t, namespace, "kept"), heldPod(t, namespace, "gone")
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), gone.Name, metav1.DeleteOptions{}))
	for _, home := range []*corev1.Pod{kept, gone} {
		_, err := bed.Agents.ShadowPods(namespace).Create(t.Context(), shadowPod(home), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, bed.Remotes.Delete(t.Context(), "west", metav1.DeleteOptions{}))
	await.Until(t, "the pods are told of", func() bool {
		ready := condition(t, v1alpha1.Ready)
		return ready.Reason == "Leaving" && ready.Message == "pods of this cluster are left there in namespace "+namespace+": delete them at home"
	}, func() any { return condition(t, v1alpha1.Ready) })
	_, err := bed.Agents.ShadowPods(namespace).Get(t.Context(), kept.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), kept.Name, metav1.DeleteOptions{}))
	await.Until(t, "west is let go", func() bool {
		_, err := bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return condition(t, v1alpha1.Ready) })
	await.Until(t, "nothing is asked for any more", func() bool {
		list, err := bed.Agents.NamespaceRequests(owner.tenant()).List(context.Background(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, func() any { return "requests are left" })

	kubeconfig, err := owner.kubeconfig(t.Context())
	require.NoError(t, err)
	require.NoError(t, bed.Home.Client().CoreV1().Secrets(fabric.System).Delete(t.Context(), "west", metav1.DeleteOptions{}))
	require.NoError(t, bed.Register(t.Context(), "west", kubeconfig))
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	assert.True(t, recorded(t, namespace))
}
