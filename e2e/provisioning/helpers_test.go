package provisioning

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// space makes a namespace in both clusters that home may use in west.
func space(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	require.NoError(t, bed.Bind(t.Context(), namespace))
	t.Cleanup(func() { tidy(namespace) })
	return namespace
}

// tidy deletes the pods and claims of a namespace and waits a while for what is
// behind them in west: with the namespace there home's rights go, too.
func tidy(namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	home, west := bed.Home.Client().CoreV1(), bed.West.Client().CoreV1()
	_ = home.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = home.PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	for ctx.Err() == nil {
		left, err := west.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID})
		if err == nil && len(left.Items) == 0 {
			return
		}
		time.Sleep(await.Often)
	}
}

func createClaim(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	created, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

func createPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

func claimOf(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return await.Claim(t, cluster.Client(), namespace, name)
}

func volumeOf(t *testing.T, cluster *testbed.Cluster, name string) *corev1.PersistentVolume {
	t.Helper()
	return await.Volume(t, cluster.Client(), name)
}

func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := bed.Home.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return pod
}

// bound waits until a claim is bound and returns it with its volume.
func bound(t *testing.T, cluster *testbed.Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	var claim *corev1.PersistentVolumeClaim
	eventually(t, func() bool {
		claim = claimOf(t, cluster, namespace, name)
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	}, func() string {
		return fmt.Sprintf("claim %s/%s of %s is not bound: %+v\nevents: %v", namespace, name, cluster.Name(), claim, await.Events(t, bed.Home.Client(), namespace))
	})
	volume := volumeOf(t, cluster, claim.Spec.VolumeName)
	require.NotNil(t, volume)
	return claim, volume
}

// runs waits until a pod runs and returns the name of its node.
func runs(t *testing.T, namespace, name string) string {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, func() bool {
		pod = podOf(t, namespace, name)
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	}, func() string {
		return fmt.Sprintf("pod %s/%s does not run\nevents: %v", namespace, name, await.Events(t, bed.Home.Client(), namespace))
	})
	return pod.Spec.NodeName
}

func eventually(t *testing.T, done func() bool, otherwise func() string) {
	t.Helper()
	await.Until(t, "what the test waits for is so", done, func() any { return otherwise() })
}

// toldOfVolume waits until an event with a reason is there for a volume, and
// returns its message.
func toldOfVolume(t *testing.T, name, reason string) string {
	t.Helper()
	return await.Event(t, bed.Home.Client(), metav1.NamespaceDefault, name, reason)
}

// warnings returns the warnings about the claims and volumes of a namespace.
// kube-scheduler's, about pods that wait, are none of ours, and neither is that of
// kube-controller-manager when it has not yet seen a class that a test just made.
func warnings(t *testing.T, namespace string) []string {
	t.Helper()
	return slices.DeleteFunc(await.Events(t, bed.Home.Client(), namespace), func(e string) bool {
		return !strings.HasPrefix(e, corev1.EventTypeWarning+" PersistentVolume") ||
			(strings.Contains(e, "storageclass.storage.k8s.io \"virtual-") && strings.HasSuffix(e, "not found"))
	})
}

// consistently checks for a while that something stays as it is.
func consistently(t *testing.T, holds func() bool, otherwise string) {
	t.Helper()
	await.Always(t, otherwise, holds)
}

// absent waits until something is gone.
func absent[T any](t *testing.T, what string, find func() *T) {
	t.Helper()
	eventually(t, func() bool { return find() == nil }, func() string { return fmt.Sprintf("%s is still there: %+v", what, find()) })
}

// watchClaims watches the claims of a namespace and returns a function that gives
// the UIDs of all claims of a name that were ever there since.
func watchClaims(t *testing.T, cluster *testbed.Cluster, namespace string) func(name string) []types.UID {
	t.Helper()
	watcher, err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	var mu sync.Mutex
	made := map[string][]types.UID{}
	go func() {
		for event := range watcher.ResultChan() {
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && event.Type == watch.Added {
				mu.Lock()
				made[claim.Name] = append(made[claim.Name], claim.UID)
				mu.Unlock()
			}
		}
	}()
	return func(name string) []types.UID {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(made[name])
	}
}

// backingOf returns the backing claim that a virtual volume names, nil if it is
// gone.
func backingOf(t *testing.T, virtual *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	t.Helper()
	ref, err := backing.RefOf(virtual)
	require.NoError(t, err)
	cluster := bed.Home
	if ref.Cluster != keys.Home {
		cluster = bed.West
	}
	claim := claimOf(t, cluster, ref.Namespace, ref.Name)
	if claim != nil {
		require.Equal(t, ref.UID, claim.UID)
	}
	return claim
}

func lastPart(handle string) string { return handle[strings.LastIndex(handle, "/")+1:] }
