package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestPeerMakesARemoteClusterThatIsReady(t *testing.T) {
	r := peered(t, "--offer", "cpu=4,memory=8Gi", "--namespaces", "shop-*,test-*", "--pod-security", "restricted", "--pod-network", "Routed")
	assert.Equal(t, "remotecluster.lodestone.dev/west peered\n", r.out)

	remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, meta.IsStatusConditionTrue(remote.Status.Conditions, v1alpha1.Ready))
	assert.Equal(t, v1alpha1.Routed, remote.Spec.PodNetwork)
	assert.Equal(t, v1alpha1.SameName, remote.Spec.Namespaces.Strategy)

	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	home, err := bed.Agents.HomeClusters().Get(t.Context(), id, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "4", home.Spec.Offer.Cpu().String())
	assert.Equal(t, []string{"shop-*", "test-*"}, home.Spec.Namespaces.Names)
	assert.Equal(t, "restricted", home.Spec.Namespaces.PodSecurity)
	assert.EqualValues(t, 100, home.Spec.Namespaces.Maximum)

	t.Run("and again changes nothing", func(t *testing.T) {
		before, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		r := lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.NotContains(t, r.stderr, "changed")
		assert.NotContains(t, r.stderr, "made")
		after, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, before.ResourceVersion, after.ResourceVersion)
	})
	t.Run("and again with another offer changes that alone", func(t *testing.T) {
		lodestone(t, "peer", "--remote-context", "west", "--offer", "cpu=2").ends(t, done)
		home, err := bed.Agents.HomeClusters().Get(t.Context(), id, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "2", home.Spec.Offer.Cpu().String())
		assert.Equal(t, "restricted", home.Spec.Namespaces.PodSecurity)
	})
	t.Run("and --renew gives it another token", func(t *testing.T) {
		before := kubeconfigOf(t, "west")
		lodestone(t, "peer", "--remote-context", "west", "--renew").ends(t, done)
		assert.NotEqual(t, before, kubeconfigOf(t, "west"))
	})
	t.Run("and a token that is not accepted is replaced", func(t *testing.T) {
		before := kubeconfigOf(t, "west")
		require.NoError(t, bed.West.Client().CoreV1().ServiceAccounts(keys.TenantPrefix+id).Delete(t.Context(), keys.HomeAccount, metav1.DeleteOptions{}))
		await.Until(t, "the agent has made the account again", func() bool {
			_, err := bed.West.Client().CoreV1().ServiceAccounts(keys.TenantPrefix+id).Get(t.Context(), keys.HomeAccount, metav1.GetOptions{})
			return err == nil
		})
		// An API server remembers for some seconds that a token was good.
		await.Until(t, "the token is refused", func() bool { return !accepted(t, before) })
		lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.NotEqual(t, before, kubeconfigOf(t, "west"))
		assert.True(t, accepted(t, kubeconfigOf(t, "west")))
	})
	t.Run("and another name for the same cluster is refused", func(t *testing.T) {
		r := lodestone(t, "peer", "--remote-context", "west-again", "--name", "occident").ends(t, refused)
		assert.Contains(t, r.stderr, `is peered already, as "west"`)
	})
}

func TestPeerByCertificate(t *testing.T) {
	r := peered(t, "--auth", "certificate")
	assert.Contains(t, r.stderr, "got a client certificate")
	secret, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, secret.Data, "pending.key")

	r = lodestone(t, "peer", "--remote-context", "west").ends(t, done)
	assert.NotContains(t, r.stderr, "changed", "a certificate that is accepted is kept")
	lodestone(t, "peer", "--remote-context", "west", "--renew").ends(t, done)
	renewed, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotEqual(t, secret.Data["kubeconfig"], renewed.Data["kubeconfig"])
}

func TestPeerRefusesWhatCannotBe(t *testing.T) {
	testbed.Require(t)
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a cluster with itself":          {args: []string{"--remote-context", "home-again"}, code: refused, says: "lead to the same cluster"},
		"a context that does not exist":  {args: []string{"--remote-context", "east"}, code: usage, says: `no context "east"`},
		"no context":                     {code: usage, says: "--remote-context"},
		"without rights at home":         {args: []string{"--context", "home-guest", "--remote-context", "west"}, code: failed, says: "ask its administrator"},
		"without rights there":           {args: []string{"--remote-context", "west-guest"}, code: failed, says: "ask its administrator"},
		"home, as the name of a cluster": {args: []string{"--remote-context", "west", "--name", "home"}, code: usage, says: "cannot be used"},
		"an unknown way to log in":       {args: []string{"--remote-context", "west", "--auth", "password"}, code: usage, says: "token or certificate"},
		"an offer that is no quantity":   {args: []string{"--remote-context", "west", "--offer", "cpu=many"}, code: usage, says: "--offer cpu=many"},
		"to renew what there is not":     {args: []string{"--remote-context", "west", "--renew"}, code: failed, says: "without --renew"},
		"an address of no API server":    {args: []string{"--remote-context", "west", "--remote-server", "west:6443"}, code: usage, says: "--remote-server"},
	} {
		t.Run(name, func(t *testing.T) {
			r := lodestone(t, append([]string{"peer"}, test.args...)...).ends(t, test.code)
			assert.Contains(t, r.stderr, test.says)
		})
	}
	remotes, err := bed.Remotes.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, remotes.Items, "a refusal leaves nothing behind")
}

func TestPeerListsTheRightsThatAreMissingBeforeItWritesAnything(t *testing.T) {
	testbed.Require(t)
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		for _, args := range [][]string{
			{"create", "clusterrole", "reader", "--verb=get,list", "--resource=namespaces,secrets,remoteclusters.lodestone.dev,homeclusters.remote.lodestone.dev"},
			{"create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=reader"},
		} {
			if cluster == bed.Home {
				args = replaced(args, ",homeclusters.remote.lodestone.dev", "")
			} else {
				args = replaced(args, ",remoteclusters.lodestone.dev", "")
			}
			_, err := cluster.Kubectl(t.Context(), "", args...)
			require.NoError(t, err)
			t.Cleanup(func() {
				_, err := cluster.Kubectl(context.Background(), "", "delete", args[1], "reader")
				require.NoError(t, err)
			})
		}
	}
	var r result
	await.Until(t, "the roles count", func() bool {
		r = lodestone(t, "peer", "--context", "home-reader", "--remote-context", "west-reader", "--name", "west").ends(t, failed)
		return strings.Contains(r.stderr, "you lack rights")
	})
	for _, right := range []string{
		`in the cluster of context "home-reader": create remoteclusters.lodestone.dev, update remoteclusters.lodestone.dev, create secrets -n lodestone-system`,
		`in the cluster of context "west-reader": create homeclusters.remote.lodestone.dev`, "create serviceaccounts/token -n lodestone-home-",
	} {
		assert.Contains(t, r.stderr, right)
	}
	_, err := homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err))
}

func replaced(args []string, old, with string) []string {
	var result []string
	for _, arg := range args {
		result = append(result, strings.ReplaceAll(arg, old, with))
	}
	return result
}

func kubeconfigOf(t *testing.T, name string) string {
	t.Helper()
	return string(secretOf(t, name).Data["kubeconfig"])
}

// accepted says whether a cluster takes the login of a kubeconfig.
func accepted(t *testing.T, kubeconfig string) bool {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if !apierrors.IsUnauthorized(err) {
		require.NoError(t, err)
	}
	return err == nil
}
