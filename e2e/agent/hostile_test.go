package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func second[T any](_ T, err error) error { return err }

// forbidden checks that each attempt is refused, and not because of a mistake in
// the attempt.
func forbidden(t *testing.T, attempts map[string]error) {
	t.Helper()
	for what, err := range attempts {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

var (
	get    = metav1.GetOptions{}
	list   = metav1.ListOptions{}
	create = metav1.CreateOptions{}
	update = metav1.UpdateOptions{}
	remove = metav1.DeleteOptions{}
)

func TestAHomeClusterHasNoRightsElsewhere(t *testing.T) {
	x, other := newTenant(t, nil), newTenant(t, nil)
	own, foreign := x.namespace(), other.namespace()
	core := x.client.CoreV1()
	config, err := bed.West.ServiceAccountConfig(t.Context(), x.tenantNamespace(), keys.HomeAccount)
	require.NoError(t, err)
	impersonate := rest.CopyConfig(config)
	impersonate.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + other.tenantNamespace() + ":" + keys.HomeAccount}
	as, err := kubernetes.NewForConfig(impersonate)
	require.NoError(t, err)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	me := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: x.tenantNamespace(), Name: keys.HomeAccount}}

	forbidden(t, map[string]error{
		"read a secret of its own namespace":    second(core.Secrets(own).Get(t.Context(), "any", get)),
		"list secrets of its own namespace":     second(core.Secrets(own).List(t.Context(), list)),
		"watch secrets of its own namespace":    second(core.Secrets(own).Watch(t.Context(), list)),
		"list secrets of kube-system":           second(core.Secrets(metav1.NamespaceSystem).List(t.Context(), list)),
		"list config maps of kube-system":       second(core.ConfigMaps(metav1.NamespaceSystem).List(t.Context(), list)),
		"list claims of another home":           second(core.PersistentVolumeClaims(foreign).List(t.Context(), list)),
		"list pods of another home":             second(core.Pods(foreign).List(t.Context(), list)),
		"list pods everywhere":                  second(core.Pods("").List(t.Context(), list)),
		"list ShadowPods everywhere":            second(x.remote.ShadowPods("").List(t.Context(), list)),
		"read another home's requests":          second(x.remote.NamespaceRequests(other.tenantNamespace()).List(t.Context(), list)),
		"read another HomeCluster":              second(x.remote.HomeClusters().Get(t.Context(), other.id, get)),
		"list HomeClusters":                     second(x.remote.HomeClusters().List(t.Context(), list)),
		"make a HomeCluster":                    second(x.remote.HomeClusters().Create(t.Context(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"widen its own HomeCluster":             second(x.remote.HomeClusters().Patch(t.Context(), x.id, types.MergePatchType, []byte(`{"spec":{"priorityClasses":["system-node-critical"]}}`), metav1.PatchOptions{})),
		"write the status of its HomeCluster":   second(x.remote.HomeClusters().Patch(t.Context(), x.id, types.MergePatchType, []byte(`{"status":{"pods":0}}`), metav1.PatchOptions{}, "status")),
		"make a pod":                            second(core.Pods(own).Create(t.Context(), fabric.NewPod(own, "mine"), create)),
		"add a container to a pod":              second(core.Pods(own).UpdateEphemeralContainers(t.Context(), "any", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, update)),
		"delete a pod":                          core.Pods(own).Delete(t.Context(), "any", remove),
		"make a service account":                second(core.ServiceAccounts(own).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"get a token of another account":        second(core.ServiceAccounts(own).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, create)),
		"get a token of the agent":              second(core.ServiceAccounts("lodestone-remote").CreateToken(t.Context(), "lodestone-remote-agent", &authenticationv1.TokenRequest{}, create)),
		"get a token of another home":           second(core.ServiceAccounts(other.tenantNamespace()).CreateToken(t.Context(), keys.HomeAccount, &authenticationv1.TokenRequest{}, create)),
		"make a namespace":                      second(core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"label a namespace":                     second(core.Namespaces().Patch(t.Context(), own, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), metav1.PatchOptions{})),
		"list namespaces":                       second(core.Namespaces().List(t.Context(), list)),
		"make a volume":                         second(core.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"change a node":                         second(core.Nodes().Patch(t.Context(), "west-1", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})),
		"delete its quota":                      core.ResourceQuotas(own).Delete(t.Context(), "lodestone", remove),
		"bind a role in its namespace":          second(x.client.RbacV1().RoleBindings(own).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: role, Subjects: me}, create)),
		"bind a role in the cluster":            second(x.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: role, Subjects: me}, create)),
		"act as another home":                   second(as.CoreV1().Pods(foreign).List(t.Context(), list)),
		"write the status of a ShadowPod":       second(x.remote.ShadowPods(own).Patch(t.Context(), "any", types.MergePatchType, []byte(`{"status":{"phase":"Lost"}}`), metav1.PatchOptions{}, "status")),
		"make a lease in its namespace":         second(x.client.CoordinationV1().Leases(own).List(t.Context(), list)),
		"make a ShadowPod for another home":     second(x.remote.ShadowPods(foreign).Create(t.Context(), other.newShadow(foreign, "x"), create)),
		"make a ShadowPod in kube-system":       second(x.remote.ShadowPods(metav1.NamespaceSystem).Create(t.Context(), x.newShadow(metav1.NamespaceSystem, "x"), create)),
		"make a ShadowPod in its own namespace": second(x.remote.ShadowPods(x.tenantNamespace()).Create(t.Context(), x.newShadow(x.tenantNamespace(), "x"), create)),
	})

	// What it may do.
	x.shadow(own, "web", nil)
	x.runs(own, "web")
	exec := core.RESTClient().Post().Namespace(own).Resource("pods").Name("web").SubResource("exec").Param("command", "true").Param("stdout", "true").Do(t.Context()).Error()
	assert.False(t, apierrors.IsForbidden(exec), "exec in its own pod is only refused because no kubelet answers: %v", exec)
	allowed := map[string]error{
		"renew its own token":    second(core.ServiceAccounts(x.tenantNamespace()).CreateToken(t.Context(), keys.HomeAccount, &authenticationv1.TokenRequest{}, create)),
		"read its HomeCluster":   second(x.remote.HomeClusters().Get(t.Context(), x.id, get)),
		"read nodes":             second(core.Nodes().List(t.Context(), list)),
		"read volumes":           second(core.PersistentVolumes().List(t.Context(), list)),
		"read capacities":        second(x.client.StorageV1().CSIStorageCapacities("").List(t.Context(), list)),
		"read classes":           second(x.client.StorageV1().StorageClasses().List(t.Context(), list)),
		"tell clusters apart":    second(core.Namespaces().Get(t.Context(), metav1.NamespaceSystem, get)),
		"read pods of its own":   second(core.Pods(own).List(t.Context(), list)),
		"read events of its own": second(core.Events(own).List(t.Context(), list)),
	}
	for what, err := range allowed {
		assert.NoError(t, err, what)
	}
}
