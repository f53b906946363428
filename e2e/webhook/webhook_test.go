// Package webhook tests that the webhook does what the MutatingAdmissionPolicies do: the same objects are made in two clusters, of
// which one has all policies of deploy/, and the other has none but the webhook.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/deploy"
	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/webhook"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// policies is the cluster that has them, webhooks the one that has none.
var policies, webhooks *testbed.Cluster

// compared are the two; webhooks alone where API servers serve no policies, and policies is nil.
var compared []*testbed.Cluster

// answers is the webhook of webhooks.
var answers *fabric.Program

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "policies"}, testbed.Config{Name: "webhooks"})
		if err != nil {
			return err
		}
		policies, webhooks, compared = clusters[0], clusters[1], clusters
		if served, err := policies.ServesPolicies(); err != nil {
			return err
		} else if !served {
			policies, compared = nil, clusters[1:]
		}
		for _, cluster := range compared {
			if _, err := cluster.Kubectl(ctx, "", "apply", "-k", filepath.Join("manifests", cluster.Name())); err != nil {
				return fmt.Errorf("install Lodestone in %s: %w", cluster.Name(), err)
			}
		}
		answers, err = fabric.StartWebhook(ctx, webhooks)
		return err
	})
}

// Namespaces of both clusters, with their labels.
var spaces = map[string]map[string]string{
	"plain":     {},
	"offloaded": {keys.Offload: keys.OffloadEnabled},
	"scheduled": {"lodestone.dev/scheduler": "enabled"},
	"moving":    {keys.Moving: keys.MovingNow},
	"using-api": {keys.Offload: keys.OffloadEnabled, keys.HomeAPI: keys.HomeAPIEnabled},
}

const provisioner = "system:serviceaccount:lodestone-system:lodestone-provisioner"

type podCase struct {
	// policy is the one whose work a row shows; of one that does nothing, too.
	policy, namespace string
	pod               func(*corev1.Pod)
	// is says what must have become of the pod.
	is func(*corev1.Pod) bool
}

func uses(claims ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Volumes = fabric.NewPod("", "", claims...).Spec.Volumes }
}

func all(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, change := range changes {
			change(pod)
		}
	}
}

func ofADaemonSet(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1"}}
}

func onANode(pod *corev1.Pod) { pod.Spec.NodeName = "home-1" }

func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "lodestone.dev/remote" && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoSchedule
	})
}

func staysBound(pod *corev1.Pod) bool {
	return tolerates(pod) && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.TolerationSeconds != nil })
}

func isMarked(pod *corev1.Pod) bool {
	resources := pod.Spec.Containers[0].Resources
	requests, limits := resources.Requests["lodestone.dev/scheduling"], resources.Limits["lodestone.dev/scheduling"]
	return requests.Value() == 1 && limits.Value() == 1
}

func gates(n int) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		found := 0
		for _, gate := range pod.Spec.SchedulingGates {
			if gate.Name == keys.MovingGate {
				found++
			}
		}
		return found == n
	}
}

// hasAToken gives a pod the volume that the admission of ServiceAccounts gives to pods.
func hasAToken(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
}

func asksForAToken(audience string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Annotations[keys.Token] == audience }
}

func not(is func(*corev1.Pod) bool) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return !is(pod) }
}

