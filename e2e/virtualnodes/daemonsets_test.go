package virtualnodes

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// off is the requirement that keeps pods off virtual nodes.
var off = corev1.NodeSelectorRequirement{Key: keys.VirtualNodeRole, Operator: corev1.NodeSelectorOpDoesNotExist}

func made(t *testing.T, set *appsv1.DaemonSet) *appsv1.DaemonSet {
	t.Helper()
	return must.Create(t, bed.Home.Client().AppsV1().DaemonSets(set.Namespace), set)
}

func setNow(t *testing.T, namespace, name string) *appsv1.DaemonSet {
	t.Helper()
	return must.Get(t, bed.Home.Client().AppsV1().DaemonSets(namespace), name)
}

func patched(t *testing.T, namespace, name, patch string) {
	t.Helper()
	must.Patch(t, bed.Home.Client().AppsV1().DaemonSets(namespace), name, types.StrategicMergePatchType, []byte(patch))
}

// podsByNode returns the pods of a DaemonSet by the node that each is bound to, except those that end.
func podsByNode(t *testing.T, namespace, name string) map[string]types.UID {
	t.Helper()
	list := must.List(t, bed.Home.Client().CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "app=" + name})
	pods := map[string]types.UID{}
	for _, pod := range list.Items {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			pods[pod.Spec.NodeName] = pod.UID
		}
	}
	return pods
}

// spreads waits until a DaemonSet has a pod on each of home's own nodes, and says whether it has one
// on west's.
func spreads(t *testing.T, namespace, name string, onVirtual bool) map[string]types.UID {
	t.Helper()
	var pods map[string]types.UID
	await.Until(t, "DaemonSet "+name+" has its pods", func() bool {
		pods = podsByNode(t, namespace, name)
		status := setNow(t, namespace, name).Status
		_, there := pods[fabric.WestNode]
		return pods["home-1"] != "" && pods["home-2"] != "" && there == onVirtual && status.NumberReady == 2
	}, func() any { return setNow(t, namespace, name).Status })
	return pods
}

// complete waits as a user would for the rollout, which needs a pod wherever the DaemonSet wants one.
func complete(t *testing.T, namespace, name string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "rollout", "status", "daemonset/"+name, "-n", namespace, "--timeout=60s")
	set := setNow(t, namespace, name)
	assert.EqualValues(t, 2, set.Status.DesiredNumberScheduled, "one for each node of home")
	assert.NotContains(t, podsByNode(t, namespace, name), fabric.WestNode)
}

func terms(set *appsv1.DaemonSet) []corev1.NodeSelectorTerm {
	affinity := set.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func requires(alternatives ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: alternatives}}}
}

func expressions(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: all}
}

// plugin runs kubectl lodestone daemonsets on the DaemonSets of a namespace.
func plugin(t *testing.T, namespace, stdin string, args ...string) (code int, out string) {
	t.Helper()
	var output bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &output, ErrOut: &output}
	code = cmd.Run(t.Context(), streams, append([]string{"daemonsets", "--kubeconfig", bed.Home.Kubeconfig(), "-n", namespace}, args...)...)
	return code, output.String()
}

func TestADaemonSetThatToleratesEverythingIsComplete(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), true))
	made(t, fabric.NewDaemonSet(namespace, "agents"))
	complete(t, namespace, "agents")
}

func TestInstallingRestartsNoDaemonSet(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	t.Cleanup(func() { require.NoError(t, bed.WithDaemonSetPolicy(context.Background(), true)) })
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), false))
	old := fabric.NewDaemonSet(namespace, "agents")
	manifest, err := json.Marshal(old)
	require.NoError(t, err)
	apply := func(args ...string) {
		must.Kubectl(t, bed.Home, string(manifest), append([]string{"apply", "-f", "-"}, args...)...)
	}
	apply()
	before := spreads(t, namespace, "agents", true)
	generation := setNow(t, namespace, "agents").Generation

	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), true))
	// What happens to a DaemonSet all the time is no change of its template.
	apply()
	apply("--server-side", "--force-conflicts", "--field-manager=gitops")
	patched(t, namespace, "agents", `{"metadata":{"labels":{"team":"logs"}}}`)
	must.Kubectl(t, bed.Home, "", "annotate", "daemonset", "agents", "-n", namespace, "note=seen")
	unchanged := func() bool {
		set := setNow(t, namespace, "agents")
		return set.Generation == generation && terms(set) == nil && assert.ObjectsAreEqual(before, podsByNode(t, namespace, "agents"))
	}
	await.Always(t, "nothing restarts", unchanged)

	t.Run("the command tells what restarts, and asks", func(t *testing.T) {
		code, out := plugin(t, namespace, "\n")
		assert.Equal(t, 3, code, out)
		assert.Regexp(t, namespace+`/agents +[1-9] +2 pods, 1 at a time`, out)
		assert.True(t, unchanged(), "nobody said yes")
		code, out = plugin(t, namespace, "", "default/agents")
		assert.Equal(t, 1, code, out)
		code, out = plugin(t, namespace, "", "agents")
		assert.Equal(t, 3, code, out, "a name alone is one of the namespace that kubectl looks in")
	})
	t.Run("and then the rollout is complete", func(t *testing.T) {
		code, out := plugin(t, namespace, "restart\n", namespace+"/agents")
		assert.Equal(t, 0, code, out)
		complete(t, namespace, "agents")
		assert.Equal(t, []corev1.NodeSelectorTerm{expressions(off)}, terms(setNow(t, namespace, "agents")))
		code, out = plugin(t, namespace, "")
		assert.Equal(t, 0, code, out)
		assert.Contains(t, out, "nothing to do")
	})
	t.Run("and what applied it before leaves that alone", func(t *testing.T) {
		generation := setNow(t, namespace, "agents").Generation
		apply()
		apply("--server-side", "--force-conflicts", "--field-manager=gitops")
		assert.Equal(t, generation, setNow(t, namespace, "agents").Generation)
	})
}

