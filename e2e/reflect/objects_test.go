package reflect

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// virtualNodes returns a user of home with the rights that copying needs, and no
// others.
func virtualNodes(t *testing.T) string {
	t.Helper()
	const name = "virtual-nodes"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "configmaps", "services", "secrets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	_, err := home.Client().RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	_, err = home.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return name
}

// pod makes a pod on the virtual node, accepted to run in west; change may be nil.
func (w *world) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Finalizers: []string{keys.RemotePodFinalizer}},
		Spec:       corev1.PodSpec{NodeName: w.node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if change != nil {
		change(pod)
	}
	pod, err := home.Client().CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return pod
}

// endPod deletes a pod as if its copy were gone.
func (w *world) endPod(name string) {
	w.t.Helper()
	pods := home.Client().CoreV1().Pods(w.namespace)
	require.NoError(w.t, pods.Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	_, err := pods.Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
}

// releasePods takes the finalizers off what is left, so that the namespace can go.
func (w *world) releasePods() {
	pods := home.Client().CoreV1().Pods(w.namespace)
	list, err := pods.List(context.Background(), metav1.ListOptions{})
	assert.NoError(w.t, err)
	for _, pod := range list.Items {
		_, err := pods.Patch(context.Background(), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			assert.NoError(w.t, err)
		}
	}
}

// mounts makes a pod mount a ConfigMap or a Secret.
func mounts(configMap, secret string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if configMap != "" {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "c-" + configMap, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
			}})
		}
		if secret != "" {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "s-" + secret, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: secret},
			}})
		}
	}
}

func (w *world) configMap(name, value string) *corev1.ConfigMap {
	w.t.Helper()
	configMap, err := home.Client().CoreV1().ConfigMaps(w.namespace).Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"note": "stays"}},
		Data:       map[string]string{"key": value}, BinaryData: map[string][]byte{"raw": {0, 255}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return configMap
}

// awayConfigMap returns a ConfigMap of west, nil if there is none.
func (w *world) awayConfigMap(name string) *corev1.ConfigMap {
	w.t.Helper()
	configMap, err := west.Client().CoreV1().ConfigMaps(w.away).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return configMap
}

// told waits for an event about an object of home, and returns its message.
func (w *world) told(name, reason string) string {
	w.t.Helper()
	return await.Event(w.t, home.Client(), w.namespace, name, reason)
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	await.Until(w.t, what, done)
}

func (w *world) consistently(what string, holds func() bool) {
	w.t.Helper()
	await.Always(w.t, what, holds)
}
