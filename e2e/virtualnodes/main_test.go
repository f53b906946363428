// Package virtualnodes tests virtual nodes on real control planes: the Node
// objects, what becomes of them when clusters and programs fail, their kubelet
// API, and which pods are let onto them. The tests play the remote agent,
// and no pod runs here.
package virtualnodes

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/virtualnode/app"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
)

// bed is shared by the tests of this package. Tests that take a cluster or
// a program away do not run in parallel. Without control planes bed is empty, so
// that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program
	homeID  string

	// east is a third cluster, and eastKubeconfig home's identity there.
	east           *testbed.Cluster
	eastKubeconfig []byte
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		var group errgroup.Group
		group.Go(func() (err error) {
			bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true})
			return err
		})
		group.Go(func() error {
			clusters, err := testbed.Start(ctx, testbed.Config{Name: "east"})
			if err != nil {
				return err
			}
			east = clusters[0]
			_, err = east.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote"))
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		listNodes(ctx)
		if program, err = bed.StartVirtualNode(ctx, withoutPods); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if eastKubeconfig, err = tenancy(ctx, east, homeID); err != nil {
			return err
		}
		kubeconfig, err := tenancy(ctx, bed.West, homeID)
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}

// withoutPods leaves out the work for pods, which other packages test: here they
// are moved by the tests.
func withoutPods(config *app.Config) {
	config.Workers = func(app.Shared) ([]app.Worker, error) { return nil, nil }
}

func nodeNow(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().Nodes(), name)
}

func exists(t *testing.T, node string) bool {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	return err == nil
}

// becomes waits until a node has a status of its condition RemoteReady, and Ready
// is not otherwise.
func becomes(t *testing.T, name string, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	t.Helper()
	var last corev1.NodeCondition
	await.Until(t, "node "+name+" has "+reason, func() bool {
		agrees := false
		for _, c := range nodeNow(t, name).Status.Conditions {
			if c.Type == node.RemoteReady {
				last = c
			}
			if c.Type == corev1.NodeReady {
				agrees = (c.Status == corev1.ConditionTrue) == (status == corev1.ConditionTrue)
			}
		}
		return agrees && last.Status == status && last.Reason == reason
	}, func() any { return nodeNow(t, name).Status.Conditions })
	return last
}

// condition returns what a RemoteCluster says of its virtual node.
func condition(t *testing.T, id string) metav1.Condition {
	t.Helper()
	remote := must.Get(t, bed.Remotes, id)
	if found := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// said waits until a RemoteCluster says something of its virtual node, and returns
// the sentence.
func said(t *testing.T, id string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	await.Until(t, id+" says "+reason, func() bool {
		have := condition(t, id)
		return have.Status == status && have.Reason == reason
	}, func() any { return condition(t, id) })
	return condition(t, id).Message
}

// heartbeat returns when a lease was renewed.
func heartbeat(t *testing.T, cluster *testbed.Cluster, namespace, name string) time.Time {
	t.Helper()
	lease, err := cluster.Client().CoordinationV1().Leases(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{} // that of a node that was deleted goes with it
	}
	require.NoError(t, err)
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}

// advances waits until a lease is renewed.
func advances(t *testing.T, cluster *testbed.Cluster, namespace, name string) {
	t.Helper()
	before := heartbeat(t, cluster, namespace, name)
	await.Until(t, "lease "+name+" is renewed", func() bool { return heartbeat(t, cluster, namespace, name).After(before) },
		func() any { return before })
}

// restart ends the program and starts it again.
func restart(t *testing.T) {
	t.Helper()
	require.NoError(t, program.Stop())
	var err error
	program, err = bed.StartVirtualNode(context.Background(), withoutPods)
	require.NoError(t, err)
}

func kubeconfigOf(t *testing.T, id string) []byte {
	t.Helper()
	secret := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), id)
	return secret.Data["kubeconfig"]
}

func changed(t *testing.T, kubeconfig []byte, change func(*clientcmdapi.Config)) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfig)
	require.NoError(t, err)
	change(config)
	result, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return result
}

func withToken(t *testing.T, kubeconfig []byte, token string) []byte {
	t.Helper()
	return changed(t, kubeconfig, func(config *clientcmdapi.Config) {
		for _, user := range config.AuthInfos {
			user.Token = token
		}
	})
}

func withServer(t *testing.T, kubeconfig []byte, server string) []byte {
	t.Helper()
	return changed(t, kubeconfig, func(config *clientcmdapi.Config) {
		for _, cluster := range config.Clusters {
			cluster.Server = server
		}
	})
}

// registered makes a RemoteCluster, which goes after the test.
func registered(t *testing.T, id string, kubeconfig []byte) {
	t.Helper()
	require.NoError(t, bed.Register(t.Context(), id, kubeconfig))
	t.Cleanup(func() {
		unregister(t, id)
		must.Delete(t, bed.Home.Client().CoreV1().Secrets(fabric.System), id)
	})
}

// unregister deletes a RemoteCluster and waits until it is gone.
func unregister(t *testing.T, id string) {
	t.Helper()
	if err := bed.Remotes.Delete(context.Background(), id, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	await.Until(t, "RemoteCluster "+id+" is gone", func() bool {
		_, err := bed.Remotes.Get(context.Background(), id, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return condition(t, id) })
}

func podNow(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().Pods(namespace), name)
}

// bound makes a pod that is bound to a node, as the scheduler does.
func bound(t *testing.T, namespace, name, node string, finalizers ...string) *corev1.Pod {
	t.Helper()
	pod := fabric.NewPod(namespace, name)
	pod.Finalizers = finalizers
	pod.Spec.SchedulerName = "nobody"
	pods := bed.Home.Client().CoreV1().Pods(namespace)
	must.Create(t, pods, pod)
	require.NoError(t, pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}},
		metav1.CreateOptions{}))
	return podNow(t, namespace, name)
}

// release lets a pod go that is to end.
func release(t *testing.T, namespace, name string) {
	t.Helper()
	pods := bed.Home.Client().CoreV1().Pods(namespace)
	must.Patch(t, pods, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	err := pods.Delete(t.Context(), name, *metav1.NewDeleteOptions(0))
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
