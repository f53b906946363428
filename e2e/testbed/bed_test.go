package testbed_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestStoppingTheAPIServerKeepsItsState(t *testing.T) {
	namespace := testbed.Namespace(t, west)
	ctx := t.Context()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "state"}, Data: map[string]string{"a": "b"}}
	_, err := west.Client().CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, west.StopAPIServer(ctx))
	_, err = west.Client().CoreV1().ConfigMaps(namespace).Get(ctx, "state", metav1.GetOptions{})
	require.Error(t, err, "a stopped API server must not answer")

	require.NoError(t, west.StartAPIServer(ctx))
	read, err := west.Client().CoreV1().ConfigMaps(namespace).Get(ctx, "state", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, configMap.Data, read.Data)
}

func TestServiceAccountHasTheRightsThatRBACGives(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	ctx := t.Context()
	config, err := home.ServiceAccountConfig(ctx, namespace, "default")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "system:serviceaccount:"+namespace+":default")

	_, err = home.Kubectl(ctx, "", "-n", namespace, "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount="+namespace+":default")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	}, long, often)
}

func TestPausedAPIServerHangsAndResumes(t *testing.T) {
	testbed.Require(t)
	ctx := t.Context()
	require.NoError(t, west.PauseAPIServer())
	t.Cleanup(func() { assert.NoError(t, west.ResumeAPIServer()) })
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := west.Client().CoreV1().Namespaces().Get(short, "default", metav1.GetOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, west.ResumeAPIServer())
	_, err = west.Client().CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestFailureToStartSaysWhyAndKeepsTheLogs(t *testing.T) {
	testbed.Require(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	_, err := testbed.Start(t.Context(), testbed.Config{Name: "broken", FeatureGates: map[string]bool{"NoSuchGate": true}})
	require.ErrorContains(t, err, "cluster broken: kube-apiserver ended before it was ready")
	require.ErrorContains(t, err, "NoSuchGate")
	logs, err := filepath.Glob(filepath.Join(temporary, "*", "logs", "kube-apiserver.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
}
