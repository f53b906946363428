package moves

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// gate is what pods wait at while a volume of theirs is moved.
const gate = "lodestone.dev/moving"

func gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
}

// lock sets or, with an empty value, takes off the label that locks a claim.
func lock(t *testing.T, namespace, claim, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, gate, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, gate)
	}
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// tries asks what the API server would make of a pod.
func tries(t *testing.T, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	return bed.Home.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func TestPodsOfALockedClaimWaitAtTheGateWhateverOwnsThem(t *testing.T) {
	namespace, other := space(t), space(t)
	for _, claim := range []*corev1.PersistentVolumeClaim{
		fabric.NewClaim(namespace, "data", fabric.Class), fabric.NewClaim(namespace, "free", fabric.Class), fabric.NewClaim(other, "data", fabric.Class),
	} {
		_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	lock(t, namespace, "data", "true")
	await.Until(t, "the gate is closed", func() bool {
		pod, err := tries(t, fabric.NewPod(namespace, "db", "data"))
		return err == nil && gated(pod)
	})

	for name, row := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"one of several claims":        {fabric.NewPod(namespace, "db", "free", "data"), true},
		"another claim":                {fabric.NewPod(namespace, "db", "free"), false},
		"no claim":                     {fabric.NewPod(namespace, "db"), false},
		"its namesake elsewhere":       {fabric.NewPod(other, "db", "data"), false},
		"a scratch volume of its name": {fabric.WithScratch(fabric.NewPod(namespace, "db"), fabric.Class), false},
	} {
		pod, err := tries(t, row.pod)
		require.NoError(t, err, name)
		assert.Equal(t, row.want, gated(pod), name)
	}

	held := fabric.NewPod(namespace, "db", "data")
	held.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/own"}}
	pod, err := tries(t, held)
	require.NoError(t, err)
	assert.Len(t, pod.Spec.SchedulingGates, 2, "the gates of others stay")

	bound := fabric.NewPod(namespace, "db", "data")
	bound.Spec.NodeName = "home-1"
	_, err = tries(t, bound)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "the volume of claim data is being moved: leave spec.nodeName out")

	// An owner that makes pods as it likes has them wait.
	labels := map[string]string{"app": "db"}
	template := fabric.NewPod(namespace, "", "data")
	template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	_, err = bed.Home.Client().AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var pods *corev1.PodList
	await.Until(t, "the Deployment has made its pods", func() bool {
		pods, err = bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
		require.NoError(t, err)
		return len(pods.Items) == 2
	})
	for i := range pods.Items {
		assert.True(t, gated(&pods.Items[i]))
	}

	lock(t, namespace, "data", "")
	await.Until(t, "the gate is open", func() bool {
		pod, err := tries(t, fabric.NewPod(namespace, "new", "data"))
		return err == nil && !gated(pod)
	})
}

func TestTheProvisionerMayDoNothingToPodsButEndThemAndOpenTheirGate(t *testing.T) {
	namespace := space(t)
	kubeconfig, err := bed.Home.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	provisioner, err := kubernetes.NewForConfig(kubeconfig)
	require.NoError(t, err)
	pods := provisioner.CoreV1().Pods(namespace)

	create := func(name string, claims ...string) *corev1.Pod {
		pod := fabric.NewPod(namespace, name, claims...)
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}, {Name: "example.com/own"}}
		made, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		return made
	}
	create("db", "data")
	create("web")
	patch := func(name, patch string) error {
		_, err := pods.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	open := `{"spec":{"schedulingGates":[{"$patch":"delete","name":"lodestone.dev/moving"}]}}`
	for name, row := range map[string]struct{ pod, patch, refusal string }{
		"an image":              {"db", `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`, "nothing of a pod but its gate"},
		"a node":                {"db", `{"spec":{"nodeSelector":{"a":"b"}}}`, "nothing of a pod but its gate"},
		"a label":               {"db", `{"metadata":{"labels":{"app":"evil"}}}`, "nothing of a pod but its gate"},
		"an annotation":         {"db", `{"metadata":{"annotations":{"a":"b"}}}`, "nothing of a pod but its gate"},
		"a finalizer":           {"db", `{"metadata":{"finalizers":["a.example.com/b"]}}`, "nothing of a pod but its gate"},
		"the gate of another":   {"db", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/own"}]}}`, "only its own gate"},
		"a pod without a claim": {"web", open, "only pods that use a claim"},
	} {
		err := patch(row.pod, row.patch)
		if assert.True(t, apierrors.IsForbidden(err), "%s: %v", name, err) {
			assert.Contains(t, err.Error(), row.refusal, name)
		}
	}
	require.True(t, apierrors.IsForbidden(pods.Delete(t.Context(), "web", metav1.DeleteOptions{})))

	require.NoError(t, patch("db", open))
	pod, err := pods.Get(t.Context(), "db", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: "example.com/own"}}, pod.Spec.SchedulingGates)
	require.NoError(t, pods.Delete(t.Context(), "db", metav1.DeleteOptions{}))
}
