package pitfalls

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// withMarker is the configuration with which the extender is asked about marked pods
// only.
var withMarker = fromDeploy("examples", "kube-scheduler-configuration-marked.yaml")

// mark applies the policy that marks pods, until the test ends.
func mark(t *testing.T) {
	t.Helper()
	policy := fromDeploy("components", "managed-resources", "admission.yaml")
	_, err := bed.Kubectl(t.Context(), "", "apply", "--validate=strict", "-f", policy)
	require.NoError(t, err)
	probe := newShop(t)
	isMarked := func() bool {
		pod, err := bed.Client().CoreV1().Pods(probe.name).Create(context.Background(), newPod("probe", "data"), dryRun)
		return err == nil && marked(pod)
	}
	t.Cleanup(func() {
		_, err := bed.Kubectl(context.Background(), "", "delete", "-f", policy)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !isMarked() }, long, often)
	})
	// A policy takes hold, and ends, a moment after it is written or deleted.
	require.Eventually(t, isMarked, long, often)
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// admitted returns a pod as the API server would store it.
func (s *shop) admitted(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	result, err := bed.Client().CoreV1().Pods(s.name).Create(s.t.Context(), pod, dryRun)
	require.NoError(s.t, err)
	return result
}

func marked(pod *corev1.Pod) bool {
	_, found := pod.Spec.Containers[0].Resources.Requests[keys.MarkerResource]
	return found
}

func TestPodsThatAreMarked(t *testing.T) {
	closed, opened := newShop(t), newShop(t, open)
	mark(t)
	one := resource.MustParse("1")
	for name, test := range map[string]struct {
		shop   *shop
		claims []string
		change func(*corev1.Pod)
		want   bool
	}{
		"a pod":                      {shop: closed},
		"a pod of an open namespace": {shop: opened, want: true},
		"a pod with a claim":         {shop: closed, claims: []string{"data"}, want: true},
		"a pod with an ephemeral claim": {shop: closed, want: true, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec()}}}}}
		}},
		"a pod with another volume": {shop: closed, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}},
		"a pod that wants to be near data": {shop: closed, want: true, change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.Near: "data"}
		}},
		"a pod of another scheduler": {shop: closed, claims: []string{"data"}, change: func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }},
		"a pod that names its node":  {shop: closed, claims: []string{"data"}, change: func(p *corev1.Pod) { p.Spec.NodeName = "home-1" }},
		"a pod with resources of its own": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: one}
		}},
		"a pod with limits only": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: one}
		}},
		"a pod with resources for all containers together": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: one}}
		}},
		"a pod that asks for the marker itself": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			five := corev1.ResourceList{keys.MarkerResource: resource.MustParse("5")}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: five, Limits: five}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pod", test.claims...)
			if test.change != nil {
				test.change(pod)
			}
			want := pod.DeepCopy()
			got := test.shop.admitted(pod)
			require.Equal(t, test.want, marked(got))
			if !test.want {
				return
			}
			container := got.Spec.Containers[0].Resources
			assert.True(t, one.Equal(container.Requests[keys.MarkerResource]))
			assert.True(t, one.Equal(container.Limits[keys.MarkerResource]))
			for resource := range want.Spec.Containers[0].Resources.Limits {
				assert.Contains(t, container.Limits, resource)
			}
			for resource := range want.Spec.Containers[0].Resources.Requests {
				assert.Contains(t, container.Requests, resource)
			}
		})
	}
	for _, namespace := range []string{"kube-system", system} {
		assert.False(t, marked((&shop{t: t, name: namespace}).admitted(restricted("pod", "data"))), "the cluster does not start without pods of %s", namespace)
	}
}

func TestPodsThatAreNotMarkedCostNoCall(t *testing.T) {
	at := address(t)
	s := newShop(t)
	// Made before the policy, like all pods of a cluster that adopts it.
	s.dataIn("there", west)
	s.pod("older", "there")

	mark(t)
	scheduleWith(t, withMarker, at)
	e := runExtender(t, at, "lodestone-extender")
	assert.Equal(t, westNode, s.awaitNode("older"), "the volume itself says where its data is")
	for _, name := range []string{"a", "b", "c"} {
		s.pod(name)
		s.awaitNode(name)
	}
	assert.Zero(t, e.calls(t, "filter"))
	assert.Zero(t, e.calls(t, "prioritize"))

	opened := newShop(t, open)
	opened.awayFromHome("new")
	pod := opened.pod("marked", "new")
	require.True(t, marked(pod))
	assert.Equal(t, westNode, opened.awaitSelected("new"))
	assert.NotZero(t, e.calls(t, "filter"))

	near := newPod("near")
	near.Annotations = map[string]string{keys.Near: "there"}
	opened.dataIn("there", west)
	opened.make(near)
	assert.Equal(t, westNode, opened.awaitNode("near"))
	assert.NotZero(t, e.calls(t, "prioritize"))
}
