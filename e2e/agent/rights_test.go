package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestTheAgentGivesNoMoreThanItsOwnerLaidDown: what it hands out are the roles of
// deploy/remote, and it cannot make others that hold more than its own.
func TestTheAgentGivesNoMoreThanItsOwnerLaidDown(t *testing.T) {
	testbed.Require(t)
	config, err := bed.West.ServiceAccountConfig(t.Context(), "lodestone-remote", "lodestone-remote-agent")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	remote, err := clients.NewRemoteClient(config)
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
		"read secrets":          second(client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), list)),
		"make a role with more": second(client.RbacV1().ClusterRoles().Create(t.Context(), secrets, create)),
		"bind a role with more": second(client.RbacV1().ClusterRoleBindings().Create(t.Context(), admin, create)),
		"get a token of an account": second(client.CoreV1().ServiceAccounts("lodestone-remote").CreateToken(t.Context(),
			"lodestone-remote-agent", &authenticationv1.TokenRequest{}, create)),
		"make a HomeCluster": second(remote.HomeClusters().Create(t.Context(),
			&remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"delete a HomeCluster": remote.HomeClusters().Delete(t.Context(), "mine", remove),
		"delete a claim":       client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Delete(t.Context(), "any", remove),
		"delete a volume":      client.CoreV1().PersistentVolumes().Delete(t.Context(), "any", remove),
		"make a volume": second(client.CoreV1().PersistentVolumes().Create(t.Context(),
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"write the status of a claim": second(client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Patch(t.Context(), "any",
			types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")),
		"change its admission policy": client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), "lodestone-home",
			remove),
		"read leases that are not its": second(client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler", get)),
		"act as another user":          asAnother(t, config, rest.ImpersonationConfig{UserName: "system:admin"}),
		"act for a group":              asAnother(t, config, rest.ImpersonationConfig{UserName: "x", Groups: []string{"system:masters"}}),
		"act as its own marker": asAnother(t, config,
			rest.ImpersonationConfig{UserName: "system:serviceaccount:lodestone-remote:lodestone-marker"}),
		"act as another account": asAnother(t, config, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:default"}),
		"act as a UID":           asAnother(t, config, rest.ImpersonationConfig{UserName: "x", UID: "1"}),
		"make a ShadowPod": second(remote.ShadowPods(metav1.NamespaceDefault).Create(t.Context(),
			&remotev1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "mine", Finalizers: []string{keys.ShadowPodFinalizer}}}, create)),
	})
}

// asAnother is the error of a request that is made as somebody else.
func asAnother(t *testing.T, config *rest.Config, who rest.ImpersonationConfig) error {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = who
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return second(client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, get))
}

// almighty is a tenant that somebody gave every right by mistake, which leaves
// the admission policy.
func almighty(t *testing.T, x tenant) {
	t.Helper()
	bindings := bed.West.Client().RbacV1().ClusterRoleBindings()
	must.Create(t, bindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mistake-" + x.id},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: x.tenantNamespace(), Name: keys.HomeAccount}},
	})
	eventually(t, "the rights are known", func() error {
		return second(x.client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), list))
	})
}

// denied checks that each attempt is refused by the admission policy, with a word
// of its sentence.
func denied(t *testing.T, attempts map[string]error) {
	t.Helper()
	for what, err := range attempts {
		what, says, _ := strings.Cut(what, ": ")
		require.Error(t, err, what)
		assert.Contains(t, err.Error(), "ValidatingAdmissionPolicy 'lodestone-home'", what)
		assert.Contains(t, err.Error(), says, what)
	}
}

func (x tenant) labelled(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.HomeID: x.id}}
}

