package provisioning

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// spread makes a StatefulSet of two replicas, one at home and one in west.
func spread(t *testing.T, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "db"}
	pod := fabric.NewPod(namespace, "")
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelTopologyZone,
	}}}}
	claim := fabric.NewClaim("", "data", fabric.Class)
	_, err := bed.Home.Client().AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(2)), ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func scale(t *testing.T, namespace string, replicas int) {
	t.Helper()
	_, err := bed.Home.Client().AppsV1().StatefulSets(namespace).Patch(t.Context(), "db", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	require.NoError(t, err)
}

func cordon(t *testing.T, node string, on bool) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
	require.NoError(t, err)
}

// TestPodsFollowTheirVolumes cordons nodes that other tests use, so it runs alone.
func TestPodsFollowTheirVolumes(t *testing.T) {
	namespace := space(t)
	spread(t, namespace)
	nodeOf := map[string]string{"db-0": runs(t, namespace, "db-0"), "db-1": runs(t, namespace, "db-1")}
	remote, local := "db-0", "db-1"
	if nodeOf["db-1"] == fabric.WestNode {
		remote, local = local, remote
	}
	require.Equal(t, fabric.WestNode, nodeOf[remote])
	require.NotEqual(t, fabric.WestNode, nodeOf[local])
	_, there := bound(t, bed.Home, namespace, "data-"+remote)
	_, here := bound(t, bed.Home, namespace, "data-"+local)
	assert.Equal(t, "west", there.Labels[keys.Cluster])
	assert.Equal(t, keys.Home, here.Labels[keys.Cluster])

	for _, replica := range []string{remote, local} {
		t.Run("the pod on "+nodeOf[replica]+" waits while its node is cordoned and returns to it", func(t *testing.T) {
			cordon(t, nodeOf[replica], true)
			t.Cleanup(func() { cordon(t, nodeOf[replica], false) })
			first := podOf(t, namespace, replica)
			require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), replica, metav1.DeleteOptions{}))
			eventually(t, func() bool {
				pod := podOf(t, namespace, replica)
				return pod != nil && pod.UID != first.UID
			}, func() string { return "the pod is not made anew" })
			consistently(t, func() bool {
				pod := podOf(t, namespace, replica)
				return pod != nil && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName == ""
			}, "the pod must wait for the node of its volume")

			cordon(t, nodeOf[replica], false)
			assert.Equal(t, nodeOf[replica], runs(t, namespace, replica))
		})
	}

	t.Run("scaled to nothing and back, each pod is where its volume is", func(t *testing.T) {
		scale(t, namespace, 0)
		for replica := range nodeOf {
			absent(t, "pod", func() *corev1.Pod { return podOf(t, namespace, replica) })
		}
		scale(t, namespace, 2)
		for replica, node := range nodeOf {
			assert.Equal(t, node, runs(t, namespace, replica))
		}
		_, same := bound(t, bed.Home, namespace, "data-"+remote)
		assert.Equal(t, there.UID, same.UID)
	})
	assert.Empty(t, bed.HomeNodes.Violations(namespace))
	assert.Empty(t, warnings(t, namespace))
}
