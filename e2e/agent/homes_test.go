package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

func (x tenant) goesHome() {
	x.t.Helper()
	eventually(x.t, "the HomeCluster and its namespace are gone", func() error {
		_, err := bed.Agents.HomeClusters().Get(x.t.Context(), x.id, get)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("HomeCluster: %w", err)
		}
		if namespace := namespaceOf(x.t, x.tenantNamespace()); namespace != nil && namespace.DeletionTimestamp == nil {
			return fmt.Errorf("namespace %+v", namespace.ObjectMeta)
		}
		return nil
	})
}

func TestARemovedHomeClusterKeepsItsDataAndNothingElse(t *testing.T) {
	x, other := newTenant(t, nil), newTenant(t, nil)
	empty, full := x.namespace(), x.namespace()
	theirs := other.namespace()
	other.shadow(theirs, "web", nil)
	x.shadow(empty, "web", nil)
	x.shadow(full, "db", nil)
	_, err := x.client.CoreV1().PersistentVolumeClaims(full).Create(t.Context(), x.newClaim(full, "data"), create)
	require.NoError(t, err)
	x.runs(empty, "web")
	x.runs(full, "db")
	kept := other.runs(theirs, "web")

	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), x.id, remove))
	eventually(t, "home's token is worth nothing", func() error {
		if err := second(x.client.CoreV1().Nodes().List(t.Context(), list)); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	})
	x.goes(empty, "web")
	x.goes(full, "db")
	eventually(t, "the condition names the namespace with data", func() error {
		message := x.homeCondition(remotev1alpha1.Ready, metav1.ConditionFalse, "Removing")
		if namespaceOf(t, empty) != nil || !strings.Contains(message, full) || strings.Contains(message, empty) {
			return fmt.Errorf("message %q", message)
		}
		return nil
	})
	claim, err := bed.West.Client().CoreV1().PersistentVolumeClaims(full).Get(t.Context(), "data", get)
	require.NoError(t, err)
	assert.Nil(t, claim.DeletionTimestamp)

	// The owner keeps the namespace as its own.
	_, err = bed.West.Kubectl(t.Context(), "", "label", "namespace", full, keys.HomeID+"-")
	require.NoError(t, err)
	x.goesHome()
	assert.Nil(t, namespaceOf(t, full).DeletionTimestamp)
	assert.Equal(t, kept.UID, podOf(t, theirs, "web").UID, "other homes are not touched")
	assert.Nil(t, podOf(t, theirs, "web").DeletionTimestamp)
	for _, name := range []string{"lodestone-home:" + x.id, "lodestone-home-reader:" + x.id} {
		_, err := bed.West.Client().RbacV1().ClusterRoleBindings().Get(t.Context(), name, get)
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
}

func TestWhatAHomeClusterHasIsKept(t *testing.T) {
	x := newTenant(t, nil)
	client := bed.West.Client()
	require.NoError(t, client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "lodestone-home-reader:"+x.id, remove))
	require.NoError(t, client.RbacV1().ClusterRoles().Delete(t.Context(), "lodestone-home:"+x.id, remove))
	require.NoError(t, client.RbacV1().RoleBindings(x.tenantNamespace()).Delete(t.Context(), "lodestone-home-tenant", remove))
	require.NoError(t, client.CoordinationV1().Leases(x.tenantNamespace()).Delete(t.Context(), keys.HeartbeatLease, remove))
	require.NoError(t, client.CoreV1().ServiceAccounts(x.tenantNamespace()).Delete(t.Context(), keys.HomeAccount, remove))
	eventually(t, "its account is back", func() error {
		return second(client.CoreV1().ServiceAccounts(x.tenantNamespace()).Get(t.Context(), keys.HomeAccount, get))
	})
	// The tokens of the account that was deleted are worth nothing.
	x.login()
	eventually(t, "its rights are back", func() error {
		if err := second(x.client.CoreV1().Nodes().List(t.Context(), list)); err != nil {
			return err
		}
		if err := second(x.client.CoordinationV1().Leases(x.tenantNamespace()).Get(t.Context(), keys.HeartbeatLease, get)); err != nil {
			return err
		}
		return second(x.remote.HomeClusters().Get(t.Context(), x.id, get))
	})
	x.namespace()
}

