package clusters

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestAClusterThatCannotBeUsedSaysWhy(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { // after all of the rows, which run at once
		assert.Equal(t, metav1.ConditionTrue, condition(t, "west", v1alpha1.Ready).Status, "west is not touched by any of them")
	})
	for name, test := range map[string]struct {
		id         string
		kubeconfig func(t *testing.T) []byte // nil: no Secret
		reason     string
		says       []string
		authorized metav1.ConditionStatus
	}{
		"there is no Secret": {
			id: "no-secret", reason: "BadKubeconfig", says: []string{"there is no Secret lodestone-system/no-secret"}, authorized: metav1.ConditionFalse},
		"the kubeconfig is none": {
			id: "garbage", kubeconfig: func(*testing.T) []byte { return []byte("hello") },
			reason: "BadKubeconfig", says: []string{"cannot be read"}, authorized: metav1.ConditionFalse},
		"the kubeconfig runs a command": {
			id: "exec", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
					user.Token = ""
					user.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
				})
			}, reason: "BadKubeconfig", says: []string{"runs a command (exec)"}, authorized: metav1.ConditionFalse},
		"the token is wrong": {
			id: "token", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.Token = "wrong" })
			}, reason: "NotAuthorized", says: []string{"does not accept the credentials", "renew them"}, authorized: metav1.ConditionFalse},
		"there are no rights": {
			id: "no-rights", kubeconfig: func(t *testing.T) []byte { return accountWith(t, bed.West, "no-rights") },
			reason: "NotAuthorized", says: []string{"may not get namespace kube-system"}, authorized: metav1.ConditionFalse},
		"some rights are missing": {
			id: "some-rights", kubeconfig: func(t *testing.T) []byte {
				return accountWith(t, bed.West, "some-rights",
					rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
					rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list"}})
			}, reason: "NotAuthorized",
			says:       []string{"may not watch persistentvolumes, list storageclasses, watch storageclasses there", "deploy/remote-volumes"},
			authorized: metav1.ConditionFalse},
		"nobody answers": {
			id: "nobody", kubeconfig: func(t *testing.T) []byte {
				return altered(t, func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cluster.Server = "https://127.0.0.1:1" })
			}, reason: "NotReachable", says: []string{"connection refused"}, authorized: metav1.ConditionUnknown},
		"it is the home cluster itself": {
			id: "itself", kubeconfig: func(t *testing.T) []byte {
				return accountWith(t, bed.Home, "itself", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
			}, reason: "PointsHome", says: []string{"the home cluster itself"}, authorized: metav1.ConditionTrue},
		"an older object stands for it": {
			id: "west-again", kubeconfig: func(t *testing.T) []byte { return kubeconfigOf(t, bed.West) },
			reason: "Duplicate", says: []string{`"west" already stands`}, authorized: metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kubeconfig []byte
			if test.kubeconfig != nil {
				kubeconfig = test.kubeconfig(t)
			}
			registered(t, test.id, kubeconfig)
			message := becomes(t, test.id, metav1.ConditionFalse, test.reason)
			for _, says := range test.says {
				assert.Contains(t, message, says)
			}
			assert.Equal(t, test.authorized, condition(t, test.id, v1alpha1.Authorized).Status)
			assert.Empty(t, status(t, test.id).StorageClasses, "nothing is offered")
			// The object goes, and its Secret with it, when the test cleans up.
		})
	}
}

func TestASecretMustBeWhereLodestoneRuns(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	secret(t, namespace, "elsewhere", "kubeconfig", kubeconfigOf(t, east))
	_, err := bed.Remotes.Create(t.Context(), &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: namespace, Name: "elsewhere"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { unregister(t, "elsewhere") })
	assert.Contains(t, becomes(t, "elsewhere", metav1.ConditionFalse, "BadKubeconfig"), "must be in namespace "+fabric.System)
}

func TestASecretNeedsTheKeyThatIsNamed(t *testing.T) {
	testbed.Require(t)
	secret(t, fabric.System, "other-key", "config", kubeconfigOf(t, east))
	registered(t, "other-key", nil)
	assert.Contains(t, becomes(t, "other-key", metav1.ConditionFalse, "BadKubeconfig"), "has no key kubeconfig")
}

func TestTheAPIServerRefusesWhatCannotWork(t *testing.T) {
	testbed.Require(t)
	valid := func(name string) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: "none"}}}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.RemoteCluster)
		says   string
	}{
		"the name of the home cluster":  {change: func(r *v1alpha1.RemoteCluster) { r.Name = "home" }, says: "stands for the home cluster"},
		"a name that is no label value": {change: func(r *v1alpha1.RemoteCluster) { r.Name = strings.Repeat("a", 64) }, says: "at most 63"},
		"a name with a dot":             {change: func(r *v1alpha1.RemoteCluster) { r.Name = "west.one" }, says: "cluster ID"},
		"a Secret without a name":       {change: func(r *v1alpha1.RemoteCluster) { r.Spec.KubeconfigSecretRef.Name = "" }, says: "kubeconfigSecretRef.name"},
		"a strategy that nobody knows":  {change: func(r *v1alpha1.RemoteCluster) { r.Spec.Namespaces.Strategy = "Random" }, says: "Random"},
	} {
		t.Run(name, func(t *testing.T) {
			remote := valid("not-valid")
			test.change(remote)
			_, err := bed.Remotes.Create(t.Context(), remote, metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, test.says)
		})
	}
	t.Run("another strategy later", func(t *testing.T) {
		registered(t, "moved", nil)
		for range 5 {
			remote, err := bed.Remotes.Get(t.Context(), "moved", metav1.GetOptions{})
			require.NoError(t, err)
			remote.Spec.Namespaces.Strategy = v1alpha1.Suffixed
			if _, err = bed.Remotes.Update(t.Context(), remote, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
				continue
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, "cannot be changed")
			return
		}
		require.Fail(t, "only conflicts")
	})
}

// altered returns the kubeconfig of west after a change.
func altered(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfigOf(t, bed.West))
	require.NoError(t, err)
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

// accountWith returns the kubeconfig of a new account with just these rights.
func accountWith(t *testing.T, cluster *testbed.Cluster, name string, rules ...rbacv1.PolicyRule) []byte {
	t.Helper()
	namespace := testbed.Namespace(t, cluster)
	_, err := cluster.Client().CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	rbac := cluster.Client().RbacV1()
	_, err = rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	data, err := cluster.ServiceAccountKubeconfig(t.Context(), namespace, name)
	require.NoError(t, err)
	return data
}