func TestAChangeOfTheTemplateKeepsADaemonSetOffVirtualNodes(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	t.Cleanup(func() { require.NoError(t, bed.WithDaemonSetPolicy(context.Background(), true)) })
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), false))
	made(t, fabric.NewDaemonSet(namespace, "agents"))
	spreads(t, namespace, "agents", true)
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), true))
	must.Kubectl(t, bed.Home, "", "rollout", "restart", "daemonset/agents", "-n", namespace)
	complete(t, namespace, "agents")
}

// A GitOps tool has terms of its own, which are one list that it sets as a whole.
func TestWhatGitOpsAppliesAgainRestartsNothing(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), true))
	for name, args := range map[string][]string{
		"client-side": nil,
		"server-side": {"--server-side", "--force-conflicts", "--field-manager=gitops"},
	} {
		t.Run(name, func(t *testing.T) {
			linux := corev1.NodeSelectorRequirement{Key: "fleet", Operator: corev1.NodeSelectorOpDoesNotExist}
			set := fabric.NewDaemonSet(namespace, name)
			set.Spec.Template.Spec.Affinity = requires(expressions(linux))
			manifest, err := json.Marshal(set)
			require.NoError(t, err)
			for range 3 {
				must.Kubectl(t, bed.Home, string(manifest), append([]string{"apply", "-f", "-"}, args...)...)
				now := setNow(t, namespace, name)
				assert.EqualValues(t, 1, now.Generation)
				assert.Equal(t, []corev1.NodeSelectorTerm{expressions(linux, off)}, terms(now))
			}
		})
	}
}

// TestPatch has the same of the command.
func TestWhatDaemonSetsAreGiven(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), true))
	gpu := corev1.NodeSelectorRequirement{Key: "gpu", Operator: corev1.NodeSelectorOpExists}
	disk := corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}
	away := corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	azure := corev1.NodeSelectorRequirement{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}}
	named := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"home-1"}}}}
	namedOff := *named.DeepCopy()
	namedOff.MatchExpressions = []corev1.NodeSelectorRequirement{off}
	prefers := corev1.PreferredSchedulingTerm{Weight: 1, Preference: expressions(gpu)}

	for name, test := range map[string]struct {
		tolerations []corev1.Toleration // every taint by default
		affinity    *corev1.Affinity
		want        *corev1.Affinity
	}{
		"a template without affinity": {want: requires(expressions(off))},
		"one with an empty affinity":  {affinity: &corev1.Affinity{}, want: requires(expressions(off))},
		"one that only keeps away from pods": {affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
			want: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}, NodeAffinity: requires(expressions(off)).NodeAffinity}},
		"one that only prefers nodes": {
			affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{prefers}}},
			want: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{prefers},
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{expressions(off)}}}}},
		"each alternative": {affinity: requires(expressions(gpu), expressions(disk, gpu)),
			want: requires(expressions(gpu, off), expressions(disk, gpu, off))},
		"an alternative that names its node": {affinity: requires(named, expressions(gpu)), want: requires(namedOff, expressions(gpu, off))},
		"an alternative that selects nothing": {affinity: requires(expressions(), expressions(gpu)),
			want: requires(expressions(), expressions(gpu, off))},
		"one that has it":               {affinity: requires(expressions(off)), want: requires(expressions(off))},
		"one that says it otherwise":    {affinity: requires(expressions(away)), want: requires(expressions(away))},
		"one for no virtual kubelet":    {affinity: requires(expressions(azure, gpu)), want: requires(expressions(azure, gpu))},
		"one that tolerates few taints": {tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}},
		"one that tolerates another effect": {tolerations: []corev1.Toleration{
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}},
		"one that tolerates the taint": {tolerations: []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpEqual,
			Value: "west", Effect: corev1.TaintEffectNoSchedule}}, want: requires(expressions(off))},
	} {
		t.Run(name, func(t *testing.T) {
			set := fabric.NewDaemonSet(namespace, "agents")
			set.Spec.Template.Spec.Affinity = test.affinity
			if test.tolerations != nil {
				set.Spec.Template.Spec.Tolerations = test.tolerations
			}
			given, err := bed.Home.Client().AppsV1().DaemonSets(namespace).Create(t.Context(), set,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			require.NoError(t, err)
			assert.Equal(t, test.want, given.Spec.Template.Spec.Affinity)
			assert.False(t, daemonsets.WantsVirtualNodes(given, []corev1.Node{*nodeNow(t, fabric.WestNode)}))
		})
	}
}
