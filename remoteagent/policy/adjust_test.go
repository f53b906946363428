package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func cpu(requests string) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Containers[0].Resources.Requests = nil
		if requests != "" {
			s.Spec.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(requests)}
		}
	}
}

func debugger(names ...string) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) {
		for _, name := range names {
			s.Spec.Pod.Spec.EphemeralContainers = append(s.Spec.Pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "debug:1"}})
		}
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}

func TestAResizeIsCarriedOnceAndOnlyWhatHomeChanged(t *testing.T) {
	pod := NewPod(shadowPod("", cpu("100m")), home)
	pod.UID = "u"
	// A LimitRange of this cluster added a limit.
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	assert.Nil(t, Adjust(shadowPod("", cpu("100m")), pod))
	assert.Nil(t, Adjust(shadowPod("", cpu("0.1")), pod), "the same in other words")

	wanted := shadowPod("", cpu("2"))
	change := Adjust(wanted, pod)
	require.NotNil(t, change)
	assert.Equal(t, Resize, change.Subresource)
	assert.JSONEq(t, `{"metadata":{"uid":"u"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2"}}}]}}`, text(t, change.Patch))
	assert.Equal(t, "2", change.Pod.Spec.Containers[0].Resources.Requests.Cpu().String())
	assert.Equal(t, "100m", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "what was read is not changed")
	assert.Nil(t, Patch(wanted, pod), "it is not written down as done before it is")

	// Done, and then written down.
	pod.Spec = change.Pod.Spec
	assert.Nil(t, Adjust(wanted, pod))
	patch := Patch(wanted, pod)
	require.NotNil(t, patch)
	pod.Annotations[keys.Applied] = patch["metadata"].(map[string]any)["annotations"].(map[string]any)[keys.Applied].(string)
	assert.Nil(t, Patch(wanted, pod))
	// Somebody here resizes it: home has not changed anything.
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3")
	assert.Nil(t, Adjust(wanted, pod))
	// Home takes the request away.
	assert.JSONEq(t, `{"metadata":{"uid":"u"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":null}}}]}}`,
		text(t, Adjust(shadowPod("", cpu("")), pod).Patch))
}

func TestAPodFromBeforeIsNotResizedByAnUpgrade(t *testing.T) {
	pod := NewPod(shadowPod("", cpu("100m")), home)
	pod.Annotations[keys.Applied] = `{"labels":["app"],"images":{"app":"app:1"}}`
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50m") // a webhook of this cluster
	assert.Nil(t, Adjust(shadowPod("", cpu("100m")), pod))
	patch := Patch(shadowPod("", cpu("100m")), pod)
	require.NotNil(t, patch, "what counts from now on is written down")
	pod.Annotations[keys.Applied] = patch["metadata"].(map[string]any)["annotations"].(map[string]any)[keys.Applied].(string)
	assert.Nil(t, Adjust(shadowPod("", cpu("100m")), pod))
	assert.NotNil(t, Adjust(shadowPod("", cpu("200m")), pod))
}

func TestEphemeralContainersAreAddedAndNeverChanged(t *testing.T) {
	pod := NewPod(shadowPod("", debugger("one")), home)
	assert.Empty(t, pod.Spec.EphemeralContainers, "no pod can be made with them")
	pod.UID = "u"
	change := Adjust(shadowPod("", debugger("one")), pod)
	require.NotNil(t, change)
	assert.Equal(t, Ephemeral, change.Subresource)
	assert.JSONEq(t, `{"metadata":{"uid":"u"},"spec":{"ephemeralContainers":[{"name":"one","image":"debug:1","resources":{}}]}}`, text(t, change.Patch))
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "one", Image: "mirror/debug:1"}},
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "of-the-owner"}}}
	assert.Nil(t, Adjust(shadowPod("", debugger("one")), pod))
	assert.Contains(t, text(t, Adjust(shadowPod("", debugger("one", "two")), pod).Patch), `[{"name":"two"`)

	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	assert.Nil(t, Adjust(shadowPod("", debugger("one", "two")), ended))
	leaving := pod.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{}
	assert.Nil(t, Adjust(shadowPod("", debugger("one", "two")), leaving))
}

func TestWhereAPodRunsIsThisClustersToSay(t *testing.T) {
	shadow := shadowPod("", func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Labels[corev1.LabelTopologyZone], s.Spec.Pod.Labels[corev1.LabelTopologyRegion] = "west", "west"
	})
	pod := NewPod(shadow, home)
	assert.NotContains(t, pod.Labels, corev1.LabelTopologyZone)
	pod.Labels[corev1.LabelTopologyZone], pod.Labels[corev1.LabelTopologyRegion] = "eu-1", "eu"
	assert.Nil(t, Patch(shadow, pod))
	// A pod from before got home's labels, and keeps them.
	pod.Annotations[keys.Applied] = `{"labels":["app","topology.kubernetes.io/zone"],"images":{"app":"app:1"},"resources":{}}`
	pod.Labels[corev1.LabelTopologyZone] = "west"
	labels := Patch(shadow, pod)["metadata"].(map[string]any)["labels"]
	assert.Nil(t, labels)
}