func newHome(t *testing.T, id string, mutate func(*remotev1alpha1.HomeCluster)) tenant {
	t.Helper()
	home := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	mutate(home)
	_, err := bed.Agents.HomeClusters().Create(t.Context(), home, create)
	require.NoError(t, err)
	return tenant{t: t, id: id}
}

func TestANamespaceOfTheTenantsNameIsNotTakenOver(t *testing.T) {
	testbed.Require(t)
	id := "h" + rand.String(6)
	require.NoError(t, bed.West.MakeNamespace(t.Context(), keys.TenantPrefix+id))
	x := newHome(t, id, func(*remotev1alpha1.HomeCluster) {})
	assert.Contains(t, x.homeCondition(remotev1alpha1.Ready, metav1.ConditionFalse, "NamespaceExists"), keys.TenantPrefix+id)
	namespace := namespaceOf(t, keys.TenantPrefix+id)
	assert.Empty(t, namespace.Labels[keys.Tenant])
	_, err := bed.West.Client().CoreV1().ServiceAccounts(namespace.Name).Get(t.Context(), keys.HomeAccount, get)
	assert.True(t, apierrors.IsNotFound(err), "%v", err)

	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), id, remove))
	eventually(t, "the HomeCluster is gone", func() error {
		if err := second(bed.Agents.HomeClusters().Get(t.Context(), id, get)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	})
	assert.Nil(t, namespaceOf(t, namespace.Name).DeletionTimestamp)
}

func TestAHomeClusterThatLogsInByCertificate(t *testing.T) {
	testbed.Require(t)
	id := "h" + rand.String(6)
	x := newHome(t, id, func(home *remotev1alpha1.HomeCluster) { home.Spec.User = "system:masters" })
	x.homeCondition(remotev1alpha1.Ready, metav1.ConditionFalse, "InvalidUser")
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.User = keys.HomeUserPrefix + id })
	require.NoError(t, bed.AwaitTenant(t.Context(), id))
	config := bed.West.UserConfig(keys.HomeUserPrefix+id, keys.HomesGroup)
	var err error
	x.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	x.remote, err = remoteapi.NewClient(config)
	require.NoError(t, err)
	namespace := x.namespace()
	x.shadow(namespace, "web", nil)
	x.runs(namespace, "web")
	denied(t, map[string]error{
		"a NodePort Service: spec.serviceTypes": second(x.client.CoreV1().Services(namespace).Create(t.Context(), x.service(corev1.ServiceTypeNodePort), create)),
	})
	_, err = bed.West.Client().CoreV1().ServiceAccounts(x.tenantNamespace()).Get(t.Context(), keys.HomeAccount, get)
	assert.True(t, apierrors.IsNotFound(err), "it has no account: %v", err)

	// Back to an account: the user has no rights any more, in its namespaces neither.
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.User = "" })
	eventually(t, "the user has no rights", func() error {
		for _, err := range []error{
			second(x.client.CoreV1().Pods(namespace).List(t.Context(), list)),
			second(x.remote.NamespaceRequests(x.tenantNamespace()).List(t.Context(), list)),
			second(x.client.CoreV1().Nodes().List(t.Context(), list)),
		} {
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("answer %w", err)
			}
		}
		return nil
	})
	require.NoError(t, bed.AwaitTenant(t.Context(), id))
	x.login()
	eventually(t, "the account has the rights", func() error {
		return second(x.client.CoreV1().Pods(namespace).List(t.Context(), list))
	})
}

func TestAnotherHomeOfTheSameIDIsNotGivenWhatIsThere(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) { home.Spec.ClusterUID = "first" })
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.ClusterUID = "second" })
	x.homeCondition(remotev1alpha1.Ready, metav1.ConditionFalse, "AnotherHome")
}

func TestTheOfferIsPublished(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "web", nil)
	x.runs(namespace, "web")
	eventually(t, "the offer counts nodes, namespaces and pods", func() error {
		home, err := x.remote.HomeClusters().Get(t.Context(), x.id, get)
		if err != nil {
			return err
		}
		if s := home.Status; s.Nodes.Count != 2 || s.Pods != 1 || s.Namespaces != 1 || s.Capacity.Cpu().String() != "128" || s.Nodes.Architecture != "amd64" {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}
