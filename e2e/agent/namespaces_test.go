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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func namespaceOf(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	return must.Find(t, bed.West.Client().CoreV1().Namespaces(), name)
}

func TestNamespacesThatAreNotGiven(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names = []string{"team-*", "kube-*"}
		home.Spec.Namespaces.Maximum = ptr.To[int32](2)
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
	must.Delete(t, x.remote.NamespaceRequests(x.tenantNamespace()), first)
	x.given(third)
	x.change(func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names = []string{"*"}
		home.Spec.Namespaces.Maximum = ptr.To[int32](3)
	})
	x.given("other")
}

func TestAHomeClusterThatMayHaveNoNamespacesGetsThoseThatItsOwnerLabels(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names, home.Spec.Namespaces.Maximum = []string{"*"}, ptr.To[int32](0)
	})
	name := "team-" + rand.String(6)
	x.request(name)
	assert.Contains(t, x.told(name, "TooMany"), "spec.namespaces.maximum")
	assert.Nil(t, namespaceOf(t, name))

	// As deploy/examples/liqo-namespaces.yaml has it.
	must.Create(t, bed.West.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{keys.HomeID: x.id}, Annotations: map[string]string{keys.MadeFor: x.id + "/" + name},
	}})
	x.given(name)
}

func TestWhatBelongsInANamespaceIsKept(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}
		home.Spec.Namespaces.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
			Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
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
	must.Delete(t, core.ResourceQuotas(name), "lodestone")
	hard("7")
	must.Delete(t, core.LimitRanges(name), "lodestone")
	limit("2")
	must.Delete(t, bed.West.Client().RbacV1().RoleBindings(name), "lodestone-home")
	must.Kubectl(t, bed.West, "", "label", "namespace", name, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
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
	must.Delete(x.t, requests, name)
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
	made := must.Create(t, claims, x.newClaim(full, "data"))
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
	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), name)
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

// identify writes the UID of the home namespace into a request, as the home cluster does.
func (x tenant) identify(name string, uid types.UID) error {
	_, err := x.remote.NamespaceRequests(x.tenantNamespace()).Patch(x.t.Context(), name, types.MergePatchType,
		[]byte(`{"spec":{"homeNamespaceUID":"`+string(uid)+`"}}`), metav1.PatchOptions{})
	return err
}

// isFor waits until a namespace is recorded to be for the home namespace of a UID, and given.
func (x tenant) isFor(name string, uid types.UID) {
	x.t.Helper()
	eventually(x.t, "namespace "+name+" is for "+string(uid), func() error {
		request, err := bed.Agents.NamespaceRequests(x.tenantNamespace()).Get(x.t.Context(), name, metav1.GetOptions{})
		if err != nil || request.Status.HomeNamespaceUID != uid {
			return fmt.Errorf("it is for %+v, %w", request, err)
		}
		return nil
	})
	x.given(name)
	eventually(x.t, "namespace "+name+" says so", func() error {
		if namespace := namespaceOf(x.t, name); namespace == nil || namespace.Annotations[keys.HomeNamespaceUID] != string(uid) {
			return fmt.Errorf("namespace %+v", namespace)
		}
		return nil
	})
}

func TestANamespaceIsForOneHomeNamespace(t *testing.T) {
	x := newTenant(t, nil)
	// As a home cluster of the version before asked for it: nothing is recorded, and it is given.
	name := x.namespace()
	assert.NotContains(t, namespaceOf(t, name).Annotations, keys.HomeNamespaceUID)
	claims := x.client.CoreV1().PersistentVolumeClaims(name)
	must.Create(t, claims, x.newClaim(name, "data"))
	uid := namespaceOf(t, name).UID

	require.NoError(t, x.identify(name, "u1"))
	x.isFor(name, "u1")

	// The home namespace is made again.
	require.NoError(t, x.identify(name, "u2"))
	assert.Contains(t, x.told(name, remotev1alpha1.ReasonAnotherNamespace), "kubectl lodestone rebind namespace "+name)
	assert.Equal(t, "u1", namespaceOf(t, name).Annotations[keys.HomeNamespaceUID])
	_, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err, "home has the rights to delete what it has there")

	// It was restored: the owner binds it again.
	must.Kubectl(t, bed.West, "", "annotate", "namespace", name, keys.HomeNamespaceUID+"=u2", "--overwrite")
	x.isFor(name, "u2")
	assert.Equal(t, uid, namespaceOf(t, name).UID, "with all that is in it")

	// It is made again, and home deletes what it has there: then the namespace is made anew.
	require.NoError(t, x.identify(name, "u3"))
	x.told(name, remotev1alpha1.ReasonAnotherNamespace)
	must.Delete(t, claims, "data")
	x.isFor(name, "u3")
	assert.NotEqual(t, uid, namespaceOf(t, name).UID)
}

func TestAHomeClusterChangesOnlyTheUIDOfARequest(t *testing.T) {
	x := newTenant(t, nil)
	name := x.namespace()
	requests := x.remote.NamespaceRequests(x.tenantNamespace())
	for what, patch := range map[string]string{
		"for another namespace":                `{"spec":{"homeNamespace":"other"}}`,
		"without the finalizer of the agent":   `{"metadata":{"finalizers":null}}`,
		"with a finalizer in place of agent's": `{"metadata":{"finalizers":["example.com/mine"]}}`,
	} {
		_, err := requests.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
	require.NoError(t, x.identify(name, "u1"))
}

// TestAHomeClusterKeepsWhatItHadBeforeNamesWereNeeded has a HomeCluster of the version before, which
// lists no names, and a namespace of another name than it would get now.
func TestAHomeClusterKeepsWhatItHadBeforeNamesWereNeeded(t *testing.T) {
	testbed.NotInShort(t)
	x := newTenant(t, nil)
	name := x.namespace()
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.Names = nil })
	other, suffixed := "ns-"+rand.String(6), "ns-"+x.id
	x.request(other)
	assert.Contains(t, x.told(other, "NotAllowed"), "let the owner list "+other+" in spec.namespaces.names")
	x.request(suffixed)
	x.given(suffixed)

	x.given(name)
	uid := namespaceOf(t, name).UID
	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), name)
	eventually(t, "another namespace is there", func() error {
		if now := namespaceOf(t, name); now == nil || now.UID == uid {
			return fmt.Errorf("namespace %+v", now)
		}
		return nil
	})
	x.given(name)

	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.Names = []string{"*"} })
	x.given(other)
	x.request("acme-operator")
	x.told("acme-operator", "NotAllowed")
}
