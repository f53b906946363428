// Package install tests that kubectl lodestone install brings Lodestone into real API servers, changes it, and that uninstall
// removes it again. Kubelets are played.
package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/doctor"
	plugin "github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

var home, west *testbed.Cluster

// admission is what install chooses at home: policies, where API servers serve them, or the webhook.
var admission = plugin.Policies

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
		if err != nil {
			return err
		}
		home, west = clusters[0], clusters[1]
		if served, err := home.ServesPolicies(); err != nil {
			return err
		} else if !served {
			admission = plugin.Webhook
		}
		for _, cluster := range clusters {
			_, err := fakekubelet.Start(ctx, fakekubelet.Options{Config: cluster.AdminConfig(),
				Nodes: []fakekubelet.Node{{Name: cluster.Name() + "-1"}}})
			if err != nil {
				return fmt.Errorf("play the node of %s: %w", cluster.Name(), err)
			}
		}
		// What kubeadm leaves, so that home is taken for a cluster of its.
		left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-config"},
			Data: map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nscheduler: {}\n"}}
		_, err = home.Client().CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, left, metav1.CreateOptions{})
		return err
	})
}

// The exit codes that the plugin promises.
const (
	done    = 0
	failed  = 1
	refused = 3
)

// run runs the plugin on a cluster and checks its exit code.
func run(t *testing.T, cluster *testbed.Cluster, want int, args ...string) (out, stderr string) {
	t.Helper()
	testbed.Require(t)
	streams, _, stdout, errout := genericiooptions.NewTestIOStreams()
	code := cmd.Run(t.Context(), streams, append(args, "--kubeconfig", cluster.Kubeconfig())...)
	t.Logf("$ kubectl lodestone %s\n%s%s", strings.Join(args, " "), stdout, errout)
	require.Equal(t, want, code)
	return stdout.String(), errout.String()
}

// isThere says whether an object is in a cluster.
func isThere(t *testing.T, cluster *testbed.Cluster, kind, namespace, name string) bool {
	t.Helper()
	args := []string{"get", kind, name, "--ignore-not-found", "-o", "name"}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	output := must.Kubectl(t, cluster, "", args...)
	return strings.TrimSpace(output) != ""
}

const (
	system = "lodestone-system"
	tag    = "v9.8.7"
)

func TestHomeIsInstalledChangedAndRemoved(t *testing.T) {
	testbed.Require(t)
	_, stderr := run(t, home, failed, "uninstall", "--yes")
	assert.Contains(t, stderr, "has made nothing")

	out, _ := run(t, home, done, "install", "--tag", tag, "--dry-run=client")
	assert.Regexp(t, `cluster +context "[^"]+", kubeadm, Kubernetes v1`, out)
	assert.Regexp(t, `scheduler +kube-scheduler asks the extender`, out)
	assert.False(t, isThere(t, home, "namespace", "", system), "a dry run makes nothing")

	out, stderr = run(t, home, done, "install", "--tag", tag)
	wanted, err := plugin.Build(plugin.Values{Registry: plugin.DefaultRegistry, Tag: tag, Scheduler: plugin.Extender,
		Certificates: plugin.ByJob, Admission: admission, VirtualNodes: ptr.To(true)}, false)
	require.NoError(t, err)
	assert.Contains(t, stderr, fmt.Sprintf("%d objects made, 0 changed, 0 as they were, 0 removed", len(wanted)))
	for _, object := range wanted {
		kind, _, _ := strings.Cut(object.GetAPIVersion(), "/")
		resource := strings.ToLower(object.GetKind())
		if kind != object.GetAPIVersion() {
			resource += "." + kind
		}
		assert.True(t, isThere(t, home, resource, object.GetNamespace(), object.GetName()), "%s %s", object.GetKind(), object.GetName())
	}
	service := must.Get(t, home.Client().CoreV1().Services(system), "lodestone-extender")
	assert.Contains(t, out, "- urlPrefix: https://"+service.Spec.ClusterIP+":8888")
	assert.Contains(t, out, "kubectl lodestone peer --context ")

	_, stderr = run(t, home, done, "install", "--tag", tag)
	assert.Contains(t, stderr, fmt.Sprintf("0 objects made, 0 changed, %d as they were, 0 removed", len(wanted)),
		"a second run changes nothing")

	t.Run("what doctor finds", whatDoctorFinds)
	t.Run("what somebody else has set", whatSomebodyElseHasSet)
	t.Run("kube-scheduler of a node", kubeSchedulerOfANode)
	t.Run("another scheduler", anotherScheduler)
	t.Run("a webhook in place of policies", aWebhookInPlaceOfPolicies)
	t.Run("optional components", optionalComponents)
	t.Run("removal", removal)
}

