package mtls

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

func (w *world) config() *JobConfig {
	now := w.now
	return &JobConfig{
		Client: w.Clientset, Authority: authority, ServerSecret: server, ClientSecret: client, Service: service,
		Hosts: []string{"extender.example"}, ClientName: "kube-scheduler",
		AuthorityLife: 10 * year, ServerLife: year / 4, ClientLife: year, Now: func() time.Time { return now },
	}
}

func (w *world) run() {
	w.t.Helper()
	require.NoError(w.t, RunCertificateJob(w.t.Context(), w.config()))
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

// verified returns the certificate of a Secret after a check that the bundle of another Secret
// trusts it for a purpose.
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
	w.put(server, map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": w.secret(client).Data["tls.key"], "ca.crt": []byte("none"),
		"mine": []byte("kept")})
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
			assert.ErrorContains(t, RunCertificateJob(t.Context(), w.config()), "mend them, or take them out")
			assert.Equal(t, data, w.secret(authority).Data)
		})
	}
}

func TestTwoRunsAtOnceAgree(t *testing.T) {
	w := newWorld(t)
	w.checkVersions()
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() { assert.NoError(t, RunCertificateJob(t.Context(), w.config())) })
	}
	both.Wait()
	w.verifyBoth()
	assert.Equal(t, w.secret(server).Data["ca.crt"], w.secret(client).Data["ca.crt"])
}

// checkVersions makes the API server refuse updates of a Secret that has changed since it was read,
// as a real one does.
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
		assert.ErrorContains(t, RunCertificateJob(t.Context(), w.config()), "the Secret "+name.String()+" is missing: apply the manifests again")
	}
	w := newWorld(t)
	require.NoError(t, w.CoreV1().Services(service.Namespace).Delete(t.Context(), service.Name, metav1.DeleteOptions{}))
	assert.ErrorContains(t, RunCertificateJob(t.Context(), w.config()), "read Service system/extender")
}

const year = 365 * 24 * time.Hour

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func made(t *testing.T, at time.Time) *Pair {
	t.Helper()
	pair, err := NewAuthority(at, 6*year)
	require.NoError(t, err)
	return pair
}

func TestPlan(t *testing.T) {
	first, second := made(t, start), made(t, start.Add(4*year))
	for name, test := range map[string]struct {
		authorities Authorities
		at          time.Duration
		step        Step
	}{
		"nothing is there":             {step: Begin},
		"a young authority":            {authorities: Authorities{Current: first}, at: 3 * year, step: Keep},
		"after two thirds of its life": {authorities: Authorities{Current: first}, at: 4*year + time.Hour, step: Prepare},
		"the next one waits": {authorities: Authorities{Current: first, Next: second}, at: 4*year + 2*time.Hour,
			step: Keep},
		"the next one signs after five sixths": {authorities: Authorities{Current: first, Next: second}, at: 5 * year, step: TakeOver},
		"the previous one is trusted": {authorities: Authorities{Current: second, Previous: first.Certificate}, at: 5*year +
			time.Hour, step: Keep},
		"the previous one has expired": {authorities: Authorities{Current: second, Previous: first.Certificate}, at: 6*year +
			time.Hour, step: Forget},
		"the only one has expired":                    {authorities: Authorities{Current: first}, at: 7 * year, step: Begin},
		"the first one has expired, the next has not": {authorities: Authorities{Current: first, Next: second}, at: 7 * year, step: TakeOver},
		"both have expired":                           {authorities: Authorities{Current: first, Next: second}, at: 11 * year, step: Begin},
		"only the next one is left":                   {authorities: Authorities{Next: second}, at: 5 * year, step: TakeOver},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.step, test.authorities.Plan(start.Add(test.at)))
		})
	}
}

// During ten lifetimes of an authority, each day's bundle trusts the certificate that was issued
// earlier, and one that is issued on that day.
func TestTrustIsNeverBroken(t *testing.T) {
	const day, life = 24 * time.Hour, 60 * 24 * time.Hour
	authorities := &Authorities{}
	want := Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Life: 12 * day}
	var server *Pair
	seen := map[Step]int{}
	for now := start; now.Before(start.Add(10 * life)); now = now.Add(day) {
		for step := authorities.Plan(now); step != Keep; step = authorities.Plan(now) {
			seen[step]++
			var err error
			authorities, err = authorities.Take(step, now, life)
			require.NoError(t, err)
		}
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(authorities.Bundle()))
		verify := func() {
			_, err := server.Certificate.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
			require.NoError(t, err, "day %v", now.Sub(start)/day)
		}
		if server != nil {
			verify()
		}
		if server == nil || authorities.Reissue(now, server.Certificate, want) != "" {
			var err error
			server, err = authorities.Current.Issue(now, want)
			require.NoError(t, err)
			verify()
		}
	}
	assert.Equal(t, 1, seen[Begin], "an authority that nobody knows yet")
	assert.Greater(t, seen[TakeOver], 8)
	assert.Equal(t, seen[TakeOver], seen[Prepare])
}

func TestReissue(t *testing.T) {
	authority, other := made(t, start), made(t, start)
	want := Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"a.example", "10.0.0.1", "fd00::1"},
		Life: 90 * 24 * time.Hour}
	issue := func(by *Pair, leaf Leaf) *x509.Certificate {
		pair, err := by.Issue(start, leaf)
		require.NoError(t, err)
		return pair.Certificate
	}
	changed := func(change func(*Leaf)) Leaf {
		leaf := want
		change(&leaf)
		return leaf
	}
	for name, test := range map[string]struct {
		have *x509.Certificate
		at   time.Duration
		says string
	}{
		"as wanted":            {have: issue(authority, want), at: 50 * 24 * time.Hour},
		"none":                 {says: "there is none"},
		"old":                  {have: issue(authority, want), at: 61 * 24 * time.Hour, says: "two thirds of its life are over"},
		"of another authority": {have: issue(other, want), says: "another authority signs now"},
		"of another name":      {have: issue(authority, changed(func(l *Leaf) { l.Name = "x" })), says: "it is for another purpose"},
		"of a client": {have: issue(authority, changed(func(l *Leaf) { l.Usage = x509.ExtKeyUsageClientAuth })),
			says: "it is for another purpose"},
		"of fewer hosts": {have: issue(authority, changed(func(l *Leaf) { l.Hosts = l.Hosts[:1] })),
			says: "the hosts are others now"},
		"of another address": {have: issue(authority, changed(func(l *Leaf) {
			l.Hosts = []string{"a.example", "10.0.0.2", "fd00::1"}
		})), says: "the hosts are others now"},
		"no longer than its authority": {have: issue(authority, changed(func(l *Leaf) { l.Life = 9 * year })), at: 5 * year},
	} {
		t.Run(name, func(t *testing.T) {
			authorities := Authorities{Current: authority}
			assert.Equal(t, test.says, authorities.Reissue(start.Add(test.at), test.have, want))
		})
	}
}
