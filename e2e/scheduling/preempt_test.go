package scheduling_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// seat is a resource of which each node of these tests has one, and other nodes
// none.
const seat = corev1.ResourceName("example.com/seat")

func seats() corev1.ResourceList {
	return corev1.ResourceList{
		seat: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("10"),
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
}

// seated returns a pod that takes a seat, and makes its priority class.
func (s *stage) seated(name string, priority int32) corev1.Pod {
	s.t.Helper()
	class, err := s.Client().SchedulingV1().PriorityClasses().Create(s.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + rand.String(6)}, Value: priority,
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = s.Client().SchedulingV1().PriorityClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	pod := named(name)
	pod.Spec.PriorityClassName = class.Name
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{seat: resource.MustParse("1")}, Limits: corev1.ResourceList{seat: resource.MustParse("1")},
	}}}
	return pod
}

// fill makes a node with one seat and a pod that takes it.
func (s *stage) fill(node hollow.Node, pod corev1.Pod) {
	s.t.Helper()
	node.Allocatable = seats()
	_, err := hollow.Start(s.t.Context(), hollow.Options{Config: s.AdminConfig(), Nodes: []hollow.Node{node}})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = s.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	s.pod(pod, false)
	require.Equal(s.t, node.Name, s.awaitNode(pod.Name))
}

func (s *stage) exists(pod string) bool {
	found, err := s.Client().CoreV1().Pods(s.namespace).Get(s.t.Context(), pod, metav1.GetOptions{})
	return err == nil && found.DeletionTimestamp == nil
}

// urgent makes a pod of high priority whose claim home refused lately. Its claim
// has the pod's name.
func (s *stage) urgent(name string) {
	s.t.Helper()
	refused, err := refusal.Encode([]refusal.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
	require.NoError(s.t, err)
	s.claim(name, map[string]string{keys.Refused: refused})
	s.pod(s.seated(name, 1000), false, name)
}

// Both clusters are full, and home refused the claims of the urgent pods.
// kube-scheduler by itself would evict the pod at home, whose priority is the
// lowest: in vain, as an urgent pod is then refused there.
func TestNobodyIsEvictedWhereTheClaimCannotGo(t *testing.T) {
	inEachMode(t, func(s *stage) {
		ctx := s.t.Context()
		remote := virtualNode(s.remote)
		remote.Name += "-full"
		s.fill(hollow.Node{Name: "home-full-" + s.remote}, s.seated("low-at-home", 1))
		s.fill(remote, s.seated("low-in-remote", 2))

		// Nothing is known of the remote cluster yet: the pod can go nowhere.
		s.urgent("too-early")
		require.Eventually(s.t, func() bool { return s.refusal(s.t, "too-early") != "" }, long, often)
		early, err := s.Client().CoreV1().Pods(s.namespace).Get(ctx, "too-early", metav1.GetOptions{})
		require.NoError(s.t, err)
		assert.Empty(s.t, early.Status.NominatedNodeName, "no node must be emptied for it: %s", s.refusal(s.t, "too-early"))
		require.NoError(s.t, s.Client().CoreV1().Pods(s.namespace).Delete(ctx, "too-early", metav1.DeleteOptions{}))

		// A pod that needs no seat shows that all have heard of the cluster.
		s.join(metav1.ConditionTrue, standard)
		s.claim("seatless", nil)
		s.pod(named("seatless"), true, "seatless")
		require.Eventually(s.t, func() bool {
			s.touch("seatless")
			return s.selected("seatless") != ""
		}, long, 10*often)

		// Now there is one place for an urgent pod, and only there somebody goes.
		s.urgent("in-time")
		require.Eventually(s.t, func() bool { return s.selected("in-time") == remote.Name }, long, often)
		assert.False(s.t, s.exists("low-in-remote"), "its seat is what the urgent pod got")
		assert.True(s.t, s.exists("low-at-home"), "it was evicted in vain")
	})
}
