package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAHomeClusterGetsNamespacesAndPods(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	shadow := x.shadow(namespace, "web", nil)
	pod := x.runs(namespace, "web")
	assert.Equal(t, x.id, pod.Labels[keys.HomeID])
	assert.Equal(t, string(shadow.Spec.Home.UID), pod.Labels[keys.PodUID])
	assert.Equal(t, "web", pod.Labels["app"])
	assert.Equal(t, namespace+"/web", pod.Annotations[keys.Pod])
	require.NotNil(t, pod.Spec.AutomountServiceAccountToken)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.Equal(t, pod.UID, x.phase(namespace, "web", remotev1alpha1.ShadowPodCreated).Status.PodUID)

	// Changes of the template are carried; what others wrote stays.
	_, err := bed.West.Kubectl(t.Context(), "", "annotate", "pod", "-n", namespace, "web", "example.com/by=another")
	require.NoError(t, err)
	_, err = x.remote.ShadowPods(namespace).Patch(t.Context(), "web", types.JSONPatchType, []byte(`[
		{"op":"replace","path":"/spec/pod/metadata/labels","value":{"tier":"front"}},
		{"op":"replace","path":"/spec/pod/spec/containers/0/image","value":"app:2"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the change is carried", func() error {
		pod = x.runs(namespace, "web")
		if pod.Spec.Containers[0].Image != "app:2" || pod.Labels["tier"] != "front" || pod.Labels["app"] != "" {
			return assert.AnError
		}
		return nil
	})
	assert.Equal(t, "another", pod.Annotations["example.com/by"])
	assert.Equal(t, string(shadow.Spec.Home.UID), pod.Labels[keys.PodUID])

	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	x.goes(namespace, "web")
}
