// Package remotepods tests that pods of virtual nodes run in the remote cluster,
// once and only once, whatever fails: all programs of Lodestone work, and the
// nodes of the remote cluster are played.
package remotepods

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is shared by the tests of this package; each has namespaces of its own.
// Without control planes bed is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program // the virtual node program
	homeID  string
	way     *link // from home to west
	// startProgram starts a virtual node program that ends with the tests.
	startProgram func(tune ...func(*virtualnode.Config)) (*fabric.Program, error)
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		startProgram = func(tune ...func(*virtualnode.Config)) (*fabric.Program, error) {
			return bed.StartVirtualNode(ctx, tune...)
		}
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx); err != nil {
			return err
		}
		if program, err = startProgram(); err != nil {
			return err
		}
		kubeconfig, err := bed.Tenant(ctx, nil)
		if err != nil {
			return err
		}
		if way, kubeconfig, err = newLink(bed.West.AdminConfig(), kubeconfig); err != nil {
			return err
		}
		usesHomeAPI := func(spec *v1alpha1.RemoteClusterSpec) { spec.HomeServer = bed.Home.AdminConfig().Host }
		if err := bed.Register(ctx, "west", kubeconfig, usesHomeAPI); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}

// open makes a namespace at home that is open to remote clusters.
func open(t *testing.T) string {
	t.Helper()
	namespace := closed(t)
	label(t, namespace, keys.OffloadEnabled)
	t.Cleanup(func() {
		if t.Failed() {
			show(t, namespace)
		}
	})
	return namespace
}

// show logs what is in a namespace of both clusters.
func show(t *testing.T, namespace string) {
	t.Helper()
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		pods, err := cluster.Client().CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			t.Logf("pod %s %s of %s: deleted %v, finalizers %v, annotations %v, labels %v, status %s %s %q", pod.Name, pod.UID, cluster.Name(),
				pod.DeletionTimestamp, pod.Finalizers, pod.Annotations, pod.Labels, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		}
	}
	if events, err := bed.Home.Kubectl(context.Background(), "", "get", "events", "-n", namespace); err == nil {
		t.Log(events)
	}
	shadows, err := bed.Agents.ShadowPods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for i := range shadows.Items {
		s := &shadows.Items[i]
		t.Logf("ShadowPod %s %s of %s: deleted %v, finalizers %v, start %v, status %+v", s.Name, s.UID, s.Spec.Home.UID, s.DeletionTimestamp,
			s.Finalizers, s.Spec.Start, s.Status)
	}
}

// closed makes a namespace at home that is open to none.
func closed(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	name := "pods-" + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return name
}

func label(t *testing.T, namespace string, value any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{keys.Offload: value}}})
	require.NoError(t, err)
	must.Patch(t, bed.Home.Client().CoreV1().Namespaces(), namespace, types.MergePatchType, patch)
}

// newPod returns a pod that runs in west.
func newPod(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := inWest(fabric.NewPod(namespace, name))
	pod.Labels = map[string]string{"app": name}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func inWest(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	return fabric.InWest(pod)
}

func create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return must.Create(t, bed.Home.Client().CoreV1().Pods(pod.Namespace), pod)
}

// get returns a pod of a cluster, nil if there is none.
func get(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Find(t, cluster.Client().CoreV1().Pods(namespace), name)
}

// shadow returns a ShadowPod, nil if there is none.
func shadow(t *testing.T, namespace, name string) *remotev1alpha1.ShadowPod {
	t.Helper()
	return must.Find(t, bed.Agents.ShadowPods(namespace), name)
}

func phase(t *testing.T, namespace, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await.Until(t, "pod "+name+" is "+string(want), func() bool {
		pod = get(t, bed.Home, namespace, name)
		return pod != nil && pod.Status.Phase == want
	})
	return pod
}

// runs waits until a pod runs at home and in west, and returns both.
func runs(t *testing.T, namespace, name string) (home, west *corev1.Pod) {
	t.Helper()
	home = phase(t, namespace, name, corev1.PodRunning)
	west = get(t, bed.West, namespace, name)
	require.NotNil(t, west, "it runs in west")
	require.Equal(t, string(home.UID), west.Labels[keys.PodUID])
	return home, west
}

func remove(t *testing.T, namespace, name string, options metav1.DeleteOptions) {
	t.Helper()
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, options))
}

func forced() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))} }

// gone waits until nothing of a pod is left in either cluster.
func gone(t *testing.T, namespace, name string, uid types.UID) {
	t.Helper()
	await.Until(t, "nothing is left of pod "+name, func() bool {
		for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
			if pod := get(t, cluster, namespace, name); pod != nil && (pod.UID == uid || pod.Labels[keys.PodUID] == string(uid)) {
				return false
			}
		}
		found := shadow(t, namespace, name)
		return found == nil || found.Spec.Home.UID != uid
	})
}

func ready(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// hold keeps a pod of west from going away by a finalizer, empty to let it go.
func hold(t *testing.T, pod *corev1.Pod, finalizer string) {
	t.Helper()
	var finalizers []string
	if finalizer != "" {
		finalizers = []string{finalizer}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	require.NoError(t, err)
	_, err = bed.West.Client().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}
