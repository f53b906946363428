package daemonsets

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func everywhere(change ...func(*corev1.PodSpec)) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agents", UID: "u", ResourceVersion: "7"}}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, c := range change {
		c(&set.Spec.Template.Spec)
	}
	return set
}

func requires(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func selects(key, value string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{key: value} }
}

func tolerates(t corev1.Toleration) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.Tolerations = []corev1.Toleration{t} }
}

func TestWantsVirtualNodes(t *testing.T) {
	absent := func(key string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
	}
	arm := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{
		keys.VirtualNodeRole: "", keys.Cluster: "west", "type": "virtual-kubelet", corev1.LabelArchStable: "arm64"}}}
	for name, test := range map[string]struct {
		set     *appsv1.DaemonSet
		virtual []corev1.Node
		want    bool
	}{
		"one that tolerates every taint":      {set: everywhere(), virtual: []corev1.Node{arm}, want: true},
		"also before there is a virtual node": {set: everywhere(selects(corev1.LabelOSStable, "linux")), want: true},
		"one that tolerates the taint": {set: everywhere(tolerates(corev1.Toleration{Key: keys.RemoteTaint, Value: "west"})),
			want: true},
		"one that tolerates other taints":         {set: everywhere(tolerates(corev1.Toleration{Key: "gpu"}))},
		"one that tolerates other effects":        {set: everywhere(tolerates(corev1.Toleration{Effect: corev1.TaintEffectNoExecute}))},
		"one that is kept off":                    {set: everywhere(requires(term(requirement))), virtual: []corev1.Node{arm}},
		"one that is kept off in one alternative": {set: everywhere(requires(term(requirement), term(absent("gpu")))), want: true},
		"one that is kept off by the cluster":     {set: everywhere(requires(term(absent(keys.Cluster))))},
		"one whose node selector excludes them":   {set: everywhere(selects(corev1.LabelArchStable, "amd64")), virtual: []corev1.Node{arm}},
		"one for the nodes of the control plane":  {set: everywhere(selects("node-role.kubernetes.io/control-plane", ""))},
		"one that names its node":                 {set: everywhere(func(spec *corev1.PodSpec) { spec.NodeName = "home-1" })},
		"one whose affinity cannot be read": {
			set: everywhere(requires(term(corev1.NodeSelectorRequirement{Key: "a", Operator: "Like"})))},
		"one that the command, or the policy, kept": {set: everywhere(requires(term(absent("gpu"), requirement)))},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, WantsVirtualNodes(test.set, test.virtual)) })
	}
}

func TestWanting(t *testing.T) {
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "home-1"}}}
	sets := []appsv1.DaemonSet{*everywhere(), *everywhere(requires(term(requirement)))}
	assert.Empty(t, Wanting(sets, nodes), "there is no virtual node")
	nodes = append(nodes, example)
	assert.Equal(t, []string{"kube-system/agents"}, Wanting(sets, nodes))
	assert.Contains(t, Advice(Wanting(sets, nodes)), "pods of 1 DaemonSet wait")
}

func TestPatch(t *testing.T) {
	const (
		tests    = `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/resourceVersion","value":"7"}`
		affinity = `{"op":"add","path":"/spec/template/spec/affinity`
		inner    = affinity + `/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution`
		off      = `{"key":"node-role.kubernetes.io/lodestone","operator":"DoesNotExist"}`
		whole    = inner + `","value":{"nodeSelectorTerms":[{"matchExpressions":[` + off + `]}]}}]`
	)
	gpu := corev1.NodeSelectorRequirement{Key: "gpu", Operator: corev1.NodeSelectorOpExists}
	azure := corev1.NodeSelectorRequirement{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}}
	fields := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField}}}
	for name, test := range map[string]struct {
		set  *appsv1.DaemonSet
		want string
	}{
		"without affinity": {set: everywhere(), want: tests + `,` + affinity + `","value":{}},` + affinity + `/nodeAffinity","value":{}},` + whole},
		"without affinity to nodes": {set: everywhere(func(spec *corev1.PodSpec) { spec.Affinity = &corev1.Affinity{} }),
			want: tests + `,` + affinity + `/nodeAffinity","value":{}},` + whole},
		"without required affinity": {set: everywhere(func(spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}), want: tests + `,` + whole},
		"each alternative that lacks it, and none that is empty": {
			set: everywhere(requires(term(gpu), term(azure), term(), fields, term(gpu, requirement))),
			want: tests + `,` + inner + `/nodeSelectorTerms/0/matchExpressions/-","value":` + off + `},` +
				inner + `/nodeSelectorTerms/3/matchExpressions","value":[` + off + `]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := Patch(test.set)
			require.NoError(t, err)
			assert.Equal(t, test.want, string(patch))
		})
	}
}

func TestRestarts(t *testing.T) {
	set := everywhere()
	assert.Equal(t, "2 pods, each once its successor is ready", Restarts(set, 2))
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("10%"))}
	assert.Equal(t, "2 pods, 10% at a time", Restarts(set, 2))
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	assert.Equal(t, "none, until you delete its 2 pods", Restarts(set, 2))
}

func TestCount(t *testing.T) {
	set := everywhere()
	pod := func(owner, node string, change ...func(*corev1.PodSpec)) corev1.Pod {
		p := corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.OwnerReferences = []metav1.OwnerReference{{UID: set.UID, Controller: ptr.To(true)}}
		if owner != "" {
			p.OwnerReferences[0].UID = "another"
		}
		for _, c := range change {
			c(&p.Spec)
		}
		return p
	}
	named := func(node string) func(*corev1.PodSpec) {
		return requires(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}})
	}
	ending := pod("", "home-1")
	ending.DeletionTimestamp = ptr.To(metav1.Now())
	running, stuck := Count(set, []corev1.Pod{
		pod("", "home-1"), pod("", "west"), pod("", "", named("west")), pod("", "", named("home-2")), pod("other", "home-1"), ending,
	}, []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "west"}}})
	assert.Equal(t, []int{2, 2}, []int{running, stuck})
}