var podCases = map[string]podCase{
	"a pod gets the toleration":         {"lodestone-virtual-nodes", "offloaded", nil, tolerates},
	"one with claims stays bound":       {"lodestone-virtual-nodes", "offloaded", uses("data"), staysBound},
	"one of another namespace does not": {"lodestone-virtual-nodes", "plain", uses("data"), not(tolerates)},
	"one of a DaemonSet does not":       {"lodestone-virtual-nodes", "offloaded", ofADaemonSet, not(tolerates)},
	"one on a node does not":            {"lodestone-virtual-nodes", "offloaded", onANode, not(tolerates)},
	"one that tolerates all stays": {"lodestone-virtual-nodes", "offloaded", func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}, func(pod *corev1.Pod) bool { return len(pod.Spec.Tolerations) == 1 }},
	"a time of its own stays": {"lodestone-virtual-nodes", "offloaded", all(uses("data"), func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(7))}}
	}), func(pod *corev1.Pod) bool { return *pod.Spec.Tolerations[0].TolerationSeconds == 7 && tolerates(pod) }},

	"a pod that has a token gets one there":   {"lodestone-home-api", "using-api", hasAToken, asksForAToken(keys.HomeAudience)},
	"one that has none does not":              {"lodestone-home-api", "using-api", nil, asksForAToken("")},
	"one of a namespace that is not labelled": {"lodestone-home-api", "offloaded", hasAToken, asksForAToken("")},
	"one that asks for another keeps that": {"lodestone-home-api", "using-api", all(hasAToken, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{keys.Token: "vault"}
	}), asksForAToken("vault")},

	"a pod with claims is marked": {"lodestone-marker", "plain", uses("data"), isMarked},
	"one without is not":          {"lodestone-marker", "plain", nil, not(isMarked)},
	"one near something is": {"lodestone-marker", "plain", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"lodestone.dev/near": "data"}
	}, isMarked},
	"one of an open namespace is": {"lodestone-marker", "offloaded", nil, isMarked},
	"one of another scheduler not": {"lodestone-marker", "plain", all(uses("data"), func(pod *corev1.Pod) {
		pod.Spec.SchedulerName = "other"
	}), not(isMarked)},
	"one of the system is not": {"lodestone-marker", metav1.NamespaceSystem, uses("data"), not(isMarked)},
	"what else is requested stays": {"lodestone-marker", "plain", all(uses("data"), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}), func(pod *corev1.Pod) bool {
		return isMarked(pod) && len(pod.Spec.Containers[0].Resources.Requests) == 2
	}},

	"a pod goes to the second scheduler": {"lodestone-scheduler", "scheduled", nil,
		func(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == "lodestone-scheduler" }},
	"one that names its own does not": {"lodestone-scheduler", "scheduled", func(pod *corev1.Pod) { pod.Spec.SchedulerName = "other" },
		func(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == "other" }},
	"nor one of an agent of nodes": {"lodestone-scheduler", "scheduled", ofADaemonSet,
		func(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == corev1.DefaultSchedulerName }},

	"a pod waits for a claim that is moved": {"lodestone-move-gate", "moving", uses("locked"), gates(1)},
	"one with two such claims waits once":   {"lodestone-move-gate", "moving", uses("locked", "locked-too"), gates(1)},
	"one with another claim does not":       {"lodestone-move-gate", "moving", uses("free"), gates(0)},
	"one without claims does not":           {"lodestone-move-gate", "moving", nil, gates(0)},
	"a gate of its own stays beside the one": {"lodestone-move-gate", "moving", all(uses("free", "locked"), func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/own"}}
	}), func(pod *corev1.Pod) bool { return gates(1)(pod) && len(pod.Spec.SchedulingGates) == 2 }},
}

func TestPodsBecomeTheSame(t *testing.T) {
	prepare(t)
	for name, row := range podCases {
		t.Run(row.policy+"/"+name, func(t *testing.T) {
			pod := fabric.NewPod(row.namespace, "")
			pod.GenerateName, pod.Spec.AutomountServiceAccountToken = "case-", ptr.To(false)
			if row.pod != nil {
				row.pod(pod)
			}
			for i := range pod.Spec.Volumes {
				pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
					corev1.VolumeMount{Name: pod.Spec.Volumes[i].Name, MountPath: "/" + pod.Spec.Volumes[i].Name})
			}
			same(t, func(client kubernetes.Interface) (*corev1.Pod, error) {
				return client.CoreV1().Pods(row.namespace).Create(t.Context(), pod, dryRun)
			}, row.is)
		})
	}
}

func TestClaimsBecomeTheSame(t *testing.T) {
	prepare(t)
	restored := func() *corev1.PersistentVolumeClaim {
		claim := fabric.NewClaim("plain", "restored", fabric.Class)
		claim.Labels = map[string]string{keys.Moving: keys.MovingNow, "app": "db"}
		claim.Annotations = map[string]string{keys.Move: "1", keys.MoveTouched: "true", keys.Unlock: "true", keys.Newer: "x", "note": "a"}
		claim.Finalizers = []string{keys.MoveFinalizer, "example.com/own"}
		return claim
	}
	clean := func(claim *corev1.PersistentVolumeClaim) bool {
		return len(claim.Labels) == 1 && len(claim.Annotations) == 1 && !slices.Contains(claim.Finalizers, keys.MoveFinalizer) &&
			slices.Contains(claim.Finalizers, "example.com/own")
	}
	create := func(claim *corev1.PersistentVolumeClaim) func(kubernetes.Interface) (*corev1.PersistentVolumeClaim, error) {
		return func(client kubernetes.Interface) (*corev1.PersistentVolumeClaim, error) {
			return client.CoreV1().PersistentVolumeClaims("plain").Create(t.Context(), claim, dryRun)
		}
	}
	same(t, create(restored()), clean)
	same(t, create(fabric.NewClaim("plain", "new", fabric.Class)), func(claim *corev1.PersistentVolumeClaim) bool {
		return len(claim.Labels) == 0
	})
	// The provisioner's own are its own.
	for _, cluster := range compared {
		config := cluster.AdminConfig()
		config.Impersonate.UserName, config.Impersonate.Groups = provisioner, []string{"system:masters"}
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		made, err := create(restored())(client)
		require.NoError(t, err)
		assert.Equal(t, "1", made.Annotations[keys.Move])
	}
}

