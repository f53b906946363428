package pods

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

func offering(cpu string) *remotev1alpha1.HomeCluster {
	home := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"}}
	home.Spec.Offer = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return home
}

func podSpec(cpu string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}
}

func podNamed(home, name, cpu string, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: podSpec(cpu),
		Status: corev1.PodStatus{Phase: phase}}
	if home != "" {
		pod.Labels = map[string]string{keys.HomeID: home}
	}
	return pod
}

func kept(home, name, cpu string, phase corev1.PodPhase) *sources.Pod {
	return sources.NewPod(podNamed(home, name, cpu, phase))
}

func shadowNamed(name, cpu string) *remotev1alpha1.ShadowPod {
	shadow := &remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	shadow.Spec.Home.Cluster, shadow.Spec.Pod.Spec = "h1", podSpec(cpu)
	return shadow
}

func TestPodsCountFromTheirAdmissionUntilTheyEnd(t *testing.T) {
	l, home := newLedger(), offering("4")
	require.Nil(t, l.admit(home, shadowNamed("a", "2")))
	require.Nil(t, l.admit(home, shadowNamed("a", "2")), "the same pod counts once")
	require.NotNil(t, l.admit(home, shadowNamed("b", "3")), "a is about to be made")

	a := kept("h1", "a", "2", corev1.PodRunning)
	l.podChanged(nil, a)
	assert.Empty(t, l.reserved, "the informer shows it")
	require.NotNil(t, l.admit(home, shadowNamed("b", "3")))
	require.Nil(t, l.admit(home, shadowNamed("b", "2")))
	l.forget(types.NamespacedName{Namespace: "shop", Name: "b"})

	ended := kept("h1", "a", "2", corev1.PodSucceeded)
	l.podChanged(a, ended)
	require.Nil(t, l.admit(home, shadowNamed("b", "4")), "what has ended takes nothing")
	l.podChanged(ended, nil)
	assert.Empty(t, l.shown)
	assert.Empty(t, l.times, "nothing is kept of what is gone")
}

func TestPodsOfOthersDoNotCount(t *testing.T) {
	l := newLedger()
	l.podChanged(nil, kept("", "theirs", "9", corev1.PodRunning))
	l.podChanged(nil, kept("h2", "other", "9", corev1.PodRunning))
	require.Nil(t, l.admit(offering("4"), shadowNamed("a", "4")))
}

func TestWhatTheClusterAddsToAPodCounts(t *testing.T) {
	l, home := newLedger(), offering("4")
	require.Nil(t, l.admit(home, shadowNamed("a", "1")))
	require.NotNil(t, l.admitActual(home, podNamed("h1", "a", "5", "")))
	require.Nil(t, l.admitActual(home, podNamed("h1", "a", "3", "")))
	require.NotNil(t, l.admit(home, shadowNamed("b", "2")))
}

func TestGrowthCountsBeforeItIsShown(t *testing.T) {
	l, home := newLedger(), offering("4")
	a, b := kept("h1", "a", "1", corev1.PodRunning), kept("h1", "b", "1", corev1.PodRunning)
	l.podChanged(nil, a)
	l.podChanged(nil, b)
	require.NotNil(t, l.admitGrowth(home, podNamed("h1", "a", "4", "")), "b takes 1")
	require.Nil(t, l.admitGrowth(home, podNamed("h1", "a", "3", "")), "a itself does not count beside itself")
	require.NotNil(t, l.admit(home, shadowNamed("c", "1")), "a is about to take 3")

	l.podChanged(a, a)
	require.NotNil(t, l.admit(home, shadowNamed("c", "1")), "the informer does not show it yet")
	grown := kept("h1", "a", "3", corev1.PodRunning)
	l.podChanged(a, grown)
	assert.Empty(t, l.reserved)
	require.NotNil(t, l.admit(home, shadowNamed("c", "1")))
	l.podChanged(grown, a)
	require.Nil(t, l.admit(home, shadowNamed("c", "2")), "it was shrunk again")

	require.Nil(t, l.admitGrowth(offering("9"), podNamed("h1", "b", "2", "")))
	l.podChanged(b, nil)
	assert.NotContains(t, l.reserved, types.NamespacedName{Namespace: "shop", Name: "b"}, "it is gone before it grew")
}

// Pods are admitted one after the other beside many.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, home := newLedger(), offering("1000000")
			for i := range n {
				l.podChanged(nil, kept("h1", fmt.Sprintf("p%d", i), "1", corev1.PodRunning))
			}
			for b.Loop() {
				if refusal := l.admit(home, shadowNamed("new", "1")); refusal != nil {
					b.Fatal(refusal)
				}
				l.forget(types.NamespacedName{Namespace: "shop", Name: "new"})
			}
		})
	}
}
