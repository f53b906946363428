// Package namespaces tests, on two real control planes, that the provisioner asks
// a remote cluster for the namespaces that it needs, gives them back, and keeps
// its credentials there.
package namespaces

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// bed is shared by the tests of this package; owner is west's.
// Without control planes bed is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	owner   = &tenancy{}
	running *fabric.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true}); err != nil {
			return err
		}
		if err := owner.serve(ctx); err != nil {
			return err
		}
		if running, err = startProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		kubeconfig, err := owner.admit(ctx)
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitReady(ctx, "west", metav1.ConditionTrue)
	})
}

func startProvisioner(ctx context.Context) (*fabric.Program, error) {
	return bed.StartProvisioner(ctx, func(c *provisioner.Config) { c.LeaderElect = false })
}

// space makes a namespace at home, and only there; annotations may narrow what
// it may use.
func space(t *testing.T, prefix string, open bool, annotations ...string) string {
	t.Helper()
	testbed.Require(t)
	name := prefix + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	t.Cleanup(func() {
		err := bed.Home.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	for _, annotation := range annotations {
		kubectl(t, "annotate", "namespace", name, annotation)
	}
	if open {
		kubectl(t, "label", "namespace", name, keys.Offload+"="+keys.OffloadEnabled)
	}
	return name
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", args...)
}

// use makes a claim and a pod that uses it.
func use(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.Class))
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), pod)
}

// drop deletes the pod and claim of use.
func drop(t *testing.T, namespace string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "app")
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
}

func inWest(namespace string) *corev1.Pod {
	return fabric.InWest(fabric.NewPod(namespace, "app", "data"))
}

func preferWest(namespace string) *corev1.Pod {
	return fabric.Prefer(fabric.NewPod(namespace, "app", "data"), fabric.WestNode)
}

func podNode(t *testing.T, namespace string) (node string, phase corev1.PodPhase) {
	t.Helper()
	pod := must.Get(t, bed.Home.Client().CoreV1().Pods(namespace), "app")
	return pod.Spec.NodeName, pod.Status.Phase
}

// runsOn waits until the pod runs and checks where.
func runsOn(t *testing.T, namespace string, remote bool) {
	t.Helper()
	var node string
	await.Until(t, "the pod runs", func() bool {
		var phase corev1.PodPhase
		node, phase = podNode(t, namespace)
		return phase == corev1.PodRunning
	}, func() any { return strings.Join(await.Events(t, bed.Home.Client(), namespace), "\n") })
	require.Equal(t, remote, node == fabric.WestNode, "node %s", node)
}

func requested(t *testing.T, namespace string) *remotev1alpha1.NamespaceRequest {
	t.Helper()
	return must.Find(t, bed.Agents.NamespaceRequests(owner.tenant()), namespace)
}

func given(t *testing.T, namespace string) bool {
	t.Helper()
	request := requested(t, namespace)
	return request != nil && meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready)
}

// awaitGiven waits until a namespace was asked for and given.
func awaitGiven(t *testing.T, namespace string) {
	t.Helper()
	await.Until(t, "namespace "+namespace+" is given", func() bool { return given(t, namespace) }, func() any {
		return requested(t, namespace)
	})
}

func recorded(t *testing.T, namespace string) bool {
	t.Helper()
	remote := must.Get(t, bed.Remotes, "west")
	return slices.Contains(remote.Status.Namespaces, namespace)
}

func hasShadow(t *testing.T, namespace string) bool {
	t.Helper()
	_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(context.Background(), "data", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	return err == nil
}