func TestDaemonSetsBecomeTheSame(t *testing.T) {
	prepare(t)
	agents := func(change ...func(*corev1.PodSpec)) *appsv1.DaemonSet {
		labels := map[string]string{"app": "agents"}
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: "agents"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: fabric.NewPod("", "").Spec},
		}}
		for _, c := range change {
			c(&set.Spec.Template.Spec)
		}
		return set
	}
	everywhere := func(pod *corev1.PodSpec) {
		pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	terms := func(of ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) {
			pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: of}}}
		}
	}
	linux := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}}
	named := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	keepsOff := func(n int) func(*appsv1.DaemonSet) bool {
		return func(set *appsv1.DaemonSet) bool {
			found := 0
			if a := set.Spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
				for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					for _, requirement := range term.MatchExpressions {
						if requirement.Key == "node-role.kubernetes.io/lodestone" {
							found++
						}
					}
				}
			}
			return found == n
		}
	}
	for name, row := range map[string]struct {
		set *appsv1.DaemonSet
		is  func(*appsv1.DaemonSet) bool
	}{
		"one that runs everywhere":   {agents(everywhere), keepsOff(1)},
		"one that says where":        {agents(everywhere, terms(linux, named)), keepsOff(2)},
		"one that tolerates nothing": {agents(), keepsOff(0)},
	} {
		t.Run(name, func(t *testing.T) {
			same(t, func(client kubernetes.Interface) (*appsv1.DaemonSet, error) {
				return client.AppsV1().DaemonSets("plain").Create(t.Context(), row.set, dryRun)
			}, row.is)
		})
	}
	for _, cluster := range compared {
		must.Create(t, cluster.Client().AppsV1().DaemonSets("plain"), agents())
	}
	t.Run("one that is changed", func(t *testing.T) {
		same(t, func(client kubernetes.Interface) (*appsv1.DaemonSet, error) {
			return client.AppsV1().DaemonSets("plain").Update(t.Context(), agents(everywhere), metav1.UpdateOptions{DryRun: dryRun.DryRun})
		}, keepsOff(1))
	})
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// same has both clusters make an object, waits until each makes what is wanted, for API servers learn late of policies, namespaces and
// webhooks, and compares the two.
func same[T metav1.Object](t *testing.T, made func(kubernetes.Interface) (T, error), is func(T) bool) {
	t.Helper()
	var all []map[string]any
	for _, cluster := range compared {
		var object T
		var err error
		await.Until(t, "cluster "+cluster.Name()+" makes what is wanted", func() bool {
			object, err = made(cluster.Client())
			return err == nil && is(object)
		}, func() any { return err }, func() any { return what(t, object) })
		all = append(all, what(t, object))
	}
	for _, other := range all[1:] {
		assert.Equal(t, all[0], other)
	}
}

// what is what policies can have changed of an object.
func what(t *testing.T, object metav1.Object) map[string]any {
	t.Helper()
	content, err := json.Marshal(object)
	require.NoError(t, err)
	var plain map[string]any
	require.NoError(t, json.Unmarshal(content, &plain))
	return map[string]any{"labels": object.GetLabels(), "annotations": object.GetAnnotations(), "finalizers": object.GetFinalizers(),
		"spec": plain["spec"]}
}

