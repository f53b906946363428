package moves

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// database makes StatefulSet db, whose replicas count in a volume each that is at home.
func database(t *testing.T, namespace string) (claims []string) {
	t.Helper()
	claims = []string{"data-db-0", "data-db-1"}
	first := application(namespace, "first", claims[0])
	first.Spec.Volumes = append(first.Spec.Volumes, corev1.Volume{Name: "other", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[1]}}})
	begins(t, namespace, first, claims...)
	pod := application(namespace, "db", "data")
	pod.Spec.Volumes = nil
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	labels := map[string]string{"app": "db"}
	template := fabric.NewClaim(namespace, "data", fabric.Class)
	template.Namespace = ""
	sets := bed.Home.Client().AppsV1().StatefulSets(namespace)
	_, err := sets.Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(2)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*template},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sets.Delete(context.Background(), "db", metav1.DeleteOptions{}) })
	for _, claim := range claims {
		at := folder(t, namespace, claim)
		counts(t, at, counted(t, at)+10)
	}
	return claims
}

func TestTheReplicasOfAStatefulSetMoveTogether(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claims := database(t, namespace)

	code, out, said := plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", "west", "--together", "-o", "json")
	require.Zero(t, code, said)
	var list struct {
		Kind  string
		Items []v1alpha1.VolumeMove
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Equal(t, "List", list.Kind)
	require.Len(t, list.Items, 2)
	for i, claim := range claims {
		assert.Equal(t, "VolumeMove", list.Items[i].Kind)
		assert.Equal(t, []string{claim}, list.Items[i].Spec.Claims)
		at := folder(t, namespace, claim)
		counts(t, at, counted(t, at)+10)
	}
	for _, pod := range []string{"db-0", "db-1"} {
		assert.Equal(t, fabric.WestNode, runs(t, namespace, pod))
	}

	// The copies at the source are still kept.
	code, out, said = plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", "west")
	require.Zero(t, code, said)
	assert.Equal(t, "nothing to do: all claims have their data there\n", out)
	await.Until(t, "what moved nothing is gone", func() bool {
		kept, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(kept.Items) == 2
	})

	code, _, said = plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", "west", "--class", fabric.WestNow)
	assert.Equal(t, 3, code, "another class is another place: %s", said)
	assert.Contains(t, said, "is being moved by VolumeMove")
}
