package fakekubelet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestCopyLeavesOutWhatOnlyMeansSomethingAtHome(t *testing.T) {
	data := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "shop", UID: "uid-1", ResourceVersion: "7", Labels: map[string]string{"app": "db"},
			Finalizers: []string{"example.com/held"}, OwnerReferences: []metav1.OwnerReference{{Name: "set"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "west", SchedulerName: "own", ServiceAccountName: "shop", PriorityClassName: "high", Priority: ptr.To[int32](9),
			NodeSelector:              map[string]string{"lodestone.dev/cluster": "west"},
			Affinity:                  &corev1.Affinity{},
			Tolerations:               []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{}},
			Volumes:                   []corev1.Volume{data, {Name: "kube-api-access-x"}},
			Containers: []corev1.Container{{
				Name: "main", Image: "db:1", VolumeMounts: []corev1.VolumeMount{{Name: "data"}, {Name: "kube-api-access-x"}},
			}},
		},
	}
	before := pod.DeepCopy()
	remote := &Remote{ID: "west", HomeID: "h1", NamespaceFor: func(n string) string { return n + "-h1" }}
	got := copyOf(pod, remote)

	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "shop-h1",
			Labels:      map[string]string{"app": "db", homeLabel: "h1"},
			Annotations: map[string]string{HomePodUIDAnnotation: "uid-1", homePodAnnotation: "west/shop/db"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Volumes:                      []corev1.Volume{data},
			Containers:                   []corev1.Container{{Name: "main", Image: "db:1", VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}},
		},
	}, got)
	assert.Equal(t, before, pod, "the home pod must stay as it is")
	key, ok := homePod(got)
	assert.True(t, ok)
	assert.Equal(t, keyOf(pod), key)
}

func TestHomeStatusSaysWhyTheCopyIsNotScheduled(t *testing.T) {
	status := homeStatus(&corev1.Pod{Status: corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}},
	}})
	assert.Equal(t, corev1.PodStatus{
		Phase: corev1.PodPending, Message: "not scheduled in the remote cluster: 0/1 nodes are available",
	}, status)
}