func TestAdmissionConfinesAHomeClusterWhateverItsRoles(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}
	})
	other := newTenant(t, nil)
	own, foreign := x.namespace(), other.namespace()
	almighty(t, x)
	core := x.client.CoreV1()
	configMap := &corev1.ConfigMap{ObjectMeta: x.labelled("mine")}
	theirs := other.newShadow(own, "theirs")
	theirs.Labels[keys.HomeID] = x.id
	wrong := x.newShadow(own, "wrong")
	wrong.Labels[keys.PodUID] = "another"
	held := x.shadow(own, "held", nil)
	held.Finalizers = nil
	x.runs(own, "held")
	older := x.newClaim(own, "older")
	older.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: ""}
	must.Create(t, core.PersistentVolumeClaims(own), x.newClaim(own, "good"))
	// A patch answers with the object.
	must.Create(t, bed.West.Client().CoreV1().Secrets(own), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}})

	denied(t, map[string]error{
		"write in kube-system: not made for it": second(core.ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), configMap,
			create)),
		"write in default: not made for it": second(core.ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), configMap,
			create)),
		"write in another home's namespace: not made for it":  second(core.ConfigMaps(foreign).Create(t.Context(), configMap, create)),
		"delete in another home's namespace: not made for it": core.ConfigMaps(foreign).Delete(t.Context(), "kube-root-ca.crt", remove),
		"write beside its own: own token": second(core.ConfigMaps(x.tenantNamespace()).Create(t.Context(), configMap,
			create)),
		"request for another: not made for it": second(x.remote.NamespaceRequests(other.tenantNamespace()).Create(t.Context(),
			&remotev1alpha1.NamespaceRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"},
				Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "x"}}, create)),
		"change the cluster: outside its namespaces": second(core.Nodes().Patch(t.Context(), "west-1", types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})),
		"change its HomeCluster: outside its namespaces": second(x.remote.HomeClusters().Patch(t.Context(), x.id, types.MergePatchType,
			[]byte(`{"spec":{"tolerations":["x"]}}`), metav1.PatchOptions{})),
		"make a namespace: was not made for it": second(core.Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: x.labelled("mine-" + x.id)}, create)),
		"bind a role: may not change": second(x.client.RbacV1().RoleBindings(own).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: x.labelled("mine"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: "admin"}}, create)),
		"make a pod: made by the remote agent": second(core.Pods(own).Create(t.Context(),
			&corev1.Pod{ObjectMeta: x.labelled("mine"), Spec: fabric.NewPod(own, "mine").Spec}, create)),
		"delete a pod: made by the remote agent": core.Pods(own).Delete(t.Context(), "held", remove),
		"evict a pod: made by the remote agent":  x.client.CoreV1().RESTClient().Post().Namespace(own).Resource("pods").Name("held").SubResource("eviction").Body([]byte(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"held"}}`)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(),
		"take a quota away: may not change":      core.ResourceQuotas(own).Delete(t.Context(), "lodestone", remove),
		"an unlabelled object: must have the label": second(core.ConfigMaps(own).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, create)),
		"an object of another: must have the label": second(core.ConfigMaps(own).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: other.labelled("mine")}, create)),
		"delete what is not its own: not made by": core.ConfigMaps(own).Delete(t.Context(), "kube-root-ca.crt", remove),
		"take over what is not its own: not made by": second(core.ConfigMaps(own).Patch(t.Context(), "kube-root-ca.crt",
			types.MergePatchType, []byte(`{"metadata":{"labels":{"lodestone.dev/home":"`+x.id+`"}}}`), metav1.PatchOptions{})),
		"a ShadowPod of another home: must name its own": second(x.remote.ShadowPods(own).Create(t.Context(), theirs, create)),
		"a ShadowPod of another pod: must name its own":  second(x.remote.ShadowPods(own).Create(t.Context(), wrong, create)),
		"take a finalizer off: once its pod is gone": second(x.remote.ShadowPods(own).Patch(t.Context(), "held", types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})),
		"read a foreign Secret by a patch: must have the label": second(core.Secrets(own).Patch(t.Context(), "foreign", types.MergePatchType,
			[]byte(`{}`), metav1.PatchOptions{})),
		"a token of the cluster: a token of this cluster": second(core.Secrets(own).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Labels: map[string]string{keys.HomeID: x.id},
				Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}, create)),
		"an EndpointSlice to another namespace: own namespace": second(x.client.DiscoveryV1().EndpointSlices(own).Create(t.Context(),
			x.slice(foreign), create)),
		"a Service with an external IP: external IPs": second(core.Services(own).Create(t.Context(),
			x.service(corev1.ServiceTypeClusterIP, "192.0.2.1"), create)),
		"a NodePort Service: spec.serviceTypes": second(core.Services(own).Create(t.Context(),
			x.service(corev1.ServiceTypeNodePort), create)),
		"a LoadBalancer Service: spec.serviceTypes": second(core.Services(own).Create(t.Context(),
			x.service(corev1.ServiceTypeLoadBalancer), create)),
		"a claim that names a volume: existing-volumes": second(core.PersistentVolumeClaims(own).Create(t.Context(),
			x.claim(own, func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeName = "any" }), create)),
		"a claim that selects volumes: existing-volumes": second(core.PersistentVolumeClaims(own).Create(t.Context(),
			x.claim(own, func(s *corev1.PersistentVolumeClaimSpec) { s.Selector = &metav1.LabelSelector{} }), create)),
		"a claim without a class: existing-volumes": second(core.PersistentVolumeClaims(own).Create(t.Context(),
			x.claim(own, func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = new(string) }), create)),
		"a claim with the older annotation: existing-volumes": second(core.PersistentVolumeClaims(own).Create(t.Context(), older, create)),
		"the older annotation, added: chosen by the cluster": second(core.PersistentVolumeClaims(own).Patch(t.Context(), "good",
			types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":""}}}`), metav1.PatchOptions{})),
	})
	assert.NotNil(t, podOf(t, own, "held"))
	_, err := core.ConfigMaps(own).Create(t.Context(), configMap, create)
	assert.NoError(t, err, "the rules leave what is its own")
	_, err = core.PersistentVolumeClaims(own).Create(t.Context(), x.claim(own, func(s *corev1.PersistentVolumeClaimSpec) {
		s.StorageClassName = nil
	}), create)
	assert.NoError(t, err, "a claim that names no class has the cluster's default class by the time of the rules")
}