// prepare makes the namespaces, and the claims that moves have locked, once.
func prepare(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	for _, cluster := range compared {
		core := cluster.Client().CoreV1()
		for name, labels := range spaces {
			if _, err := core.Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err == nil {
				continue
			}
			require.NoError(t, cluster.MakeNamespace(t.Context(), name))
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
			require.NoError(t, err)
			must.Patch(t, core.Namespaces(), name, types.MergePatchType, patch)
		}
		for _, name := range []string{"locked", "locked-too", "free"} {
			claim := fabric.NewClaim("moving", name, fabric.Class)
			_, err := core.PersistentVolumeClaims("moving").Create(t.Context(), claim, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			require.NoError(t, err)
			if name == "free" {
				continue
			}
			// A claim that is made with the label loses it.
			must.Patch(t, core.PersistentVolumeClaims("moving"), name, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"lodestone.dev/moving":"true"}}}`))
		}
	}
}

var aPolicy = regexp.MustCompile(`(?m)^kind: MutatingAdmissionPolicy$`)

func TestEachPolicyIsServedAndTested(t *testing.T) {
	read, err := webhook.Read(deploy.Files)
	require.NoError(t, err)
	inTree := 0
	require.NoError(t, fs.WalkDir(os.DirFS(filepath.Join(fabric.Root(), "deploy")), ".", func(path string, _ fs.DirEntry, err error) error {
		if path == "examples" {
			return fs.SkipDir // what users may apply; the program is for home
		}
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(filepath.Join(fabric.Root(), "deploy", path))
		inTree += len(aPolicy.FindAll(content, -1))
		return err
	}))
	assert.Len(t, read, inTree, "each policy of deploy/ is in the program")
	tested := []string{"lodestone-daemonsets", "lodestone-move-marks"}
	for _, row := range podCases {
		tested = append(tested, row.policy)
	}
	role, err := os.ReadFile(filepath.Join(fabric.Root(), "deploy", "components", "webhook", "workload", "certificates.yaml"))
	require.NoError(t, err)
	for _, policy := range read {
		assert.Contains(t, tested, policy.Name)
		assert.Contains(t, string(role), "  - "+policy.Name+"\n", "the Job may give API servers its authority")
	}
}

func TestTheTwoClustersDiffer(t *testing.T) {
	testbed.Require(t)
	read, err := webhook.Read(deploy.Files)
	require.NoError(t, err)
	registration := webhooks.Client().AdmissionregistrationV1()
	for _, policy := range read {
		_, err := registration.MutatingWebhookConfigurations().Get(t.Context(), policy.Name, metav1.GetOptions{})
		assert.NoError(t, err)
		if policies == nil {
			continue
		}
		_, err = registration.MutatingAdmissionPolicies().Get(t.Context(), policy.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "webhooks has policy %s: %v", policy.Name, err)
		_, err = policies.Client().AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), policy.Name, metav1.GetOptions{})
		assert.NoError(t, err)
	}
}

func TestTheProvisionerLabelsNamespacesAndDoesNothingElseToThem(t *testing.T) {
	prepare(t)
	config, err := webhooks.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	patch := func(client kubernetes.Interface, namespace, content string) error {
		_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(content),
			metav1.PatchOptions{DryRun: dryRun.DryRun})
		return err
	}
	assert.NoError(t, patch(client, "plain", `{"metadata":{"labels":{"lodestone.dev/moving":"true"}}}`))
	assert.NoError(t, patch(client, "moving", `{"metadata":{"labels":{"lodestone.dev/moving":null}}}`))
	for _, other := range []string{
		`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`,
		`{"metadata":{"labels":{"team":"other","lodestone.dev/moving":"true"}}}`,
		`{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"finalizers":["example.com/own"]}}`,
	} {
		assert.ErrorContains(t, patch(client, "plain", other), "the provisioner changes nothing of a namespace but its label", other)
	}
	assert.ErrorContains(t, patch(webhooks.Client(), "moving", `{"metadata":{"labels":{"lodestone.dev/moving":null}}}`),
		"is the provisioner's while a volume is moved there")
	assert.NoError(t, patch(webhooks.Client(), "moving", `{"metadata":{"labels":{"team":"a"}}}`))
}

// TestAWebhookThatDoesNotAnswer is the last one: it ends the webhook.
func TestAWebhookThatDoesNotAnswer(t *testing.T) {
	prepare(t)
	require.NoError(t, answers.Stop())
	create := func(namespace string, claims ...string) error {
		pod := fabric.NewPod(namespace, "", claims...)
		pod.GenerateName = "case-"
		_, err := webhooks.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		return err
	}
	for _, namespace := range []string{"plain", "offloaded", "scheduled", metav1.NamespaceSystem, fabric.Storage} {
		assert.NoError(t, create(namespace, "data"), "nothing stops a pod of namespace %s", namespace)
	}
	assert.NoError(t, create("moving"), "nor one without claims where a volume is moved")
	assert.ErrorContains(t, create("moving", "locked"), `failed calling webhook "lodestone-move-gate.lodestone.dev"`,
		"but one that may use that volume")
	claim := fabric.NewClaim("plain", "new", fabric.Class)
	_, err := webhooks.Client().CoreV1().PersistentVolumeClaims("plain").Create(t.Context(), claim, dryRun)
	assert.NoError(t, err)
}