func whatSomebodyElseHasSet(t *testing.T) {
	must.Kubectl(t, home, "", "scale", "deployment", "lodestone-provisioner", "-n", system, "--replicas=4")
	_, stderr := run(t, home, failed, "install", "--tag", tag, "--replicas", "1")
	assert.Contains(t, stderr, "nothing was changed, because somebody else has set fields that install sets, in Deployment "+
		"lodestone-system/lodestone-provisioner (")
	assert.Contains(t, stderr, ".spec.replicas")
	_, stderr = run(t, home, done, "install", "--tag", tag, "--replicas", "1", "--force-conflicts")
	assert.Contains(t, stderr, "changed Deployment lodestone-system/lodestone-provisioner")
	out, _ := run(t, home, done, "install", "--tag", tag)
	assert.Regexp(t, `replicas +1`, out, "what an earlier run was told holds")
	out, _ = run(t, home, done, "install", "--tag", tag, "--pull-secret", "pull")
	assert.Regexp(t, `pull secret +lodestone-system/pull`, out)
	out, _ = run(t, home, done, "install", "--tag", tag, "--pull-secret", "")
	assert.NotContains(t, out, "pull secret", "it is taken away again")
	provisioner := must.Get(t, home.Client().AppsV1().Deployments(system), "lodestone-provisioner")
	assert.EqualValues(t, 1, *provisioner.Spec.Replicas)
}

