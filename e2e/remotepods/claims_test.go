package remotepods

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// plainClaim makes a storage class that is not Lodestone's and a claim of it.
func plainClaim(t *testing.T, namespace string) *corev1.PersistentVolumeClaim {
	t.Helper()
	class := must.Create(t, bed.Home.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "plain-" + namespace}, Provisioner: "disk.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	t.Cleanup(func() {
		_ = bed.Home.Client().StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	return must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	})
}

// withClaim returns a pod of a scheduler that asks no extender, which the test plays; it mounts claim
// data.
func withClaim(namespace, name string) *corev1.Pod {
	return newPod(namespace, name, func(pod *corev1.Pod) {
		pod.Spec.SchedulerName = "other"
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
}

// toldWhy waits until a pod says which claim keeps it at home.
func toldWhy(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await.Until(t, "the pod says why it waits", func() bool {
		pod = get(t, bed.Home, namespace, name)
		return pod != nil && pod.Status.Reason == "ClaimStaysHome"
	}, func() any { return pod })
	return pod
}

// Nobody would make a bare pod anew, so it waits, with words, until its claim is marked.
func TestABarePodWithAClaimThatIsNotLodestonesWaitsWithWords(t *testing.T) {
	namespace := open(t)
	claim := plainClaim(t, namespace)
	bind(t, withClaim(namespace, "web"))
	made := get(t, bed.Home, namespace, "web")
	pod := toldWhy(t, namespace, "web")
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	assert.Contains(t, pod.Status.Message, `claim "data" is of storage class "`+*claim.Spec.StorageClassName+`", which is not Lodestone's`)
	await.Until(t, "an event says so too", func() bool {
		events, err := bed.Home.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=web,reason=ClaimStaysHome"})
		return err == nil && len(events.Items) > 0
	})
	await.Always(t, "it is neither deleted nor started", func() bool {
		now := get(t, bed.Home, namespace, "web")
		return now != nil && now.UID == made.UID && now.DeletionTimestamp == nil && shadow(t, namespace, "web") == nil
	})

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.UsableIn: "west"}}})
	require.NoError(t, err)
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data", types.MergePatchType, patch)
	await.Until(t, "it is started with the claim of that name", func() bool {
		found := shadow(t, namespace, "web")
		return found != nil && found.Spec.Start && found.Spec.Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == "data"
	})
	remove(t, namespace, "web", forced())
	gone(t, namespace, "web", made.UID)
}

// Another node may be chosen for the next pod, so a pod with a controller is replaced; but not again
// and again if that one comes here too.
func TestAPodOfAControllerIsReplacedOnce(t *testing.T) {
	namespace := open(t)
	plainClaim(t, namespace)
	template := withClaim(namespace, "db")
	must.Create(t, bed.Home.Client().AppsV1().StatefulSets(namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec}},
	})
	var first, second *corev1.Pod
	await.Until(t, "the StatefulSet makes a pod", func() bool {
		first = get(t, bed.Home, namespace, "db-0")
		return first != nil
	})
	bindTo(t, first)
	await.Until(t, "and another in its place", func() bool {
		second = get(t, bed.Home, namespace, "db-0")
		return second != nil && second.UID != first.UID
	})
	assert.Empty(t, second.Spec.NodeName, "a scheduler may choose anew")
	bindTo(t, second)
	toldWhy(t, namespace, "db-0")
	await.Always(t, "that one waits", func() bool {
		now := get(t, bed.Home, namespace, "db-0")
		return now != nil && now.UID == second.UID && now.DeletionTimestamp == nil
	})
}
