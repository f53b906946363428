package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhatIsReadOfARemotePodIsKept(t *testing.T) {
	deleted := ptr.To(metav1.Unix(1000, 0))
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, Reason: "r", Message: "m", StartTime: ptr.To(metav1.Unix(900, 0)), PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "m"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "app:1", ImageID: "sha", ContainerID: "c", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(950, 0)}}}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "7",
			DeletionTimestamp: deleted,
			Labels:            map[string]string{keys.PodUID: "home", keys.MoveOf: "move", "app": "db"},
			Annotations:       map[string]string{keys.Applied: "{}"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app"}}}, Status: *status.DeepCopy(),
	}
	kept, err := transformRemote(pod)
	require.NoError(t, err)
	want := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "7",
		DeletionTimestamp: deleted,
		Labels:            map[string]string{keys.PodUID: "home", keys.MoveOf: "move"}}, Status: status}
	assert.True(t, equality.Semantic.DeepEqual(want, controller.Unpacked(kept)))
	again, err := transformRemote(kept)
	require.NoError(t, err)
	assert.Same(t, kept, again, "an informer may transform what it has transformed")
}
