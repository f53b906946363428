package plugin

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

func TestPeerMakesARemoteClusterThatIsReady(t *testing.T) {
	r := peered(t, "--offer", "cpu=4,memory=8Gi", "--namespaces", "shop-*,test-*", "--pod-security", "restricted", "--pod-network", "Routed",
		"--pod-cidrs", "10.1.0.0/16")
	assert.Equal(t, "remotecluster.lodestone.dev/west peered\n", r.out)

	remote := must.Get(t, bed.Remotes, "west")
	assert.True(t, meta.IsStatusConditionTrue(remote.Status.Conditions, v1alpha1.Ready))
	assert.Equal(t, v1alpha1.Routed, remote.Spec.PodNetwork)
	assert.Equal(t, []string{"10.1.0.0/16"}, remote.Spec.PodCIDRs)
	assert.Equal(t, v1alpha1.SameName, remote.Spec.Namespaces.Strategy)

	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	home := must.Get(t, bed.Agents.HomeClusters(), id)
	assert.Equal(t, "4", home.Spec.Offer.Cpu().String())
	assert.Equal(t, []string{"shop-*", "test-*"}, home.Spec.Namespaces.Names)
	assert.Equal(t, "restricted", home.Spec.Namespaces.PodSecurity)
	assert.EqualValues(t, 100, *home.Spec.Namespaces.Maximum)

	t.Run("and again changes nothing", func(t *testing.T) {
		before := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
		r := lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.NotContains(t, r.stderr, "changed")
		assert.NotContains(t, r.stderr, "made")
		after := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
		assert.Equal(t, before.ResourceVersion, after.ResourceVersion)
	})
	t.Run("and again with another offer changes that alone", func(t *testing.T) {
		lodestone(t, "peer", "--remote-context", "west", "--offer", "cpu=2").ends(t, done)
		home := must.Get(t, bed.Agents.HomeClusters(), id)
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
		must.Delete(t, bed.West.Client().CoreV1().ServiceAccounts(keys.TenantPrefix+id), keys.HomeAccount)
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
	secret := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	assert.NotContains(t, secret.Data, "pending.key")

	r = lodestone(t, "peer", "--remote-context", "west").ends(t, done)
	assert.NotContains(t, r.stderr, "changed", "a certificate that is accepted is kept")
	lodestone(t, "peer", "--remote-context", "west", "--renew").ends(t, done)
	renewed := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	assert.NotEqual(t, secret.Data["kubeconfig"], renewed.Data["kubeconfig"])
}

func TestPeerRefusesWhatCannotBe(t *testing.T) {
	testbed.Require(t)
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a cluster with itself":         {args: []string{"--remote-context", "home-again"}, code: refused, says: "lead to the same cluster"},
		"a context that does not exist": {args: []string{"--remote-context", "east"}, code: usage, says: `no context "east"`},
		"no context":                    {code: usage, says: "--remote-context"},
		"without rights at home": {args: []string{"--context", "home-guest", "--remote-context", "west"}, code: failed,
			says: "ask its administrator"},
		"without rights there":           {args: []string{"--remote-context", "west-guest"}, code: failed, says: "ask its administrator"},
		"home, as the name of a cluster": {args: []string{"--remote-context", "west", "--name", "home"}, code: usage, says: "cannot be used"},
		"an unknown way to log in": {args: []string{"--remote-context", "west", "--auth", "password"}, code: usage,
			says: "token or certificate"},
		"an offer that is no quantity": {args: []string{"--remote-context", "west", "--offer", "cpu=many"}, code: usage,
			says: "--offer cpu=many"},
		"to renew what there is not": {args: []string{"--remote-context", "west", "--renew"}, code: failed, says: "without --renew"},
		"an address of no API server": {args: []string{"--remote-context", "west", "--remote-server", "west:6443"}, code: usage,
			says: "--remote-server"},
	} {
		t.Run(name, func(t *testing.T) {
			r := lodestone(t, append([]string{"peer"}, test.args...)...).ends(t, test.code)
			assert.Contains(t, r.stderr, test.says)
		})
	}
	remotes := must.List(t, bed.Remotes)
	assert.Empty(t, remotes.Items, "a refusal leaves nothing behind")
}

func TestPeerListsTheRightsThatAreMissingBeforeItWritesAnything(t *testing.T) {
	testbed.Require(t)
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		for _, args := range [][]string{
			{"create", "clusterrole", "reader", "--verb=get,list",
				"--resource=namespaces,secrets,remoteclusters.lodestone.dev,homeclusters.remote.lodestone.dev"},
			{"create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=reader"},
		} {
			if cluster == bed.Home {
				args = replaced(args, ",homeclusters.remote.lodestone.dev", "")
			} else {
				args = replaced(args, ",remoteclusters.lodestone.dev", "")
			}
			must.Kubectl(t, cluster, "", args...)
			t.Cleanup(func() {
				must.Kubectl(t, cluster, "", "delete", args[1], "reader")
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
		`in the cluster of context "west-reader": create homeclusters.remote.lodestone.dev`, "create serviceaccounts/token/lodestone-home -n lodestone-home-",
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

// killer stands between the plugin and both clusters. It kills the plugin after
// a write was done and before the plugin hears of it.
type killer struct {
	kubeconfig string

	mu      sync.Mutex
	started chan struct{}
	victim  *os.Process
	left    int
	killed  bool
}

var errKilled = errors.New("killed")

func newKiller(t *testing.T) *killer {
	t.Helper()
	k := &killer{}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		server := k.serve(t, cluster.AdminConfig())
		config.Clusters[cluster.Name()].Server = server.URL
		config.Clusters[cluster.Name()].CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: server.Certificate().Raw})
	}
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	k.kubeconfig = t.TempDir() + "/kubeconfig"
	require.NoError(t, os.WriteFile(k.kubeconfig, content, 0o600))
	return k
}

func (k *killer) serve(t *testing.T, to *rest.Config) *httptest.Server {
	t.Helper()
	target, err := url.Parse(to.Host)
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(to.CAData))
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}},
		ModifyResponse: k.answered,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewTLSServer(proxy)
	t.Cleanup(server.Close)
	return server
}

