package agentrights

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// owned has west's owner give home more, then set no bounds at all, and take the marks
// off what was made for home, which the agent puts on again.
func owned(t *testing.T, namespace string) {
	t.Helper()
	change(t, func(home *remotev1alpha1.HomeCluster) {
		limit("20")(home)
		home.Spec.Namespaces.Limits[0].Default[corev1.ResourceMemory] = resource.MustParse("128Mi")
		home.Spec.Namespaces.PodSecurity = "privileged"
	})
	await.Until(t, "the quota, the limits and the level are those", func() bool {
		quotas, limits := bounds(t, namespace)
		found, err := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		require.NoError(t, err)
		return len(quotas) == 1 && quotas[0].Spec.Hard[corev1.ResourcePersistentVolumeClaims] == resource.MustParse("20") &&
			len(limits) == 1 && limits[0].Spec.Limits[0].Default[corev1.ResourceMemory] == resource.MustParse("128Mi") &&
			found.Labels["pod-security.kubernetes.io/enforce"] == "privileged"
	})
	change(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota, home.Spec.Namespaces.Limits = nil, nil
	})
	await.Until(t, "there are no bounds", func() bool {
		quotas, limits := bounds(t, namespace)
		return len(quotas)+len(limits) == 0
	})

	mine := keys.HomeID + "=" + homeID
	kubectl(t, bed.West, "label", "clusterroles,clusterrolebindings", "-l", mine, keys.HomeID+"-")
	kubectl(t, bed.West, "label", "serviceaccounts,rolebindings", "-n", keys.TenantPrefix+homeID, "-l", mine, keys.HomeID+"-")
	await.Until(t, "all is marked again", func() bool {
		marked, err := bed.West.Kubectl(t.Context(), "", "get", "clusterroles,clusterrolebindings,serviceaccounts,rolebindings", "-n", keys.TenantPrefix+homeID, "-l", mine, "-o", "name")
		require.NoError(t, err)
		return len(marked) > 0
	})
}

func bounds(t *testing.T, namespace string) ([]corev1.ResourceQuota, []corev1.LimitRange) {
	t.Helper()
	quotas, err := bed.West.Client().CoreV1().ResourceQuotas(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	limits, err := bed.West.Client().CoreV1().LimitRanges(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return quotas.Items, limits.Items
}

// change changes what home may have.
func change(t *testing.T, change func(*remotev1alpha1.HomeCluster)) {
	t.Helper()
	await.Until(t, "the HomeCluster is changed", func() bool {
		home, err := bed.Agents.HomeClusters().Get(t.Context(), homeID, metav1.GetOptions{})
		require.NoError(t, err)
		change(home)
		_, err = bed.Agents.HomeClusters().Update(t.Context(), home, metav1.UpdateOptions{})
		return err == nil
	})
}

// left leaves a namespace that home has asked for, and a pod in it: they go with the
// HomeCluster.
func left(t *testing.T) {
	t.Helper()
	const name = "left-by-home"
	requests := bed.Agents.NamespaceRequests(keys.TenantPrefix + homeID)
	await.Until(t, "the namespace is given", func() bool {
		request, err := requests.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			// The provisioner, which is about to hear that west is no longer its own, may
			// still take back what nobody at home needs.
			_, err = requests.Create(t.Context(), &remotev1alpha1.NamespaceRequest{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: name},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			return false
		}
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready)
	})
	_, err := bed.Agents.ShadowPods(name).Create(t.Context(), &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{keys.HomeID: homeID, keys.PodUID: "u1"}, Finalizers: []string{keys.ShadowPodFinalizer}},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true, Home: remotev1alpha1.HomePod{Cluster: homeID, Namespace: name, Name: "web", UID: "u1"},
			Pod: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	await.Until(t, "its pod is there", func() bool { return pod(t, bed.West, name, "web") != nil })
}
