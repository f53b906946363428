package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// TestTheAgentGivesNoMoreThanItsOwnerLaidDown: what it hands out are the roles of
// deploy/remote, and it cannot make others that hold more than its own.
func TestTheAgentGivesNoMoreThanItsOwnerLaidDown(t *testing.T) {
	testbed.Require(t)
	config, err := bed.West.ServiceAccountConfig(t.Context(), "lodestone-remote", "lodestone-remote-agent")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	remote, err := remoteapi.NewClient(config)
	require.NoError(t, err)
	secrets := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "secrets"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
	}}
	admin := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "lodestone-remote", Name: "lodestone-remote-agent"}},
	}
	forbidden(t, map[string]error{
		"read secrets":                 second(client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), list)),
		"make a role with more":        second(client.RbacV1().ClusterRoles().Create(t.Context(), secrets, create)),
		"bind a role with more":        second(client.RbacV1().ClusterRoleBindings().Create(t.Context(), admin, create)),
		"get a token of an account":    second(client.CoreV1().ServiceAccounts("lodestone-remote").CreateToken(t.Context(), "lodestone-remote-agent", &authenticationv1.TokenRequest{}, create)),
		"make a HomeCluster":           second(remote.HomeClusters().Create(t.Context(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"delete a HomeCluster":         remote.HomeClusters().Delete(t.Context(), "mine", remove),
		"delete a claim":               client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Delete(t.Context(), "any", remove),
		"delete a volume":              client.CoreV1().PersistentVolumes().Delete(t.Context(), "any", remove),
		"make a volume":                second(client.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"write the status of a claim":  second(client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Patch(t.Context(), "any", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")),
		"change its admission policy":  client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), "lodestone-home", remove),
		"read leases that are not its": second(client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler", get)),
		"make a ShadowPod":             second(remote.ShadowPods(metav1.NamespaceDefault).Create(t.Context(), &remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "mine", Finalizers: []string{keys.ShadowPodFinalizer}}}, create)),
	})
}
