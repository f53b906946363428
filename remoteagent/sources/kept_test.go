package sources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

func pod(home, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", ResourceVersion: "7",
			Labels:        map[string]string{keys.HomeID: home},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "app:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.1"},
	}
}

func TestAPodOfAHomeClusterIsKeptWhole(t *testing.T) {
	want := pod("h1", "2")
	want.ManagedFields, want.Status = nil, corev1.PodStatus{Phase: corev1.PodRunning}
	kept := NewPod(pod("h1", "2"))
	assert.Equal(t, want, kept.Unpack())
	assert.Equal(t, "h1", kept.Home)
	assert.Equal(t, "n1", kept.Node)
	counted, takes := kept.Counted.List(), kept.Takes.List()
	assert.Equal(t, "2", counted.Cpu().String(), "a limit counts where there is no request")
	assert.Equal(t, "1", counted.Pods().String())
	assert.True(t, takes.Cpu().IsZero(), "kube-scheduler has seen no request")
}

func TestOfAPodOfOthersIsKeptWhatDecisionsRead(t *testing.T) {
	kept := NewPod(pod("", "2"))
	assert.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", ResourceVersion: "7"},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, kept.Unpack())
}

func TestEqualRequestsAreAddedUp(t *testing.T) {
	one, other := NewPod(pod("h1", "1500m")), NewPod(pod("h2", "2"))
	assert.Equal(t, one.Counted, NewPod(pod("h3", "1500m")).Counted)
	sum := Sum(map[Requests]int64{one.Counted: 3, other.Counted: 1, {}: 9})
	assert.Equal(t, "6500m", sum.Cpu().String())
	assert.Equal(t, "4", sum.Pods().String())
}

func TestWhatIsReadFromACacheMayBeChanged(t *testing.T) {
	shadow := &remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"a": "b"}}}
	shadow.Spec.Pod.Labels = map[string]string{"a": "b"}
	for name, kept := range map[string]any{
		"pod": NewPod(pod("h1", "1")), "pod of others": NewPod(pod("", "1")), "ShadowPod": NewShadow(shadow),
	} {
		change := func(labels *map[string]string) {
			assert.NotContains(t, *labels, "changed", name)
			if *labels == nil {
				*labels = map[string]string{}
			}
			(*labels)["changed"] = "yes"
		}
		for range 2 { // The second would show what was done to the first.
			switch object := controller.Unpacked(kept).(type) {
			case *corev1.Pod:
				change(&object.Labels)
				object.Spec.NodeName += "changed"
			case *remotev1alpha1.ShadowPod:
				change(&object.Labels)
				change(&object.Spec.Pod.Labels)
			}
		}
	}
}

func TestShadowPodsAreFoundByTheirHomeClusterAndWhileTheyWait(t *testing.T) {
	shadow := func(name, home, reason string, phase remotev1alpha1.ShadowPodPhase) *remotev1alpha1.ShadowPod {
		s := &remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		s.Spec.Home.Cluster, s.Status.Phase, s.Status.Reason = home, phase, reason
		return s
	}
	from := &Sources{Shadows: cache.NewSharedIndexInformer(&cache.ListWatch{}, &remotev1alpha1.ShadowPod{}, 0, cache.Indexers{})}
	require.NoError(t, from.index())
	store := from.Shadows.GetStore()
	for _, s := range []*remotev1alpha1.ShadowPod{
		shadow("new", "h1", "", ""), shadow("over", "h1", policy.ReasonOverOffer, remotev1alpha1.ShadowPodPending),
		shadow("made", "h1", "", remotev1alpha1.ShadowPodCreated), shadow("other", "h2", "", remotev1alpha1.ShadowPodCreated),
	} {
		require.NoError(t, store.Add(NewShadow(s)))
	}
	var of, waiting, over []string
	for s := range from.ShadowsOf("h1") {
		of = append(of, s.Key().Name)
		if s.OverOffer {
			over = append(over, s.Key().Name)
		}
	}
	for s := range from.WaitingIn("shop") {
		waiting = append(waiting, s.Key().Name)
	}
	assert.ElementsMatch(t, []string{"new", "over", "made"}, of)
	assert.ElementsMatch(t, []string{"new", "over"}, waiting)
	assert.Equal(t, []string{"over"}, over)

	require.NoError(t, store.Update(NewShadow(shadow("new", "h1", "", remotev1alpha1.ShadowPodCreated))))
	waiting = nil
	for s := range from.WaitingIn("shop") {
		waiting = append(waiting, s.Key().Name)
	}
	assert.Equal(t, []string{"over"}, waiting)
}

func TestOfANodeOnlyWhatAnOfferDependsOnCounts(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		change(n)
		return newNode(n)
	}
	was := node(func(*corev1.Node) {})
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"a heartbeat": {change: func(n *corev1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "2", metav1.Now()
		}, same: true},
		"an image":      {change: func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }, same: true},
		"a label":       {change: func(n *corev1.Node) { n.Labels["a"] = "c" }},
		"a taint":       {change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }},
		"a cordon":      {change: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"not ready":     {change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }},
		"a feature":     {change: func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"F"} }},
		"another size":  {change: func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1")} }},
		"being deleted": {change: func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }},
	} {
		assert.Equal(t, test.same, SameNode(was, node(test.change)), name)
	}
	assert.False(t, SameNode(nil, was))
	assert.False(t, SameNode(was, nil))
}
