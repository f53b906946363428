package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// annotate sets an annotation of a claim as the provisioner, whose marks nobody else may
// change; nil takes it off.
func (s *stage) annotate(claim, key string, value any) {
	s.t.Helper()
	quoted := "null"
	if value != nil {
		quoted = fmt.Sprintf("%q", value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted)
	client, err := kubernetes.NewForConfig(s.UserConfig("system:serviceaccount:"+system+":lodestone-provisioner", "system:masters"))
	require.NoError(s.t, err)
	must.Patch(s.t, client.CoreV1().PersistentVolumeClaims(s.namespace), claim, types.MergePatchType, []byte(patch))
}

// settled touches a claim a moment after a change, as the provisioner does:
// kube-scheduler may have heard of the change before the extender.
func (s *stage) settled(claim string) {
	time.Sleep(500 * time.Millisecond)
	s.touch(claim)
}

func copyOf(source string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	}
}

// A pod of a volume that is being moved waits, and starts when the move is over:
// what is taken off the claim wakes it.
func TestPodWaitsWhileItsVolumeIsMoved(t *testing.T) {
	inEachMode(t, func(s *stage) {
		claim := s.claim("data", nil)
		s.annotate("data", keys.Move, "move")
		s.volume(claim, s.remote)
		s.pod(named("web"), false, "data")
		s.awaitRefusal("web", filter.VolumeMoving)
		s.annotate("data", keys.Move, nil)
		s.settled("data")
		assert.Equal(s.t, s.node, s.awaitNode("web"))
	})
}

// A copy is made where its source is, and only once that has a volume.
func TestPodOfACopyGoesToTheSource(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		source := s.claim("data", nil)
		s.claim("copy", nil, copyOf("data"))
		s.pod(named("web"), false, "copy")
		s.awaitRefusal("web", filter.SourceNotBound)
		s.volume(source, s.remote)
		s.settled("copy")
		assert.Equal(s.t, s.node, s.awaitSelected("copy"))
	})
}

// kube-scheduler by itself knows nothing of an administrator's labels.
func TestLabelledVolumeConfinesItsPodsWhereItMust(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.foreign("archive", map[string]string{keys.Cluster: s.remote, keys.Locality: keys.LocalityRequired})
		s.pod(named("reader"), false, "archive")
		assert.Equal(s.t, s.node, s.awaitNode("reader"))

		s.volume(s.claim("data", nil), keys.Home)
		s.pod(named("both"), false, "archive", "data")
		s.awaitRefusal("both", filter.DataInSeveralClusters)
	})
}

// Two pods share a claim: the first choice holds for both.
func TestPodsThatShareAClaimMeetAtItsData(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		shared := s.claim("shared", nil, func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		})
		s.pod(named("first"), true, "shared")
		assert.Equal(s.t, s.node, s.awaitSelected("shared"))
		s.volume(shared, s.remote)
		s.pod(named("second"), false, "shared")
		assert.Equal(s.t, s.node, s.awaitNode("first"))
		assert.Equal(s.t, s.node, s.awaitNode("second"))
	})
}

// kube-scheduler counts a claim without volume against the driver of its virtual
// class, which has no limit. The volume that is made for it needs a place at the
// driver of the real class; when a pod ends there is one again.
func TestNodeTakesNoMoreVolumesThanItsDriverAttaches(t *testing.T) {
	const driver = "disk.example.com"
	inEachMode(t, func(s *stage) {
		node := fakekubelet.Node{Name: "small-" + s.remote, Drivers: map[string]int32{driver: 1}}
		_, err := fakekubelet.Start(s.t.Context(), fakekubelet.Options{Config: s.AdminConfig(), Nodes: []fakekubelet.Node{node}})
		require.NoError(s.t, err)
		s.t.Cleanup(func() {
			_ = s.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
		virtual := s.class("virtual", keys.Driver, map[string]string{keys.LocalClass: s.class("disk", driver, nil)})
		ofDisk := func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &virtual }
		there := func(name string) corev1.Pod {
			pod := named(name)
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
			pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
			return pod
		}
		s.volume(s.claim("one", nil, ofDisk), keys.Home, func(volume *corev1.PersistentVolume) { volume.Spec.CSI.Driver = driver })
		s.pod(there("first"), false, "one")
		require.Equal(s.t, node.Name, s.awaitNode("first"))

		s.claim("two", nil, ofDisk)
		s.pod(there("second"), false, "two")
		s.awaitRefusal("second", filter.AttachLimit)
		must.Delete(s.t, s.Client().CoreV1().Pods(s.namespace), "first")
		assert.Equal(s.t, node.Name, s.awaitSelected("two"))
	})
}

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

// awaitTouched touches the claim, for the reason of awaitChange, until the node that kube-scheduler selects for it is right.
// It leaves kube-scheduler time in between: that gives up to write the node when the claim has changed meanwhile.
func (s *stage) awaitTouched(claim string, right func(node string) bool) {
	s.t.Helper()
	var touched time.Time
	require.Eventually(s.t, func() bool {
		if time.Since(touched) > 3*time.Second {
			s.touch(claim)
			touched = time.Now()
		}
		return right(s.selected(claim))
	}, long, often)
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
		s.awaitTouched("data", func(node string) bool { return node == s.node })
	})
}

func TestUnboundClaimPassesOverWhatRefusedIt(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		refused, err := locality.EncodeRefusals([]locality.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
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

// A namespace that is open to remote clusters has pods with claims of other classes too: those stay
// where such claims can be, until somebody says that there is one in the remote cluster.
func TestAClaimThatIsNotLodestonesKeepsItsPodAtHome(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		plain := s.class("plain", "disk.example.com", nil)
		ofPlain := func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &plain }
		for _, claim := range []string{"there", "of-class"} {
			s.claim(claim, nil, ofPlain)
		}
		// To kube-scheduler the virtual node is as good as the others, so several pods are tried.
		for i := range 4 {
			claim := fmt.Sprintf("anywhere-%d", i)
			s.claim(claim, nil, ofPlain)
			s.pod(named(claim), false, claim)
			assert.Contains(s.t, homeNodes, s.awaitSelected(claim))
		}
		s.pod(named("there"), true, "there")
		s.awaitRefusal("there", filter.ClaimStaysHome)
		s.pod(named("of-class"), true, "of-class")
		s.awaitRefusal("of-class", filter.ClaimStaysHome)

		s.annotate("there", keys.UsableIn, s.remote)
		s.settled("there")
		assert.Equal(s.t, s.node, s.awaitSelected("there"))
		s.awaitRefusal("of-class", filter.ClaimStaysHome)
		must.Kubectl(s.t, s, "", "annotate", "storageclass", plain, keys.UsableIn+"=*")
		s.settled("of-class")
		assert.Equal(s.t, s.node, s.awaitSelected("of-class"))
	})
}

// An administrator knows that a volume can be used in the remote cluster.
func TestAMarkedVolumeLetsItsPodsGo(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		s.foreign("films", nil)
		s.pod(named("reader"), true, "films")
		s.awaitRefusal("reader", filter.ClaimStaysHome)
		must.Kubectl(s.t, s, "", "annotate", "persistentvolume", s.namespace+"-films", keys.UsableIn+"="+s.remote)
		s.settled("films")
		assert.Equal(s.t, s.node, s.awaitNode("reader"))
	})
}
