// Package clusters tests the life of RemoteCluster objects on real control
// planes: what is wrong with one, how it is mended, what its loss means for
// claims, and how it goes.
package clusters

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// bed is shared by the tests of this package, and so is east, a third cluster
// that holds no nodes and no storage. Tests that take a cluster away do not run
// in parallel. Without control planes bed is empty, so that tests get as far as
// to skip.
var (
	bed  = &fabric.Fabric{}
	east *testbed.Cluster
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		var group errgroup.Group
		group.Go(func() (err error) {
			bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500})
			return err
		})
		group.Go(func() error {
			clusters, err := testbed.Start(ctx, testbed.Config{Name: "east"})
			if err != nil {
				return err
			}
			east = clusters[0]
			_, err = east.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote-volumes"))
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		return bed.Peer(ctx)
	})
}

// The identity that deploy/remote-volumes makes for the home cluster.
const (
	accountNamespace = "lodestone-volumes"
	accountName      = "lodestone-home"
)

// newNamespace makes a namespace in home and west that home may use in west.
func newNamespace(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	namespace := bed.Namespace(t)
	// With its namespace in west home's rights there go, before its claims do, and
	// nobody here takes its finalizer off them then: a volume would be left over.
	t.Cleanup(func() { awaitNoVolumes(t, namespace) })
	return namespace
}

// awaitNoVolumes deletes the pods and claims of a namespace, and waits until their
// volumes are gone.
func awaitNoVolumes(t *testing.T, namespace string) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	require.NoError(t, core.Pods(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, core.PersistentVolumeClaims(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{},
		metav1.ListOptions{}))
	var left []string
	await.Until(t, "the volumes of namespace "+namespace+" are gone", func() bool {
		left = nil
		volumes := must.List(t, core.PersistentVolumes())
		for _, volume := range volumes.Items {
			if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
				left = append(left, fmt.Sprintf("%s: %s", volume.Name, volume.Status.Phase))
			}
		}
		return len(left) == 0
	}, func() any { return left }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// registered makes the Secret, if there is a kubeconfig, and the RemoteCluster of
// a cluster, and removes both after the test.
func registered(t *testing.T, id string, kubeconfig []byte) {
	t.Helper()
	if kubeconfig != nil {
		secret(t, fabric.System, id, "kubeconfig", kubeconfig)
	}
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: id}},
	})
	t.Cleanup(func() { unregister(t, id) })
}

// unregister deletes a RemoteCluster and waits until it is gone.
func unregister(t *testing.T, id string) {
	t.Helper()
	err := bed.Remotes.Delete(context.Background(), id, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	await.Until(t, "RemoteCluster "+id+" is gone", func() bool {
		_, err := bed.Remotes.Get(context.Background(), id, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return condition(t, id, v1alpha1.Ready) })
}

func secret(t *testing.T, namespace, name, key string, data []byte) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(namespace)
	must.Create(t, secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: data},
	})
	t.Cleanup(func() {
		err := secrets.Delete(context.Background(), name, metav1.DeleteOptions{})
		require.NoError(t, err)
		await.Until(t, "Secret "+name+" is gone", func() bool {
			_, err := secrets.Get(context.Background(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, func() any { return "still held" })
	})
}

// replaceKubeconfig puts another kubeconfig into the Secret of a cluster.
func replaceKubeconfig(t *testing.T, id string, kubeconfig []byte) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	have := must.Get(t, secrets, id)
	have.Data["kubeconfig"] = kubeconfig
	must.Update(t, secrets, have)
}

func kubeconfigOf(t *testing.T, cluster *testbed.Cluster) []byte {
	t.Helper()
	data, err := cluster.ServiceAccountKubeconfig(t.Context(), accountNamespace, accountName)
	require.NoError(t, err)
	return data
}

func status(t *testing.T, id string) v1alpha1.RemoteClusterStatus {
	t.Helper()
	remote := must.Get(t, bed.Remotes, id)
	return remote.Status
}

func condition(t *testing.T, id, kind string) metav1.Condition {
	t.Helper()
	if found := meta.FindStatusCondition(status(t, id).Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// awaitReady waits until a cluster's condition Ready has a status and reason, and
// returns its message.
func awaitReady(t *testing.T, id string, want metav1.ConditionStatus, reason string) string {
	t.Helper()
	var have metav1.Condition
	await.Until(t, fmt.Sprintf("%s has Ready=%s, %s", id, want, reason), func() bool {
		have = condition(t, id, v1alpha1.Ready)
		return have.Status == want && have.Reason == reason
	}, func() any { return have })
	return have.Message
}

// useInWest makes a claim and a pod that uses it in west, and waits until the pod runs there.
func useInWest(t *testing.T, namespace, claim, pod string) {
	t.Helper()
	bed.CreateClaim(t, fabric.NewClaim(namespace, claim, fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, pod, claim)))
	require.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, pod))
}

func deletePodAndClaim(t *testing.T, namespace, pod, claim string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), pod)
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
}

func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

func hasVolume(t *testing.T, name string) bool {
	t.Helper()
	return await.Volume(t, bed.Home.Client(), name) != nil
}

func pod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().Pods(namespace), name)
}

// requireUnscheduled checks that a pod gets no node for a while.
func requireUnscheduled(t *testing.T, namespace, name string) {
	t.Helper()
	await.Never(t, "pod "+name+" must wait", func() bool { return pod(t, namespace, name).Spec.NodeName != "" })
}
