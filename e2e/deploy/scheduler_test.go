package deploy

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// The test bed's own kube-scheduler runs with the example configuration.
func TestSchedulingGoesOnWithoutTheExtender(t *testing.T) {
	namespace := testbed.Namespace(t, cluster)
	requireScheduled(t, namespace, "")
}

func TestSecondSchedulerSchedulesWithTheRightsOfItsServiceAccount(t *testing.T) {
	apply(t, "overlays/managed")
	namespace := testbed.Namespace(t, cluster)
	runSecondScheduler(t)
	requireScheduled(t, namespace, "lodestone-scheduler")

	lease, err := cluster.Client().CoordinationV1().Leases(systemNamespace).Get(t.Context(), "lodestone-scheduler", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, *lease.Spec.HolderIdentity)
}

func requireScheduled(t *testing.T, namespace, schedulerName string) {
	t.Helper()
	pods := cluster.Client().CoreV1().Pods(namespace)
	pod := anyPod("pod")
	pod.Spec.SchedulerName = schedulerName
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := pods.Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEmpty(c, pod.Spec.NodeName, "%+v", pod.Status.Conditions)
	}, waitLong, poll)
	// No kubelet confirms the end of the pod.
	require.NoError(t, pods.Delete(t.Context(), "pod", *metav1.NewDeleteOptions(0)))
}

// runSecondScheduler runs kube-scheduler with the component's configuration, as
// its Deployment would, until the test ends.
func runSecondScheduler(t *testing.T) {
	t.Helper()
	directory := t.TempDir()
	kubeconfig := filepath.Join(directory, "kubeconfig")
	content, err := cluster.ServiceAccountKubeconfig(t.Context(), systemNamespace, "lodestone-scheduler")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(kubeconfig, content, 0o600))
	config := filepath.Join(directory, "config.yaml")
	require.NoError(t, os.WriteFile(config, withKubeconfig(t, deployedConfiguration(t), kubeconfig), 0o600))

	binary, err := testbed.Binary(t.Context(), os.Stderr)
	require.NoError(t, err)
	scheduler := exec.Command(binary, "kube-scheduler", "--config="+config,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--cert-dir="+directory, "--bind-address=127.0.0.1", "--secure-port="+freePort(t))
	var log strings.Builder
	scheduler.Stdout, scheduler.Stderr = &log, &log
	scheduler.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, scheduler.Start())
	t.Cleanup(func() {
		_ = scheduler.Process.Kill()
		_ = scheduler.Wait()
		assert.NotContains(t, log.String(), "forbidden", "the ServiceAccount lacks a right")
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// deployedConfiguration returns the configuration as the ConfigMap holds it.
func deployedConfiguration(t *testing.T) string {
	t.Helper()
	for _, configMap := range ofKind[corev1.ConfigMap](t, build(t, "overlays/managed"), "ConfigMap") {
		if configuration, found := configMap.Data["scheduler-configuration.yaml"]; found {
			return configuration
		}
	}
	t.Fatal("no ConfigMap holds scheduler-configuration.yaml")
	return ""
}

// withKubeconfig adds what a pod would find by itself: how to reach the cluster.
func withKubeconfig(t *testing.T, configuration, kubeconfig string) []byte {
	t.Helper()
	fields := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(configuration), &fields))
	fields["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	content, err := yaml.Marshal(fields)
	require.NoError(t, err)
	return content
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}
