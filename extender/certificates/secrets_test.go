package certificates

import (
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	authority = types.NamespacedName{Namespace: "certificates", Name: "authority"}
	server    = types.NamespacedName{Namespace: "system", Name: "server"}
	client    = types.NamespacedName{Namespace: "system", Name: "client"}
	service   = types.NamespacedName{Namespace: "system", Name: "extender"}
)

// world is an API server with the Secrets, empty, and a clock.
type world struct {
	*fake.Clientset
	t   *testing.T
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	objects := []runtime.Object{&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.0.0.9", "fd00::9"}},
	}}
	for _, name := range []types.NamespacedName{authority, server, client} {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
	}
	return &world{Clientset: fake.NewClientset(objects...), t: t, now: start}
}

func (w *world) config() *Config {
	now := w.now
	return &Config{
		Client: w.Clientset, Authority: authority, ServerSecret: server, ClientSecret: client, Service: service,
		Hosts: []string{"extender.example"}, ClientName: "kube-scheduler",
		AuthorityLife: 10 * year, ServerLife: year / 4, ClientLife: year, Now: func() time.Time { return now },
	}
}

func (w *world) run() {
	w.t.Helper()
	require.NoError(w.t, Run(w.t.Context(), w.config()))
}

func (w *world) secret(name types.NamespacedName) *corev1.Secret {
	w.t.Helper()
	secret, err := w.CoreV1().Secrets(name.Namespace).Get(w.t.Context(), name.Name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return secret
}

func (w *world) put(name types.NamespacedName, data map[string][]byte) {
	w.t.Helper()
	secret := w.secret(name)
	secret.Data = data
	_, err := w.CoreV1().Secrets(name.Namespace).Update(w.t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// verified returns the certificate of a Secret, which the bundle of another one
// must trust for a purpose.
func (w *world) verified(name, by types.NamespacedName, usage x509.ExtKeyUsage) *x509.Certificate {
	w.t.Helper()
	data := w.secret(name).Data
	pair, err := ParsePair(data["tls.crt"], data["tls.key"])
	require.NoError(w.t, err)
	pool := x509.NewCertPool()
	require.True(w.t, pool.AppendCertsFromPEM(w.secret(by).Data["ca.crt"]))
	_, err = pair.Certificate.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: w.now, KeyUsages: []x509.ExtKeyUsage{usage}})
	require.NoError(w.t, err)
	return pair.Certificate
}

func (w *world) verifyBoth() {
	w.t.Helper()
	w.verified(server, client, x509.ExtKeyUsageServerAuth)
	w.verified(client, server, x509.ExtKeyUsageClientAuth)
}

func TestRunFillsEmptySecretsAndThenChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.run()
	of := w.verified(server, client, x509.ExtKeyUsageServerAuth)
	assert.ElementsMatch(t, []string{"extender.system.svc", "extender.system", "extender.example"}, of.DNSNames)
	assert.Len(t, of.IPAddresses, 2)
	assert.NoError(t, of.VerifyHostname("10.0.0.9"))
	assert.NoError(t, of.VerifyHostname(net.ParseIP("fd00::9").String()))
	assert.Equal(t, "kube-scheduler", w.verified(client, server, x509.ExtKeyUsageClientAuth).Subject.CommonName)
	for _, name := range []types.NamespacedName{server, client} {
		assert.NotContains(t, string(w.secret(name).Data["ca.crt"]), "PRIVATE KEY")
	}

	w.ClearActions()
	w.now = w.now.Add(24 * time.Hour)
	w.run()
	for _, action := range w.Actions() {
		assert.Equal(t, "get", action.GetVerb())
	}
}

func TestRunRenewsWhatGetsOld(t *testing.T) {
	w := newWorld(t)
	w.run()
	first := map[types.NamespacedName]string{}
	for _, name := range []types.NamespacedName{authority, server, client} {
		first[name] = string(w.secret(name).Data["tls.crt"])
	}
	w.now = w.now.Add(year / 5)
	w.run()
	w.verifyBoth()
	assert.NotEqual(t, first[server], string(w.secret(server).Data["tls.crt"]))
	assert.Equal(t, first[client], string(w.secret(client).Data["tls.crt"]))
	w.now = w.now.Add(year * 3 / 5)
	w.run()
	w.verifyBoth()
	assert.NotEqual(t, first[client], string(w.secret(client).Data["tls.crt"]))
	assert.Equal(t, first[authority], string(w.secret(authority).Data["tls.crt"]))
}

func TestRunMendsWhatIsBroken(t *testing.T) {
	w := newWorld(t)
	w.run()
	data := w.secret(server).Data
	w.put(server, map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": w.secret(client).Data["tls.key"], "ca.crt": []byte("none"), "mine": []byte("kept")})
	w.run()
	w.verifyBoth()
	assert.Equal(t, "kept", string(w.secret(server).Data["mine"]))
}

func TestRunReplacesNoAuthorityThatItCannotRead(t *testing.T) {
	w := newWorld(t)
	w.run()
	for name, data := range map[string]map[string][]byte{
		"half of it":                 {"tls.crt": w.secret(authority).Data["tls.crt"]},
		"a certificate that is none": {"tls.crt": w.secret(server).Data["tls.crt"], "tls.key": w.secret(server).Data["tls.key"]},
	} {
		t.Run(name, func(t *testing.T) {
			w.put(authority, data)
			assert.ErrorContains(t, Run(t.Context(), w.config()), "mend them, or take them out")
			assert.Equal(t, data, w.secret(authority).Data)
		})
	}
}

func TestTwoRunsAtOnceAgree(t *testing.T) {
	w := newWorld(t)
	w.checkVersions()
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() { assert.NoError(t, Run(t.Context(), w.config())) })
	}
	both.Wait()
	w.verifyBoth()
	assert.Equal(t, w.secret(server).Data["ca.crt"], w.secret(client).Data["ca.crt"])
}

// checkVersions makes the API server refuse updates of what has changed since it
// was read, as a real one does.
func (w *world) checkVersions() {
	var mu sync.Mutex
	versions := map[string]int{}
	w.PrependReactor("get", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		get := action.(clienttesting.GetAction)
		found, err := w.Tracker().Get(action.GetResource(), get.GetNamespace(), get.GetName())
		if err != nil {
			return true, nil, err
		}
		secret := found.(*corev1.Secret).DeepCopy()
		secret.Generation = int64(versions[secret.Name])
		return true, secret, nil
	})
	w.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		secret := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret)
		if secret.Generation != int64(versions[secret.Name]) {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), secret.Name, nil)
		}
		versions[secret.Name]++
		return true, secret, w.Tracker().Update(action.GetResource(), secret, secret.Namespace)
	})
}

func TestAMissingSecretIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, name := range []types.NamespacedName{authority, server, client} {
		w := newWorld(t)
		require.NoError(t, w.CoreV1().Secrets(name.Namespace).Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
		assert.ErrorContains(t, Run(t.Context(), w.config()), "the Secret "+name.String()+" is missing: apply the manifests again")
	}
	w := newWorld(t)
	require.NoError(t, w.CoreV1().Services(service.Namespace).Delete(t.Context(), service.Name, metav1.DeleteOptions{}))
	assert.ErrorContains(t, Run(t.Context(), w.config()), "read Service system/extender")
}
