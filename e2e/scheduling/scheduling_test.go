package scheduling_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

var standard = v1alpha1.OfferedClass{Name: "standard", Default: true}

// inEachMode runs a test with a kube-scheduler that sends node names, and with
// one that sends whole nodes.
func inEachMode(t *testing.T, test func(*stage)) {
	t.Helper()
	testbed.Require(t)
	for mode, b := range beds {
		t.Run(mode, func(t *testing.T) { test(newStage(t, b)) })
	}
}

// awaitRefusal waits until kube-scheduler shows the reason on the pod.
func (s *stage) awaitRefusal(pod string, reason filter.Reason) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Contains(c, s.refusal(c, pod), reason.Sentence())
	}, long, often)
}

// awaitChange waits until the pod, woken by touching its claim, shows another
// reason. One touch may be too early: kube-scheduler can hear of it before the
// extender hears of what changed.
func (s *stage) awaitChange(pod, claim string, reason filter.Reason) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.touch(claim)
		assert.Contains(c, s.refusal(c, pod), reason.Sentence())
	}, long, 10*often)
}

// refusal returns why kube-scheduler holds the pod back.
func (s *stage) refusal(t require.TestingT, pod string) string {
	found, err := s.Client().CoreV1().Pods(s.namespace).Get(s.t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	for _, condition := range found.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

// awaitSelected waits until kube-scheduler selects a node for the claim.
func (s *stage) awaitSelected(claim string) string {
	s.t.Helper()
	node := ""
	require.Eventually(s.t, func() bool {
		node = s.selected(claim)
		return node != ""
	}, long, often, "claim %s must get a node", claim)
	return node
}

func (s *stage) selected(claim string) string {
	found, err := s.Client().CoreV1().PersistentVolumeClaims(s.namespace).Get(s.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return found.Annotations[keys.SelectedNode]
}

func (s *stage) awaitNode(pod string) string {
	s.t.Helper()
	node := ""
	require.Eventually(s.t, func() bool {
		found, err := s.Client().CoreV1().Pods(s.namespace).Get(s.t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return false
		}
		node = found.Spec.NodeName
		return node != ""
	}, long, often, "pod %s must get a node", pod)
	return node
}

func named(name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A pod that must go to a remote cluster follows that cluster's state: every step
// is visible on the pod, and the last one lets it go.
func TestUnboundClaimWaitsForItsCluster(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.claim("data", nil)
		s.pod(named("web"), true, "data")
		s.awaitRefusal("web", filter.ClusterUnknown)

		for _, step := range []struct {
			change func()
			reason filter.Reason
		}{
			{change: func() { s.join(metav1.ConditionUnknown, standard) }, reason: filter.ClusterNotReady},
			{change: func() { s.join(metav1.ConditionTrue) }, reason: filter.NoRealClass},
			// The label goes first: between the two changes the pod may be tried again.
			{change: func() { s.label("disabled"); s.join(metav1.ConditionTrue, standard) }, reason: filter.NotOffloaded},
		} {
			step.change()
			s.awaitChange("web", "data", step.reason)
		}
		s.label(keys.OffloadEnabled)
		require.Eventually(s.t, func() bool {
			s.touch("data")
			return s.selected("data") == s.node
		}, long, 10*often)
	})
}

func TestUnboundClaimPassesOverWhatRefusedIt(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		refused, err := refusal.Encode([]refusal.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
		require.NoError(s.t, err)
		s.claim("data", map[string]string{keys.Refused: refused})
		s.pod(named("web"), false, "data")
		assert.Equal(s.t, s.node, s.awaitSelected("data"))
	})
}

func TestClassThatIsNotListedLeavesNoNode(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.claim("data", map[string]string{keys.Class: "forbidden"})
		s.pod(named("web"), false, "data")
		s.awaitRefusal("web", filter.ClassNotListed)
	})
}

// The provisioner would refuse the claim there: the pod's copy in the remote
// cluster does not own it.
func TestEphemeralVolumeIsAClaimToo(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		pod := named("web")
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: ptr.To(class),
				Resources:        size(),
			}},
		}}}}
		s.pod(pod, true)
		s.awaitRefusal("web", filter.EphemeralVolume)
	})
}

func TestBoundClaimKeepsThePodWithItsData(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.volume(s.claim("data", nil), s.remote)
		s.pod(named("web"), false, "data")
		assert.Equal(s.t, s.node, s.awaitNode("web"))
	})
}

// With one node per cluster in the race, all else being equal, the data decides.
func TestPodComesNearTheDataThatItNames(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.volume(s.claim("there", nil), s.remote)
		s.volume(s.claim("here", nil), keys.Home)
		for pod, want := range map[string]struct {
			near  string
			nodes []string
		}{
			"near-there": {near: "there", nodes: []string{s.node}},
			"near-here":  {near: "here", nodes: []string{"home-1", "home-2"}},
		} {
			near := named(pod)
			near.Annotations = map[string]string{keys.Near: want.near}
			s.pod(near, false)
			assert.Contains(s.t, want.nodes, s.awaitNode(pod))
		}
	})
}

func TestPodWithoutClaimsGoesAnywhere(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.pod(named("web"), true)
		assert.Equal(s.t, s.node, s.awaitNode("web"))
	})
}
