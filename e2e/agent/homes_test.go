package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
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
	must.Create(t, x.client.CoreV1().PersistentVolumeClaims(full), x.newClaim(full, "data"))
	x.runs(empty, "web")
	x.runs(full, "db")
	kept := other.runs(theirs, "web")

	must.Delete(t, bed.Agents.HomeClusters(), x.id)
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
	claim := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(full), "data")
	assert.Nil(t, claim.DeletionTimestamp)

	// The owner keeps the namespace as its own.
	must.Kubectl(t, bed.West, "", "label", "namespace", full, keys.HomeID+"-")
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
	must.Delete(t, client.RbacV1().ClusterRoleBindings(), "lodestone-home-reader:"+x.id)
	must.Delete(t, client.RbacV1().ClusterRoles(), "lodestone-home:"+x.id)
	must.Delete(t, client.RbacV1().RoleBindings(x.tenantNamespace()), "lodestone-home-tenant")
	must.Delete(t, client.CoordinationV1().Leases(x.tenantNamespace()), keys.HeartbeatLease)
	must.Delete(t, client.CoreV1().ServiceAccounts(x.tenantNamespace()), keys.HomeAccount)
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
	home.Spec.Namespaces.Names = []string{"*"}
	mutate(home)
	must.Create(t, bed.Agents.HomeClusters(), home)
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

	must.Delete(t, bed.Agents.HomeClusters(), id)
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
	x.remote, err = clients.NewRemoteClient(config)
	require.NoError(t, err)
	namespace := x.namespace()
	x.shadow(namespace, "web", nil)
	x.runs(namespace, "web")
	denied(t, map[string]error{
		"a NodePort Service: spec.serviceTypes": second(x.client.CoreV1().Services(namespace).Create(t.Context(),
			x.service(corev1.ServiceTypeNodePort), create)),
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
		if s := home.Status; s.Nodes.Count != 2 || s.Pods != 1 || s.Namespaces != 1 || s.Capacity.Cpu().String() != "128" ||
			s.Nodes.Architecture != "amd64" {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

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
		"read a secret of its own namespace": second(core.Secrets(own).Get(t.Context(), "any", get)),
		"list secrets of its own namespace":  second(core.Secrets(own).List(t.Context(), list)),
		"watch secrets of its own namespace": second(core.Secrets(own).Watch(t.Context(), list)),
		"list secrets of kube-system":        second(core.Secrets(metav1.NamespaceSystem).List(t.Context(), list)),
		"list config maps of kube-system":    second(core.ConfigMaps(metav1.NamespaceSystem).List(t.Context(), list)),
		"list claims of another home":        second(core.PersistentVolumeClaims(foreign).List(t.Context(), list)),
		"list pods of another home":          second(core.Pods(foreign).List(t.Context(), list)),
		"list pods everywhere":               second(core.Pods("").List(t.Context(), list)),
		"list ShadowPods everywhere":         second(x.remote.ShadowPods("").List(t.Context(), list)),
		"read another home's requests":       second(x.remote.NamespaceRequests(other.tenantNamespace()).List(t.Context(), list)),
		"read another HomeCluster":           second(x.remote.HomeClusters().Get(t.Context(), other.id, get)),
		"list HomeClusters":                  second(x.remote.HomeClusters().List(t.Context(), list)),
		"make a HomeCluster": second(x.remote.HomeClusters().Create(t.Context(),
			&remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"widen its own HomeCluster": second(x.remote.HomeClusters().Patch(t.Context(), x.id, types.MergePatchType,
			[]byte(`{"spec":{"priorityClasses":["system-node-critical"]}}`), metav1.PatchOptions{})),
		"write the status of its HomeCluster": second(x.remote.HomeClusters().Patch(t.Context(), x.id, types.MergePatchType,
			[]byte(`{"status":{"pods":0}}`), metav1.PatchOptions{}, "status")),
		"make a pod": second(core.Pods(own).Create(t.Context(), fabric.NewPod(own, "mine"), create)),
		"add a container to a pod": second(core.Pods(own).UpdateEphemeralContainers(t.Context(), "any",
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, update)),
		"delete a pod": core.Pods(own).Delete(t.Context(), "any", remove),
		"make a service account": second(core.ServiceAccounts(own).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"get a token of another account": second(core.ServiceAccounts(own).CreateToken(t.Context(), "default",
			&authenticationv1.TokenRequest{}, create)),
		"get a token of the agent": second(core.ServiceAccounts("lodestone-remote").CreateToken(t.Context(),
			"lodestone-remote-agent", &authenticationv1.TokenRequest{}, create)),
		"get a token of another home": second(core.ServiceAccounts(other.tenantNamespace()).CreateToken(t.Context(), keys.HomeAccount,
			&authenticationv1.TokenRequest{}, create)),
		"make a namespace": second(core.Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"label a namespace": second(core.Namespaces().Patch(t.Context(), own, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), metav1.PatchOptions{})),
		"list namespaces": second(core.Namespaces().List(t.Context(), list)),
		"make a volume": second(core.PersistentVolumes().Create(t.Context(),
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"change a node": second(core.Nodes().Patch(t.Context(), "west-1", types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})),
		"delete its quota": core.ResourceQuotas(own).Delete(t.Context(), "lodestone", remove),
		"bind a role in its namespace": second(x.client.RbacV1().RoleBindings(own).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: role, Subjects: me}, create)),
		"bind a role in the cluster": second(x.client.RbacV1().ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: role, Subjects: me}, create)),
		"act as another home": second(as.CoreV1().Pods(foreign).List(t.Context(), list)),
		"write the status of a ShadowPod": second(x.remote.ShadowPods(own).Patch(t.Context(), "any", types.MergePatchType,
			[]byte(`{"status":{"phase":"Lost"}}`), metav1.PatchOptions{}, "status")),
		"make a lease in its namespace":     second(x.client.CoordinationV1().Leases(own).List(t.Context(), list)),
		"make a ShadowPod for another home": second(x.remote.ShadowPods(foreign).Create(t.Context(), other.newShadow(foreign, "x"), create)),
		"make a ShadowPod in kube-system": second(x.remote.ShadowPods(metav1.NamespaceSystem).Create(t.Context(),
			x.newShadow(metav1.NamespaceSystem, "x"), create)),
		"make a ShadowPod in its own namespace": second(x.remote.ShadowPods(x.tenantNamespace()).Create(t.Context(),
			x.newShadow(x.tenantNamespace(), "x"), create)),
	})

	// What it may do.
	x.shadow(own, "web", nil)
	x.runs(own, "web")
	exec := core.RESTClient().Post().Namespace(own).Resource("pods").Name("web").SubResource("exec").Param("command", "true").Param("stdout",
		"true").Do(t.Context()).Error()
	assert.False(t, apierrors.IsForbidden(exec), "exec in its own pod is only refused because no kubelet answers: %v", exec)
	allowed := map[string]error{
		"renew its own token": second(core.ServiceAccounts(x.tenantNamespace()).CreateToken(t.Context(), keys.HomeAccount,
			&authenticationv1.TokenRequest{}, create)),
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

// shadowOf makes a ShadowPod with home's rights and with anything as its template.
func (x tenant) shadowOf(namespace, name string, template any) {
	x.t.Helper()
	text, err := json.Marshal(x.newShadow(namespace, name))
	require.NoError(x.t, err)
	var object map[string]any
	require.NoError(x.t, json.Unmarshal(text, &object))
	object["apiVersion"], object["kind"] = remotev1alpha1.GroupVersion.String(), "ShadowPod"
	object["spec"].(map[string]any)["pod"] = template
	text, err = json.Marshal(object)
	require.NoError(x.t, err)
	eventually(x.t, "home may make ShadowPods", func() error {
		return x.client.CoreV1().RESTClient().Post().
			AbsPath("/apis", remotev1alpha1.GroupVersion.Group, remotev1alpha1.GroupVersion.Version, "namespaces", namespace, "shadowpods").
			SetHeader("Content-Type", "application/json").Body(text).Do(x.t.Context()).Error()
	})
}

func TestATemplateThatIsNoneHindersNobody(t *testing.T) {
	testbed.NotInShort(t)
	hostile, other := newTenant(t, nil), newTenant(t, nil)
	bad := hostile.namespace()
	hostile.shadowOf(bad, "text", "x")
	hostile.shadowOf(bad, "quantity", map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "app", "image": "app:1", "resources": map[string]any{"requests": map[string]any{"cpu": "abc"}}},
	}}})
	hostile.pending(bad, "text", policy.ReasonUnreadable, "not the template of a pod")
	hostile.pending(bad, "quantity", policy.ReasonUnreadable, "not the template of a pod")

	// An agent that starts now lists them.
	t.Run("without an agent", withoutAgent)
	good := other.namespace()
	other.shadow(good, "web", nil)
	other.runs(good, "web")

	// And they keep no HomeCluster.
	must.Delete(t, bed.Agents.HomeClusters(), hostile.id)
	eventually(t, "the HomeCluster is gone", func() error {
		if err := second(bed.Agents.HomeClusters().Get(t.Context(), hostile.id, get)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	})
}

