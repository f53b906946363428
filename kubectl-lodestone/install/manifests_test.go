package install

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// find returns an object of what is built.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) map[string]any {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o.Object
		}
	}
	require.Fail(t, "there is no "+kind+" "+name)
	return nil
}

func container(t *testing.T, objects []*unstructured.Unstructured, deployment, name string) (container, pod map[string]any) {
	t.Helper()
	pod, _, err := unstructured.NestedMap(find(t, objects, "Deployment", deployment), "spec", "template", "spec")
	require.NoError(t, err)
	for _, c := range pod["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == name {
			return c, pod
		}
	}
	require.Fail(t, deployment+" has no container "+name)
	return nil, nil
}

func TestManifestsHaveWhatIsChosen(t *testing.T) {
	objects, err := Build(Values{
		Registry: "registry.example.com:5000/l", Tag: "v0.2.0", PullSecret: "pull", NodeSelector: map[string]string{"pool": "system"},
		Replicas: ptr.To(int32(3)), Scheduler: Extender, Certificates: ByJob, VirtualNodes: ptr.To(true),
		Resources: map[string]corev1.ResourceRequirements{"provisioner": {Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")}}},
	}, false)
	require.NoError(t, err)
	assert.Equal(t, "Namespace", objects[0].GetKind(), "what others are in comes first")
	for _, program := range []string{"provisioner", "extender", "virtualnode"} {
		c, pod := container(t, objects, "lodestone-"+program, program)
		assert.Equal(t, "registry.example.com:5000/l/lodestone-"+program+":v0.2.0", c["image"])
		assert.Equal(t, []any{map[string]any{"name": "pull"}}, pod["imagePullSecrets"], program)
		assert.Equal(t, map[string]any{"pool": "system"}, pod["nodeSelector"], program)
		replicas, _, err := unstructured.NestedInt64(find(t, objects, "Deployment", "lodestone-"+program), "spec", "replicas")
		require.NoError(t, err)
		assert.EqualValues(t, 3, replicas)
	}
	c, _ := container(t, objects, "lodestone-provisioner", "provisioner")
	assert.Equal(t, map[string]any{"limits": map[string]any{"memory": "2Gi"}, "requests": map[string]any{"cpu": "50m", "memory": "128Mi"}},
		c["resources"], "what is not given stays")
	assert.Contains(t, c["env"], map[string]any{"name": "MOVER_IMAGE", "value": "registry.example.com:5000/l/lodestone-mover:v0.2.0"})
	job, _, err := unstructured.NestedMap(find(t, objects, "Job", "lodestone-certificates"), "spec", "template", "spec")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"pool": "system"}, job["nodeSelector"])
	assert.Equal(t, []any{map[string]any{"name": "pull"}}, job["imagePullSecrets"])
	cron, _, err := unstructured.NestedMap(find(t, objects, "CronJob", "lodestone-certificates"),
		"spec", "jobTemplate", "spec", "template", "spec")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"pool": "system"}, cron["nodeSelector"])
}