// kubeSchedulerOfANode plays the kubelet of a control-plane node: it has the pod of the manifest that is there.
func kubeSchedulerOfANode(t *testing.T) {
	root := t.TempDir()
	folder, lodestone := filepath.Join(root, "etc", "kubernetes", "manifests"), filepath.Join(root, "etc", "kubernetes", "lodestone")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	file := filepath.Join(folder, "kube-scheduler.yaml")
	manifest, err := os.ReadFile("../../kubectl-lodestone/install/testdata/kube-scheduler.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, manifest, 0o600))
	pods, secrets := home.Client().CoreV1().Pods(metav1.NamespaceSystem), home.Client().CoreV1().Secrets(system)
	must.Patch(t, secrets, "lodestone-extender-client", "application/merge-patch+json",
		[]byte(`{"stringData":{"ca.crt":"authority","tls.crt":"certificate","tls.key":"key"}}`))

	// kubelet has the pod of the manifest on a node within moments; the function that it returns ends it.
	kubelet := func(node string) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			var last string
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				content, err := os.ReadFile(file)
				if err != nil || string(content) == last {
					continue
				}
				var pod corev1.Pod
				if yaml.Unmarshal(content, &pod) != nil {
					continue
				}
				pod.Name, pod.Spec.NodeName = "kube-scheduler-"+node, node
				pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil // nobody mounts them here
				_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
				if _, err := pods.Create(ctx, &pod, metav1.CreateOptions{}); err == nil {
					last = string(content)
				}
			}
		}()
		return func() { cancel(); <-ended }
	}

	// A second kube-scheduler that was not configured yet would find no node for a marked pod.
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler-other", Labels: map[string]string{"component": "kube-scheduler"}}}
	other.Spec.NodeName, other.Spec.Containers = "home-1", []corev1.Container{{Name: "kube-scheduler", Image: "none"}}
	must.Create(t, pods, other)
	end := kubelet("home-1")
	_, stderr := run(t, home, done, "install", "--configure-scheduler", "--node-root", root)
	assert.Contains(t, stderr, "pods are not marked yet: kube-scheduler-other does not ask")
	assert.Contains(t, stderr, "asks the extender about every pod;")
	kubeadm := must.Get(t, home.Client().CoreV1().ConfigMaps(metav1.NamespaceSystem), "kubeadm-config")
	assert.Contains(t, kubeadm.Data["ClusterConfiguration"], "value: /etc/kubernetes/lodestone/scheduler.yaml")
	configuration := func() string {
		content, err := os.ReadFile(filepath.Join(lodestone, "scheduler.yaml"))
		require.NoError(t, err)
		return string(content)
	}
	assert.Contains(t, configuration(), "ignoredResources: [lodestone.dev/scheduling]")
	assert.NotContains(t, configuration(), "managedResources")

	// On the last node pods begin to be marked, and kube-scheduler asks about no others.
	require.NoError(t, pods.Delete(t.Context(), other.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	_, stderr = run(t, home, done, "install", "--configure-scheduler", "--node-root", root)
	if admission == plugin.Policies {
		assert.Contains(t, stderr, "and about no others")
		assert.Contains(t, configuration(), "managedResources")
		assert.True(t, isThere(t, home, "mutatingadmissionpolicy", "", "lodestone-marker"))
		assert.Equal(t, doctor.OK, examined(t)["manifests"].Level)
		out, _ := run(t, home, done, "install", "--tag", tag)
		assert.Regexp(t, `marker +yes`, out)
		assert.Contains(t, out, "managedResources", "what a kube-scheduler that is configured by hand is given")
	} else {
		assert.Contains(t, stderr, "kube-scheduler asks about every pod for now", "nobody serves the webhook here")
	}
	end()
	changed, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(changed), "--config=/etc/kubernetes/lodestone/scheduler.yaml")
	for name, want := range map[string]string{"ca.crt": "authority", "tls.crt": "certificate", "tls.key": "key",
		"kube-scheduler.yaml.before": string(manifest)} {
		content, err := os.ReadFile(filepath.Join(lodestone, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(content), name)
	}
	_, stderr = run(t, home, done, "install", "--configure-scheduler", "--node-root", root)
	assert.Contains(t, stderr, "has this configuration already")

	// With another authority it starts anew; what to go back to stays what was there before Lodestone.
	must.Patch(t, secrets, "lodestone-extender-client", "application/merge-patch+json",
		[]byte(`{"stringData":{"ca.crt":"another authority"}}`))
	end = kubelet("home-1")
	_, stderr = run(t, home, done, "install", "--configure-scheduler", "--node-root", root)
	end()
	assert.Contains(t, stderr, "changing "+file)
	kept, err := os.ReadFile(filepath.Join(lodestone, "kube-scheduler.yaml.before"))
	require.NoError(t, err)
	assert.Equal(t, string(manifest), string(kept))

	// A kube-scheduler that does not run is one that nobody has: the manifest is put back.
	require.NoError(t, os.WriteFile(file, manifest, 0o600))
	require.NoError(t, os.Remove(filepath.Join(lodestone, "kube-scheduler.yaml.before")))
	require.NoError(t, pods.Delete(t.Context(), "kube-scheduler-home-1", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	end = kubelet("of-nobody") // no pod there is ever Ready
	_, stderr = run(t, home, failed, "install", "--configure-scheduler", "--node-root", root, "--timeout", "5s")
	end()
	assert.Contains(t, stderr, "pod kube-scheduler-of-nobody is not Ready")
	assert.Contains(t, stderr, "its manifest is what it was")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(manifest), string(content))

	_, stderr = run(t, home, failed, "install", "--configure-scheduler", "--node-root", t.TempDir())
	assert.Contains(t, stderr, "run this on a control-plane node of kubeadm")
}

func anotherScheduler(t *testing.T) {
	out, stderr := run(t, home, done, "install", "--tag", tag, "--scheduler", "second")
	assert.Contains(t, stderr, "removed Deployment lodestone-system/lodestone-extender")
	assert.Contains(t, out, "note: pods are marked no more")
	assert.False(t, isThere(t, home, "mutatingwebhookconfiguration", "", "lodestone-marker"))
	if admission == plugin.Policies {
		assert.False(t, isThere(t, home, "mutatingadmissionpolicy", "", "lodestone-marker"))
	}
	assert.Contains(t, out, "label namespace SHOP lodestone.dev/scheduler=enabled")
	version, err := home.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	scheduler := must.Get(t, home.Client().AppsV1().Deployments(system), "lodestone-scheduler")
	assert.Equal(t, "registry.k8s.io/kube-scheduler:"+version.GitVersion, scheduler.Spec.Template.Spec.Containers[0].Image)
	assert.False(t, isThere(t, home, "deployment", system, "lodestone-extender"))
	assert.Equal(t, admission == plugin.Webhook, isThere(t, home, "cronjob", "lodestone-certificates", "lodestone-certificates"),
		"it asks the extender of its own pod; API servers call a webhook over TLS alone")
	_, stderr = run(t, home, failed, "install", "--configure-scheduler", "--node-root", "testdata/node")
	assert.Contains(t, stderr, "run this on a control-plane node")
}

// aWebhookInPlaceOfPolicies installs what an API server without such policies is given.
func aWebhookInPlaceOfPolicies(t *testing.T) {
	if admission == plugin.Webhook {
		t.Skip("API servers here serve no policies: all of this test has the webhook")
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte("admission: webhook\n"), 0o600))
	_, stderr := run(t, home, done, "install", "--tag", tag, "--values", file)
	assert.Contains(t, stderr, "removed MutatingAdmissionPolicy lodestone-move-gate")
	assert.True(t, isThere(t, home, "mutatingwebhookconfiguration", "", "lodestone-move-gate"))
	assert.True(t, isThere(t, home, "deployment", system, "lodestone-webhook"))
	assert.True(t, isThere(t, home, "cronjob", "lodestone-certificates", "lodestone-certificates"), "API servers call over TLS alone")
	found := examined(t)
	assert.Equal(t, doctor.OK, found["manifests"].Level, found["manifests"].Says)
	assert.Contains(t, found["admission"].Says, "API servers do not trust the webhook yet", "the Job of this bed does nothing")

	run(t, home, done, "install", "--tag", tag)
	assert.False(t, isThere(t, home, "mutatingwebhookconfiguration", "", "lodestone-move-gate"), "the cluster serves policies")
	assert.Equal(t, doctor.OK, examined(t)["admission"].Level)
	run(t, home, done, "install", "--tag", tag, "--values", file)
}

func removal(t *testing.T) {
	claims := home.Client().CoreV1().PersistentVolumeClaims("default")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "films"}}
	claim.Spec.StorageClassName = ptr.To("lodestone")
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	require.NoError(t, yaml.Unmarshal([]byte(`{requests: {storage: 1Gi}}`), &claim.Spec.Resources))
	must.Create(t, claims, claim)
	must.Kubectl(t, home, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: pvc-1, annotations: {lodestone.dev/backing: home/x/y}},
  spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}}`, "create", "-f", "-")
	must.Kubectl(t, home, `{apiVersion: lodestone.dev/v1alpha1, kind: VolumeReplica, metadata: {name: films, namespace: default},
  spec: {claims: [films], standbys: [{cluster: west}]}}`, "create", "-f", "-")
	_, stderr := run(t, home, refused, "uninstall", "--yes")
	assert.Contains(t, stderr, "1 replicas (default/films): kubectl delete volumereplicas -A --all removes them, with their copies; ")
	assert.Contains(t, stderr, "1 volumes (pvc-1): delete their claims, with their data; kubectl patch pv NAME -p ")
	assert.Contains(t, stderr, "; 1 claims that wait for a volume (default/films): delete them")
	assert.True(t, isThere(t, home, "deployment", system, "lodestone-provisioner"))

	must.Kubectl(t, home, "", "delete", "volumereplica", "films", "-n", "default")
	must.Delete(t, claims, "films")
	must.Delete(t, home.Client().CoreV1().PersistentVolumes(), "pvc-1")
	await.Until(t, "the claim and the volume are gone", func() bool {
		return !isThere(t, home, "pvc", "default", "films") && !isThere(t, home, "pv", "", "pvc-1")
	})
	_, stderr = run(t, home, refused, "uninstall")
	assert.Contains(t, stderr, "was not typed")
	run(t, home, done, "uninstall", "--yes")
	kinds := "namespaces,crds,clusterroles,clusterrolebindings,storageclasses,csidrivers,validatingadmissionpolicies," +
		"validatingadmissionpolicybindings,mutatingwebhookconfigurations"
	if admission == plugin.Policies {
		kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	left := must.Kubectl(t, home, "", "get", kinds, "-o", "name")
	assert.NotContains(t, left, "lodestone")
	assert.True(t, isThere(t, home, "clusterprofile", "cluster-inventory", "fleet"), "others have theirs in that namespace")
	_, err := home.Client().RbacV1().Roles(metav1.NamespaceSystem).Get(t.Context(), "lodestone", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
}

func TestARemoteClusterIsInstalledAndRemoved(t *testing.T) {
	testbed.Require(t)
	out, _ := run(t, west, done, "install", "--remote", "--tag", tag)
	assert.Contains(t, out, "kubectl lodestone peer --context HOME")
	assert.Contains(t, out, "has not been tried", "nothing tells what it is")
	_, stderr := run(t, west, done, "install", "--remote", "--tag", "v9.8.8")
	assert.Regexp(t, `0 objects made, 1 changed, \d+ as they were, 0 removed`, stderr)
	assert.Contains(t, stderr, "changed Deployment lodestone-remote/lodestone-remote-agent")

	for _, definition := range []string{string(crd.ServiceExportCRD), string(crd.ServiceImportCRD)} {
		define(t, west, definition)
	}
	run(t, west, done, "install", "--remote", "--tag", "v9.8.8", "--network", "--services")
	rules := must.Kubectl(t, west, "", "get", "clusterrole", "lodestone-home", "-o", "yaml")
	assert.Contains(t, rules, "serviceimports")
	must.Kubectl(t, west, `{apiVersion: network.lodestone.dev/v1alpha1, kind: NetworkLink, metadata: {name: home, namespace: default},
  spec: {}}`, "create", "-f", "-")
	_, stderr = run(t, west, refused, "install", "--remote", "--tag", "v9.8.8", "--network=false", "--services=false")
	assert.Contains(t, stderr, "1 networks that are joined (default/home)")
	_, stderr = run(t, west, done, "install", "--remote", "--tag", "v9.8.8", "--services=false")
	assert.Contains(t, stderr, "changed ClusterRole lodestone-home")

	must.Kubectl(t, west, `{apiVersion: remote.lodestone.dev/v1alpha1, kind: HomeCluster, metadata: {name: abc}, spec: {}}`,
		"create", "-f", "-")
	_, stderr = run(t, west, failed, "uninstall", "--yes")
	assert.Contains(t, stderr, "give --remote to remove that")
	_, stderr = run(t, west, refused, "uninstall", "--remote", "--yes")
	assert.Contains(t, stderr, "1 home clusters (abc)")
	assert.Contains(t, stderr, "1 networks that are joined (default/home)")
	must.Kubectl(t, west, "", "delete", "homecluster", "abc")
	must.Kubectl(t, west, "", "delete", "networklink", "home", "-n", "default")
	run(t, west, done, "uninstall", "--remote", "--yes")
	left := must.Kubectl(t, west, "", "get", "namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name")
	assert.NotContains(t, left, "lodestone")
}

// TestGitOpsGetsTheSameObjects builds what a dry run prints with kubectl, from this tree in place of the repository.
func TestGitOpsGetsTheSameObjects(t *testing.T) {
	testbed.Require(t)
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte("nodeSelector: {pool: system}\n"+
		"resources: {provisioner: {limits: {memory: 2Gi}}}\n"), 0o600))
	out, _ := run(t, home, done, "install", "--tag", tag, "--registry", "registry.example.com", "--pull-secret", "pull", "--values", values,
		"--dry-run=client", "-o", "yaml")
	assert.Contains(t, out, "https://github.com/lodestone-storage/lodestone//deploy/base?ref=")
	folder, err := os.MkdirTemp("../..", ".install-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	local := regexp.MustCompile(`https://github\.com/lodestone-storage/lodestone//(\S+)\?ref=\S*`).ReplaceAllString(out, "../$1")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(local), 0o600))
	built := must.Kubectl(t, home, "", "kustomize", folder)

	var read plugin.Values
	content, err := os.ReadFile(values)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &read))
	read.Registry, read.Tag, read.PullSecret = "registry.example.com", tag, "pull"
	read.Scheduler, read.Certificates, read.Admission = plugin.Extender, plugin.ByJob, admission
	read.VirtualNodes = ptr.To(true)
	objects, err := plugin.Build(read, false)
	require.NoError(t, err)
	var applied, printed []string
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		applied = append(applied, string(text))
	}
	for document := range strings.SplitSeq(built, "\n---\n") {
		var object map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		text, err := yaml.Marshal(object)
		require.NoError(t, err)
		printed = append(printed, string(text))
	}
	slices.Sort(applied)
	slices.Sort(printed)
	assert.Equal(t, applied, printed)
}