func TestAHomeClusterGetsNamespacesAndPods(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	shadow := x.shadow(namespace, "web", nil)
	pod := x.runs(namespace, "web")
	assert.Equal(t, x.id, pod.Labels[keys.HomeID])
	assert.Equal(t, string(shadow.Spec.Home.UID), pod.Labels[keys.PodUID])
	assert.Equal(t, "web", pod.Labels["app"])
	assert.Equal(t, namespace+"/web", pod.Annotations[keys.Pod])
	require.NotNil(t, pod.Spec.AutomountServiceAccountToken)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.Equal(t, pod.UID, x.phase(namespace, "web", remotev1alpha1.ShadowPodCreated).Status.PodUID)

	// Changes of the template are carried; what others wrote stays.
	must.Kubectl(t, bed.West, "", "annotate", "pod", "-n", namespace, "web", "example.com/by=another")
	must.Patch(t, x.remote.ShadowPods(namespace), "web", types.JSONPatchType, []byte(`[
		{"op":"replace","path":"/spec/pod/metadata/labels","value":{"tier":"front"}},
		{"op":"replace","path":"/spec/pod/spec/containers/0/image","value":"app:2"}]`))
	eventually(t, "the change is carried", func() error {
		pod = x.runs(namespace, "web")
		if pod.Spec.Containers[0].Image != "app:2" || pod.Labels["tier"] != "front" || pod.Labels["app"] != "" {
			return assert.AnError
		}
		return nil
	})
	assert.Equal(t, "another", pod.Annotations["example.com/by"])
	assert.Equal(t, string(shadow.Spec.Home.UID), pod.Labels[keys.PodUID])

	must.Delete(t, x.remote.ShadowPods(namespace), "web")
	x.goes(namespace, "web")
}
