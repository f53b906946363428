package testbed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// toWest makes a pod run on the virtual node.
func toWest(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{keys.Cluster: "west"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: hollow.RemoteTaint, Operator: corev1.TolerationOpExists}}
	return p
}

// bindToWest gives a claim at home a volume whose data is in west.
func bindToWest(t *testing.T, namespace, claim string) {
	t.Helper()
	// With the UID the volume is bound at once, without it at the binder's next round.
	bound, err := home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = home.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Mi")},
			ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: bound.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              wait,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keys.Cluster, Operator: corev1.NodeSelectorOpIn, Values: []string{"west"}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: keys.Driver, VolumeHandle: "west/" + namespace + "/" + claim + "/uid",
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), namespace+"-"+claim, metav1.DeleteOptions{})
	})
	eventuallyBound(t, home, namespace, claim)
}

func gone(t *testing.T, c *testbed.Cluster, namespace, name string) func() bool {
	t.Helper()
	return func() bool {
		_, err := c.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}

func TestPodOfAVirtualNodeRunsInTheRemoteClusterWithItsVolumeThere(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createClaim(t, home, namespace, "data", wait)
	createClaim(t, west, namespace, "data", wait)
	bindToWest(t, namespace, "data")

	createPod(t, home, namespace, toWest(pod("db", "data")))
	atHome := eventuallyPod(t, home, namespace, "db", runs)
	require.Equal(t, "west", atHome.Spec.NodeName)
	inWest := eventuallyPod(t, west, namespace, "db", runs)
	require.Equal(t, string(atHome.UID), inWest.Annotations[hollow.HomePodUIDAnnotation])
	require.Equal(t, inWest.Status.PodIP, atHome.Status.PodIP)
	eventuallyBound(t, west, namespace, "data")
	require.Empty(t, homeNodes.Violations(namespace))

	deletePod(t, home, namespace, "db")
	require.Eventually(t, gone(t, home, namespace, "db"), long, often)
	require.True(t, gone(t, west, namespace, "db")(), "the copy must go first")
}

func TestPodOfAVirtualNodeTellsWhyItsCopyWaits(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createClaim(t, home, namespace, "data", wait)
	bindToWest(t, namespace, "data")
	createPod(t, home, namespace, toWest(pod("db", "data")))
	eventuallyPod(t, home, namespace, "db", func(p *corev1.Pod) bool {
		return strings.Contains(p.Status.Message, "not scheduled in the remote cluster") && p.Status.Phase == corev1.PodPending
	})

	createClaim(t, west, namespace, "data", wait)
	atHome := eventuallyPod(t, home, namespace, "db", runs)
	require.Empty(t, atHome.Status.Message)
}

func TestVolumeOfARemoteClusterIsNotMountedAtHome(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "data", wait)
	bindToWest(t, namespace, "data")
	bypass := pod("bypass", "data")
	bypass.Spec.NodeName = "home-1"
	createPod(t, home, namespace, bypass)
	eventuallyEvent(t, home, namespace, "bypass", "cannot be reached from this node")
	require.Len(t, homeNodes.Violations(namespace), 1)
}

func TestPodWhoseCopyIsDeletedFails(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createPod(t, home, namespace, toWest(pod("job")))
	eventuallyPod(t, home, namespace, "job", runs)
	deletePod(t, west, namespace, "job")
	eventuallyPod(t, home, namespace, "job", func(p *corev1.Pod) bool { return p.Status.Reason == "RemotePodGone" })
}

func TestVirtualNodeFallsSilentWithItsClusterAndReturns(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	ctx := t.Context()
	createPod(t, home, namespace, toWest(pod("stays")))
	createPod(t, home, namespace, toWest(pod("deleted")))
	createPod(t, home, namespace, toWest(pod("forced")))
	for _, name := range []string{"stays", "deleted", "forced"} {
		eventuallyPod(t, home, namespace, name, runs)
	}

	require.NoError(t, west.StopAPIServer(ctx))
	require.Eventually(t, func() bool { return !ready(t, "west") }, long, often)
	deletePod(t, home, namespace, "deleted")
	require.NoError(t, home.Client().CoreV1().Pods(namespace).Delete(ctx, "forced", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	eventuallyPod(t, home, namespace, "deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.Never(t, gone(t, home, namespace, "deleted"), 3*time.Second, often, "nobody knows whether the copy still runs")

	require.NoError(t, west.StartAPIServer(ctx))
	require.Eventually(t, func() bool { return ready(t, "west") }, long, often)
	for _, name := range []string{"deleted", "forced"} {
		require.Eventually(t, gone(t, home, namespace, name), long, often)
		require.Eventually(t, gone(t, west, namespace, name), long, often)
	}
	eventuallyPod(t, home, namespace, "stays", runs)
	eventuallyPod(t, west, namespace, "stays", runs)
}

func ready(t *testing.T, name string) bool {
	t.Helper()
	node, err := home.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
