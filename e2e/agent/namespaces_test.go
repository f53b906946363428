package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func namespaceOf(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace, err := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return namespace
}

func TestNamespacesThatAreNotGiven(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names = []string{"team-*", "kube-*"}
		home.Spec.Namespaces.Maximum = 2
	})
	for _, name := range []string{"default", "kube-system", "kube-new", "lodestone-remote", "lodestone-home-other", "other", "not.a.label"} {
		x.request(name)
		x.told(name, "NotAllowed")
	}
	assert.Nil(t, namespaceOf(t, "kube-new"))
	assert.Nil(t, namespaceOf(t, "other"))

	foreign := "team-" + rand.String(6)
	require.NoError(t, bed.West.MakeNamespace(t.Context(), foreign))
	x.request(foreign)
	assert.Contains(t, x.told(foreign, "NamespaceExists"), foreign)
	assert.Empty(t, namespaceOf(t, foreign).Labels[keys.HomeID])
	_, err := bed.West.Client().RbacV1().RoleBindings(foreign).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)

	first, second, third := "team-"+rand.String(6), "team-"+rand.String(6), "team-"+rand.String(6)
	x.request(first)
	x.given(first)
	x.request(second)
	x.given(second)
	x.request(third)
	x.told(third, "TooMany")
	// One that is given up makes room.
	require.NoError(t, x.remote.NamespaceRequests(x.tenantNamespace()).Delete(t.Context(), first, metav1.DeleteOptions{}))
	x.given(third)
	x.change(func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names = nil
		home.Spec.Namespaces.Maximum = 3
	})
	x.given("other")
}

func TestWhatBelongsInANamespaceIsKept(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}
		home.Spec.Namespaces.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
		home.Spec.ServiceTypes = []corev1.ServiceType{corev1.ServiceTypeLoadBalancer}
	})
	name := x.namespace()
	core := bed.West.Client().CoreV1()
	assert.Equal(t, "baseline", namespaceOf(t, name).Labels["pod-security.kubernetes.io/enforce"])
	assert.Equal(t, "LoadBalancer", namespaceOf(t, name).Annotations[keys.ServiceTypes])
	hard := func(want string) {
		t.Helper()
		eventually(t, "the quota is "+want, func() error {
			quota, err := core.ResourceQuotas(name).Get(t.Context(), "lodestone", metav1.GetOptions{})
			if err == nil && quota.Spec.Hard.Pods().String() != want {
				err = fmt.Errorf("quota %v", quota.Spec.Hard)
			}
			return err
		})
	}
	limit := func(want string) {
		t.Helper()
		eventually(t, "the limit is "+want, func() error {
			limits, err := core.LimitRanges(name).Get(t.Context(), "lodestone", metav1.GetOptions{})
			if err == nil && limits.Spec.Limits[0].Max.Cpu().String() != want {
				err = fmt.Errorf("limits %v", limits.Spec.Limits)
			}
			return err
		})
	}
	hard("7")
	limit("2")

	// Somebody takes it away, or changes it.
	require.NoError(t, core.ResourceQuotas(name).Delete(t.Context(), "lodestone", metav1.DeleteOptions{}))
	hard("7")
	require.NoError(t, core.LimitRanges(name).Delete(t.Context(), "lodestone", metav1.DeleteOptions{}))
	limit("2")
	require.NoError(t, bed.West.Client().RbacV1().RoleBindings(name).Delete(t.Context(), "lodestone-home", metav1.DeleteOptions{}))
	_, err := bed.West.Kubectl(t.Context(), "", "label", "namespace", name, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
	require.NoError(t, err)
	eventually(t, "label and binding are back", func() error {
		_, err := bed.West.Client().RbacV1().RoleBindings(name).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
		if level := namespaceOf(t, name).Labels["pod-security.kubernetes.io/enforce"]; err == nil && level != "baseline" {
			err = fmt.Errorf("level %s", level)
		}
		return err
	})

	// The owner changes the policy.
	x.change(func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota[corev1.ResourcePods] = resource.MustParse("9")
		home.Spec.Namespaces.Limits[0].Max[corev1.ResourceCPU] = resource.MustParse("4")
	})
	hard("9")
	limit("4")
	x.change(func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota, home.Spec.Namespaces.Limits, home.Spec.ServiceTypes = nil, nil, nil
		home.Spec.Namespaces.PodSecurity = "restricted"
	})
	eventually(t, "quota, limits and types are gone", func() error {
		_, noQuota := core.ResourceQuotas(name).Get(t.Context(), "lodestone", metav1.GetOptions{})
		_, noLimits := core.LimitRanges(name).Get(t.Context(), "lodestone", metav1.GetOptions{})
		namespace := namespaceOf(t, name)
		if !apierrors.IsNotFound(noQuota) || !apierrors.IsNotFound(noLimits) || namespace.Annotations[keys.ServiceTypes] != "" ||
			namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			return fmt.Errorf("quota %w, limits %w, namespace %+v", noQuota, noLimits, namespace.ObjectMeta)
		}
		return nil
	})
}

// giveUp deletes a request and waits until it is gone.
func (x tenant) giveUp(name string) {
	x.t.Helper()
	requests := x.remote.NamespaceRequests(x.tenantNamespace())
	require.NoError(x.t, requests.Delete(x.t.Context(), name, metav1.DeleteOptions{}))
	eventually(x.t, "the request is gone", func() error {
		if _, err := bed.Agents.NamespaceRequests(x.tenantNamespace()).Get(x.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the request is there, %w", err)
		}
		return nil
	})
}

func (x tenant) newClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	claim := fabric.NewClaim(namespace, name, fabric.WestNow)
	claim.Labels = map[string]string{keys.HomeID: x.id}
	return claim
}

func TestANamespaceWithDataOutlivesItsRequest(t *testing.T) {
	x := newTenant(t, nil)
	empty, full := x.namespace(), x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(full)
	made, err := claims.Create(t.Context(), x.newClaim(full, "data"), metav1.CreateOptions{})
	require.NoError(t, err)
	uid := namespaceOf(t, full).UID

	x.giveUp(empty)
	x.giveUp(full)
	eventually(t, "the empty namespace is gone", func() error {
		if namespaceOf(t, empty) != nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	eventually(t, "home has no rights any more", func() error {
		if _, err := claims.Get(t.Context(), "data", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	})
	kept := namespaceOf(t, full)
	assert.Equal(t, uid, kept.UID)
	assert.Nil(t, kept.DeletionTimestamp)

	// Asked for again, the data is found; by another home, it is not.
	y := newTenant(t, nil)
	y.request(full)
	y.told(full, "NamespaceExists")
	x.request(full)
	x.given(full)
	eventually(t, "home sees its claim", func() error {
		claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && claim.UID != made.UID {
			err = fmt.Errorf("another claim %s", claim.UID)
		}
		return err
	})
}

func TestANamespaceThatSomebodyDeletesIsMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	name := x.namespace()
	x.shadow(name, "web", nil)
	x.runs(name, "web")
	uid := namespaceOf(t, name).UID
	require.NoError(t, bed.West.Client().CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, "another namespace is there", func() error {
		if now := namespaceOf(t, name); now == nil || now.UID == uid {
			return fmt.Errorf("namespace %+v", now)
		}
		return nil
	})
	x.given(name)
	x.shadow(name, "web", nil)
	x.runs(name, "web")
}