// answered is called with each answer of a cluster.
func (k *killer) answered(response *http.Response) error {
	request := response.Request
	if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "selfsubject") || request.URL.Query().Has("dryRun") {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left != 0 {
		return nil
	}
	<-k.started
	_ = k.victim.Kill()
	k.killed = true
	return errKilled
}

// run runs the plugin and kills it after a number of writes; 0 means never. It
// says whether it came to that.
func (k *killer) run(t *testing.T, writes int, args ...string) (result, bool) {
	t.Helper()
	k.mu.Lock()
	k.left, k.killed, k.started = writes, false, make(chan struct{})
	k.mu.Unlock()
	c := command(t.Context(), "", args...)
	c.Env = append(c.Env, "KUBECONFIG="+k.kubeconfig)
	var out, stderr strings.Builder
	c.Stdout, c.Stderr = &out, &stderr
	require.NoError(t, c.Start())
	k.victim = c.Process
	close(k.started)
	_ = c.Wait() // its code is judged by the caller
	k.mu.Lock()
	defer k.mu.Unlock()
	return result{code: c.ProcessState.ExitCode(), out: out.String(), stderr: stderr.String()}, k.killed
}

func TestUnpeerRemovesWhatPeerMade(t *testing.T) {
	peered(t)
	r := lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/west unpeered\n", r.out)
	nothingIsLeft(t)
	_, err := homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err))

	t.Run("and again says that nothing is there", func(t *testing.T) {
		lodestone(t, "unpeer", "west").ends(t, failed)
		lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	})
	t.Run("and home is no cluster to unpeer", func(t *testing.T) {
		lodestone(t, "unpeer", "home", "--forget", "--yes").ends(t, usage)
	})
}

func TestUnpeerWithoutTheRemoteContextSaysWhatIsLeft(t *testing.T) {
	peered(t)
	r := lodestone(t, "unpeer", "west").ends(t, done)
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	assert.Contains(t, r.stderr, "kubectl delete homecluster "+id)
	nothingIsLeft(t)
	lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, done)
	_, err = homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err))
}

func TestUnpeerOfTheWrongClusterIsRefused(t *testing.T) {
	peered(t, "--name", "occident")
	r := lodestone(t, "unpeer", "occident", "--remote-context", "home-again").ends(t, refused)
	assert.Contains(t, r.stderr, "does not lead to the cluster")
	r = lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, refused)
	assert.Contains(t, r.stderr, `peered as "occident"`)
	_, err := homeClusterOf(t)
	assert.NoError(t, err)
}

func TestUnpeerIsRefusedWhileAVolumeIsThereAndForgetTouchesNothingInWest(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	volume := volumeInWest(t, namespace, "data")
	podInWest(t, namespace, "web", "data")

	r := lodestone(t, "unpeer", "west", "--remote-context", "west").ends(t, refused)
	assert.Contains(t, r.stderr, volume)
	assert.Contains(t, r.stderr, namespace+"/data")
	remote := must.Get(t, bed.Remotes, "west")
	assert.Nil(t, remote.DeletionTimestamp, "nothing was changed")

	r = lodestone(t, "unpeer", "west", "--forget", "--yes").ends(t, refused)
	assert.Contains(t, r.stderr, "neither declared lost nor named, so nothing was changed: "+volume+";")
	r = withInput(t, "no\n", "unpeer", "west", "--forget", "--volume", volume).ends(t, refused)
	assert.Contains(t, r.stderr, "nothing was changed")
	assert.NotEmpty(t, secretOf(t, "west").Data["kubeconfig"])

	withInput(t, "west\n", "unpeer", "west", "--forget", "--volume", volume).ends(t, done)
	nothingIsLeft(t)
	_, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	shadow := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	assert.Nil(t, shadow.DeletionTimestamp, "the data is still there")
	assert.Equal(t, corev1.ClaimBound, shadow.Status.Phase)

	await.Until(t, "the home pod is gone", func() bool { return podOf(t, namespace, "web") == nil })
	await.Never(t, "the pod in west is touched", func() bool {
		pod, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning
	})
	_, err = bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "the virtual node: %v", err)

	// For the HomeCluster to go after the test.
	must.Kubectl(t, bed.West, "", "patch", "pvc", "data", "-n", namespace, "--type=merge", "-p",
		`{"metadata":{"finalizers":null}}`)
	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
}