func (x tenant) slice(target string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: x.labelled("slice"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: target,
			Name: "any"}}},
	}
}

func (x tenant) service(kind corev1.ServiceType, externalIPs ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: x.labelled("service"), Spec: corev1.ServiceSpec{
		Type: kind, ExternalIPs: externalIPs, Ports: []corev1.ServicePort{{Port: 80}},
	}}
}

func (x tenant) claim(namespace string, change func(*corev1.PersistentVolumeClaimSpec)) *corev1.PersistentVolumeClaim {
	claim := x.newClaim(namespace, "claim")
	change(&claim.Spec)
	return claim
}

func TestWhatTheOwnerAllowsIsAdmitted(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.ServiceTypes = []corev1.ServiceType{corev1.ServiceTypeNodePort}
	})
	own := x.namespace()
	core := x.client.CoreV1()
	eventually(t, "home has its rights", func() error { return second(core.Services(own).List(t.Context(), list)) })
	_, err := core.Services(own).Create(t.Context(), x.service(corev1.ServiceTypeNodePort), create)
	assert.NoError(t, err)
	_, err = x.client.DiscoveryV1().EndpointSlices(own).Create(t.Context(), x.slice(own), create)
	assert.NoError(t, err)
	_, err = core.Secrets(own).Create(t.Context(), &corev1.Secret{ObjectMeta: x.labelled("secret")}, create)
	assert.NoError(t, err)
	_, err = core.PersistentVolumeClaims(own).Create(t.Context(), x.newClaim(own, "data"), create)
	assert.NoError(t, err)
	_, err = core.PersistentVolumeClaims(own).Patch(t.Context(), "data", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
	assert.NoError(t, err)
	assert.NoError(t, core.PersistentVolumeClaims(own).Delete(t.Context(), "data", remove))

	must.Kubectl(t, bed.West, "", "label", "namespace", own, keys.ExistingVolumes+"="+keys.ExistingVolumesAllowed)
	eventually(t, "existing volumes are allowed", func() error {
		return second(core.PersistentVolumeClaims(own).Create(t.Context(), x.claim(own, func(s *corev1.PersistentVolumeClaimSpec) {
			s.VolumeName = "any"
		}), create))
	})
}