func TestASecondSchedulerIsOfTheVersionOfTheCluster(t *testing.T) {
	objects, err := Build(Values{Registry: "r.example.com", Tag: "v0.2.0", Scheduler: Second, KubeScheduler: "v1.37.1",
		VirtualNodes: ptr.To(false), Monitoring: ptr.To(true),
		Resources: map[string]corev1.ResourceRequirements{"extender": {Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")}}}}, false)
	require.NoError(t, err)
	c, _ := container(t, objects, "lodestone-scheduler", "kube-scheduler")
	assert.Equal(t, "registry.k8s.io/kube-scheduler:v1.37.1", c["image"])
	c, _ = container(t, objects, "lodestone-scheduler", "extender")
	assert.Equal(t, "r.example.com/lodestone-extender:v0.2.0", c["image"])
	assert.Equal(t, "2Gi", c["resources"].(map[string]any)["limits"].(map[string]any)["memory"])
	find(t, objects, "PrometheusRule", "lodestone")
	for _, o := range objects {
		assert.NotContains(t, o.GetName(), "virtualnode")
		assert.NotEqual(t, "Job", o.GetKind(), "the extender of the same pod is asked without certificates")
	}
}

func TestOpenShiftGetsItsConstraints(t *testing.T) {
	for _, remote := range []bool{false, true} {
		v := Values{Registry: "r.example.com", Tag: "v0.2.0"}
		if !remote {
			v.Scheduler, v.Certificates, v.Admission = Extender, ByJob, Policies
		}
		isThere := func() bool {
			objects, err := Build(v, remote)
			require.NoError(t, err)
			return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "SecurityContextConstraints" })
		}
		assert.False(t, isThere())
		v.OpenShift = ptr.To(true)
		assert.True(t, isThere())
	}
}

func TestAWebhookTakesThePlaceOfThePolicies(t *testing.T) {
	objects, err := Build(Values{Registry: "r.example.com", Tag: "v0.2.0", Scheduler: Second, KubeScheduler: "v1.34.4",
		Certificates: ByCertManager, Admission: Webhook, VirtualNodes: ptr.To(true)}, false)
	require.NoError(t, err)
	for _, name := range []string{"lodestone-daemonsets", "lodestone-home-api", "lodestone-move-gate", "lodestone-move-marks",
		"lodestone-scheduler", "lodestone-virtual-nodes"} {
		made := unstructured.Unstructured{Object: find(t, objects, "MutatingWebhookConfiguration", name)}
		assert.Equal(t, "lodestone-system/lodestone-extender-server", made.GetAnnotations()["cert-manager.io/inject-ca-from"], name)
	}
	for _, o := range objects {
		assert.NotContains(t, o.GetKind(), "MutatingAdmissionPolicy", o.GetName())
		assert.NotEqual(t, "lodestone-marker", o.GetName(), "what is not installed does not become a webhook")
	}
	c, _ := container(t, objects, "lodestone-webhook", "webhook")
	assert.Equal(t, "r.example.com/lodestone-extender:v0.2.0", c["image"])
	c, _ = container(t, objects, "lodestone-provisioner", "provisioner")
	assert.Contains(t, c["args"], "--label-moving-namespaces")

	objects, err = Build(Values{Registry: "r.example.com", Tag: "v0.2.0", Scheduler: Extender, Certificates: ByJob,
		Admission: Webhook}, false)
	require.NoError(t, err)
	job, _, err := unstructured.NestedSlice(find(t, objects, "Job", "lodestone-certificates"), "spec", "template", "spec", "containers")
	require.NoError(t, err)
	assert.Contains(t, job[0].(map[string]any)["args"], "--webhook-service=lodestone-webhook")
}

func TestARemoteClusterGetsTheAgentAlone(t *testing.T) {
	objects, err := Build(Values{Registry: "r.example.com", Tag: "v0.2.0",
		Resources: map[string]corev1.ResourceRequirements{"remote-agent": {
			Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")}}}}, true)
	require.NoError(t, err)
	c, _ := container(t, objects, "lodestone-remote-agent", "agent")
	assert.Equal(t, "r.example.com/lodestone-remote-agent:v0.2.0", c["image"])
	assert.Equal(t, "2Gi", c["resources"].(map[string]any)["limits"].(map[string]any)["memory"])
	for _, o := range objects {
		assert.NotEqual(t, "lodestone-system", o.GetNamespace())
	}
}

func namesOfKind(objects []*unstructured.Unstructured, kind string) (all []string) {
	for _, o := range objects {
		if o.GetKind() == kind {
			all = append(all, o.GetName())
		}
	}
	return all
}

func TestOptionalComponentsAreThereWhereTheyAreWanted(t *testing.T) {
	build := func(v Values, remote bool) []*unstructured.Unstructured {
		v.Registry, v.Tag, v.PullSecret, v.NodeSelector = "r.example.com", "v0.2.0", "pull", map[string]string{"pool": "system"}
		if !remote {
			v.Scheduler, v.Certificates, v.Admission, v.VirtualNodes = Extender, ByJob, Policies, ptr.To(true)
		}
		objects, err := Build(v, remote)
		require.NoError(t, err)
		return objects
	}
	argumentsOf := func(objects []*unstructured.Unstructured, deployment, name string) any {
		c, _ := container(t, objects, deployment, name)
		return c["args"]
	}
	rules := func(objects []*unstructured.Unstructured, role string) string {
		return fmt.Sprint(find(t, objects, "ClusterRole", role)["rules"])
	}
	for _, remote := range []bool{false, true} {
		none := build(Values{}, remote)
		assert.Equal(t, none, build(Values{Network: ptr.To(false), Services: ptr.To(false), ClusterProfiles: ptr.To(false)}, remote))
		assert.NotContains(t, fmt.Sprint(none), "lodestone-network/lodestone-network")

		network := build(Values{Network: ptr.To(true), Resources: map[string]corev1.ResourceRequirements{
			"network": {Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")}}}}, remote)
		pod, _, err := unstructured.NestedMap(find(t, network, "DaemonSet", "lodestone-network"), "spec", "template", "spec")
		require.NoError(t, err)
		program := pod["containers"].([]any)[0].(map[string]any)
		assert.Equal(t, "r.example.com/lodestone-network:v0.2.0", program["image"])
		assert.Equal(t, "2Gi", program["resources"].(map[string]any)["limits"].(map[string]any)["memory"])
		assert.Equal(t, remote, slices.Contains(program["args"].([]any), any("--tenants")))
		assert.Equal(t, []any{map[string]any{"name": "pull"}}, pod["imagePullSecrets"])
		assert.Nil(t, pod["nodeSelector"], "it is to be on each node")
		_, probe := container(t, network, "lodestone-network-probe", "probe")
		assert.Equal(t, map[string]any{"pool": "system"}, probe["nodeSelector"])
		assert.Contains(t, namesOfKind(network, "CustomResourceDefinition"), "networklinks.network.lodestone.dev")
	}

	services := build(Values{Services: ptr.To(true)}, false)
	assert.Contains(t, argumentsOf(services, "lodestone-virtualnode", "virtualnode"), "--multi-cluster-services")
	assert.Contains(t, namesOfKind(services, "ValidatingAdmissionPolicy"), "lodestone-virtualnode-services")
	assert.NotContains(t, rules(build(Values{}, true), "lodestone-home"), "serviceimports")
	assert.Contains(t, rules(build(Values{Services: ptr.To(true)}, true), "lodestone-home"), "serviceimports")

	profiles := build(Values{ClusterProfiles: ptr.To(true)}, false)
	assert.Contains(t, argumentsOf(profiles, "lodestone-provisioner", "provisioner"), "--cluster-profiles-namespace="+inventoryNamespace)
	assert.Contains(t, namesOfKind(profiles, "Namespace"), inventoryNamespace)
	assert.Equal(t, build(Values{}, true), build(Values{ClusterProfiles: ptr.To(true)}, true), "an agent shows no clusters")
}

func TestEachProgramThatCanHaveResourcesIsThere(t *testing.T) {
	for _, program := range names {
		scheduler := Extender
		if program == "scheduler" {
			scheduler = Second
		}
		v := Values{Registry: "r.example.com", Tag: "v0.2.0", Scheduler: scheduler, Admission: Webhook,
			VirtualNodes: ptr.To(true), Network: ptr.To(true)}
		kind, workload, name := v.containerOf(program)
		objects, err := Build(v, program == "remote-agent")
		require.NoError(t, err)
		containers, _, err := unstructured.NestedSlice(find(t, objects, kind, workload), "spec", "template", "spec", "containers")
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(containers, func(c any) bool { return c.(map[string]any)["name"] == name }), program)
		of, ok := ProgramOf(kind, workload, name)
		assert.True(t, ok)
		assert.Equal(t, program, of)
	}
}

// schedulerManifest is that of a control-plane node. The test of installations on control planes has the same.
//
//go:embed testdata/kube-scheduler.yaml
var schedulerManifest string

func TestTheManifestOfKubeSchedulerIsChangedOnce(t *testing.T) {
	first, asked, err := asking([]byte(schedulerManifest), "node.1")
	require.NoError(t, err)
	assert.False(t, asked)
	for _, want := range []string{"- --config=/etc/kubernetes/lodestone/scheduler.yaml", "lodestone.dev/configuration: node.1",
		"mountPath: /etc/kubernetes/lodestone", "path: /etc/kubernetes/lodestone", "- --leader-elect=true", "hostNetwork: true"} {
		assert.Contains(t, string(first), want)
	}
	again, asked, err := asking(first, "node.1")
	require.NoError(t, err)
	assert.True(t, asked)
	assert.Equal(t, first, again)
	changed, asked, err := asking(first, "node.2")
	require.NoError(t, err)
	assert.True(t, asked, "what it was before that is no manifest without the extender")
	assert.Equal(t, strings.ReplaceAll(string(first), "node.1", "node.2"), string(changed), "kubelet starts it anew with a new configuration")

	own := strings.Replace(schedulerManifest, "--leader-elect=true", "--config=/etc/own.yaml", 1)
	_, _, err = asking([]byte(own), "node.1")
	assert.ErrorContains(t, err, "a configuration of its own (--config=/etc/own.yaml)")
	_, _, err = asking([]byte("kind: Pod"), "node.1")
	assert.ErrorContains(t, err, "no container kube-scheduler")
}