func nothingIsLeft(t *testing.T) {
	t.Helper()
	_, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "RemoteCluster: %v", err)
	await.Until(t, "the Secret is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func secretOf(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), name)
}

func homeClusterOf(t *testing.T) (*remotev1alpha1.HomeCluster, error) {
	t.Helper()
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	return bed.Agents.HomeClusters().Get(t.Context(), id, metav1.GetOptions{})
}

// Two clusters may be home and remote to each other; what is not installed is
// said first.
func TestPeerInBothDirections(t *testing.T) {
	peered(t)
	back := []string{"peer", "--context", "west", "--remote-context", "home", "--name", "main", "--timeout", "60s"}
	r := lodestone(t, back...).ends(t, failed)
	assert.Contains(t, r.stderr, `Lodestone is not installed in the home cluster (context "west")`)

	apply := func(cluster *testbed.Cluster, folder, crd string) {
		kustomization, err := cluster.Kustomization(folder)
		require.NoError(t, err)
		must.Kubectl(t, cluster, "", "apply", "-k", kustomization)
		must.Kubectl(t, cluster, "", "wait", "--for=condition=Established", "crd/"+crd, "--timeout=30s")
	}
	apply(bed.West, "base", "remoteclusters.lodestone.dev")
	r = lodestone(t, back...).ends(t, failed)
	assert.Contains(t, r.stderr, `the remote agent is not installed in the cluster of context "home"`)
	assert.Contains(t, r.stderr, "apply -k deploy/remote")

	apply(bed.Home, "remote", "homeclusters.remote.lodestone.dev")
	home, err := bed.Home.ServiceAccountConfig(t.Context(), "lodestone-remote", "lodestone-remote-agent")
	require.NoError(t, err)
	agentAtHome, err := bed.StartAgent(t.Context(), func(c *agent.Config) { c.Remote = home })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, agentAtHome.Stop()) })
	west, err := bed.West.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	provisionerInWest, err := bed.StartProvisioner(t.Context(), func(c *provisioner.Config) { c.Home = west })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provisionerInWest.Stop()) })

	r = lodestone(t, back...).ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/main peered\n", r.out)
	assert.Contains(t, r.stderr, "from now on both directions work")
	r = lodestone(t, "unpeer", "main", "--context", "west", "--remote-context", "home").ends(t, done)
	assert.Equal(t, "remotecluster.lodestone.dev/main unpeered\n", r.out)
}

func TestDryRunPrintsWhatAppliesInBothClusters(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { unpeered(t) })
	args := []string{"peer", "--remote-context", "west", "--dry-run=client", "--offer", "cpu=2", "--storage-class", "west-now"}
	r := lodestone(t, args...).ends(t, done)
	assert.Contains(t, r.out, "# For the remote cluster (context west)")
	assert.Contains(t, r.out, "# For the home cluster (context home)")
	assert.Contains(t, r.out, "token: REDACTED")
	_, err := homeClusterOf(t)
	assert.True(t, apierrors.IsNotFound(err), "a dry run changes nothing")

	there := lodestone(t, append(args, "--for", "remote")...).ends(t, done)
	must.Kubectl(t, bed.West, there.out, "apply", "-f", "-")
	here := lodestone(t, append(args, "--for", "home", "-o", "json")...).ends(t, done)
	must.Kubectl(t, bed.Home, here.out, "apply", "-f", "-")

	home, err := homeClusterOf(t)
	require.NoError(t, err)
	assert.Equal(t, "2", home.Spec.Offer.Cpu().String())
	remote := must.Get(t, bed.Remotes, "west")
	assert.Equal(t, "west-now", remote.Spec.StorageClassName)

	t.Run("and peer goes on from there", func(t *testing.T) {
		lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.True(t, accepted(t, kubeconfigOf(t, "west")))
	})
	t.Run("and credentials are shown only on request", func(t *testing.T) {
		assert.Contains(t, lodestone(t, args...).ends(t, done).out, "token: REDACTED")
		assert.NotContains(t, lodestone(t, append(args, "--show-secrets")...).ends(t, done).out, "REDACTED")
	})
}
