package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var (
	from  = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	until = from.Add(10 * time.Hour)
)

func token(t *testing.T, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

func accountToken(t *testing.T, until time.Time) string {
	t.Helper()
	return token(t, map[string]any{"sub": "system:serviceaccount:tenant:lodestone-home", "iat": from.Unix(), "exp": until.Unix()})
}

// kubeconfig has two users; the current one is user.
func kubeconfig(t *testing.T, user clientcmdapi.AuthInfo) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"west": {Server: "https://west"}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"me": &user, "other": {Token: "of-other"}},
		Contexts: map[string]*clientcmdapi.Context{"west": {Cluster: "west", AuthInfo: "me"},
			"spare": {Cluster: "west", AuthInfo: "other"}},
		CurrentContext: "west",
	})
	require.NoError(t, err)
	return data
}

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestOf(t *testing.T) {
	endless := Credentials{Kind: Endless}
	account := map[string]any{"sub": "system:serviceaccount:a:b", "iat": from.Unix(), "exp": until.Unix()}
	with := func(key string, value any) map[string]any {
		claims := map[string]any{}
		for k, v := range account {
			claims[k] = v
		}
		claims[key] = value
		return claims
	}
	for name, test := range map[string]struct {
		user clientcmdapi.AuthInfo
		want Credentials
	}{
		"a token of an account": {user: clientcmdapi.AuthInfo{Token: token(t, account)},
			want: Credentials{Kind: Token, Namespace: "a", Account: "b", From: from, Until: until}},
		"a token without an end":      {user: clientcmdapi.AuthInfo{Token: token(t, with("exp", 0))}, want: endless},
		"a token of a user":           {user: clientcmdapi.AuthInfo{Token: token(t, with("sub", "alice"))}, want: endless},
		"a token that ends too early": {user: clientcmdapi.AuthInfo{Token: token(t, with("exp", from.Unix()))}, want: endless},
		"a token that is no JWT":      {user: clientcmdapi.AuthInfo{Token: "abc"}, want: endless},
		"a token of garbage":          {user: clientcmdapi.AuthInfo{Token: "a.!.c"}, want: endless},
		"a certificate": {user: clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)},
			want: Credentials{Kind: Certificate, From: from, Until: until}},
		"a certificate of garbage": {user: clientcmdapi.AuthInfo{ClientCertificateData: []byte("x")}, want: endless},
		"a password":               {user: clientcmdapi.AuthInfo{Username: "a", Password: "b"}, want: endless},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, CredentialsOf(kubeconfig(t, test.user)))
		})
	}
	assert.Equal(t, endless, CredentialsOf([]byte("{")))
	assert.Equal(t, endless, CredentialsOf([]byte("{}")))
}

func TestATokenIsDueWhenAFifthOfItsLifeIsLeft(t *testing.T) {
	have := CredentialsOf(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	assert.Equal(t, from.Add(8*time.Hour), have.RenewAt())
	assert.False(t, have.Due(from.Add(8*time.Hour-time.Second)))
	assert.True(t, have.Due(from.Add(8*time.Hour)))
	assert.True(t, have.Due(until.Add(time.Hour)))
	other := CredentialsOf(kubeconfig(t, clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)}))
	assert.False(t, other.Due(until), "nobody but the remote's owner renews a certificate")
	assert.False(t, Credentials{Kind: Endless}.Due(until))
}

func TestOnlyALaterTokenOfTheSameAccountSucceeds(t *testing.T) {
	have := CredentialsOf(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	require.NoError(t, have.Succeeds(accountToken(t, until.Add(time.Second))))
	require.ErrorContains(t, have.Succeeds(accountToken(t, until)), "no later")
	require.ErrorContains(t, have.Succeeds("garbage"), "no token of the same account")
	other := token(t, map[string]any{"sub": "system:serviceaccount:tenant:root", "iat": from.Unix(), "exp": until.Unix() + 1})
	require.ErrorContains(t, have.Succeeds(other), "no token of the same account")
}

func TestOnlyTheTokenOfTheCurrentUserIsReplaced(t *testing.T) {
	before := kubeconfig(t, clientcmdapi.AuthInfo{Token: "old"})
	after, err := KubeconfigWithToken(before, "new")
	require.NoError(t, err)
	assert.Equal(t, string(kubeconfig(t, clientcmdapi.AuthInfo{Token: "new"})), string(after))
	_, err = KubeconfigWithToken([]byte("{}"), "new")
	require.ErrorContains(t, err, "names no user")
}

func TestCondition(t *testing.T) {
	bearer := CredentialsOf(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	signed := CredentialsOf(kubeconfig(t, clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)}))
	late := until.Add(-time.Hour)
	for name, test := range map[string]struct {
		have    Credentials
		now     time.Time
		failure string
		status  metav1.ConditionStatus
		reason  string
		says    []string
	}{
		"nothing known": {have: Credentials{Kind: Endless}, now: late, status: metav1.ConditionTrue, reason: NoEnd,
			says: []string{"no end"}},
		"a young token": {have: bearer, now: from, status: metav1.ConditionTrue, reason: Valid,
			says: []string{"until 2026-01-02T10:00:00Z", "renewed at 2026-01-02T08:00:00Z"}},
		"a token not renewed": {have: bearer, now: late, failure: "forbidden", status: metav1.ConditionTrue, reason: RenewalFailed,
			says: []string{"until 2026-01-02T10:00:00Z only", "forbidden", "peer --renew"}},
		"a token that ended": {have: bearer, now: until, failure: "forbidden", status: metav1.ConditionFalse, reason: Expired,
			says: []string{"token", "expired at 2026-01-02T10:00:00Z", "peer --renew"}},
		"a young certificate": {have: signed, now: from, status: metav1.ConditionTrue, reason: Valid,
			says: []string{"until 2026-01-02T10:00:00Z"}},
		"an old certificate": {have: signed, now: late, status: metav1.ConditionTrue, reason: ExpiresSoon,
			says: []string{"only", "peer --renew"}},
		"a certificate that ended": {have: signed, now: until, status: metav1.ConditionFalse, reason: Expired,
			says: []string{"client certificate", "expired"}},
	} {
		t.Run(name, func(t *testing.T) {
			condition := test.have.Condition(test.now, test.failure)
			assert.Equal(t, test.status, condition.Status)
			assert.Equal(t, test.reason, condition.Reason)
			for _, says := range test.says {
				assert.Contains(t, condition.Message, says)
			}
		})
	}
}

func tokenOf(t *testing.T, from, until time.Time) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"sub": "system:serviceaccount:tenant:home", "iat": from.Unix(), "exp": until.Unix()})
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

func kubeconfigWith(t *testing.T, token string) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"west": {Server: "https://west"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"west": {Cluster: "west", AuthInfo: "me"}},
		CurrentContext: "west",
	})
	require.NoError(t, err)
	return data
}

func TestRenew(t *testing.T) {
	now := time.Now()
	old := tokenOf(t, now.Add(-time.Hour), now.Add(time.Minute))
	young := tokenOf(t, now.Add(-time.Minute), now.Add(time.Hour))
	next := tokenOf(t, now, now.Add(2*time.Hour))
	noRights := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, "home", errors.New("no"))
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "west", errors.New("changed"))
	for name, test := range map[string]struct {
		token    string
		unusable bool
		asking   error // error of the token request
		writing  error // error of writing the Secret
		answer   string
		stored   bool
		reason   string
		event    string
		again    bool // the next probe tries again at once
	}{
		"a young token is left alone":    {token: young, reason: Valid},
		"an old one is replaced":         {token: old, answer: next, stored: true, reason: Valid, event: "Normal TokenRenewed"},
		"not where nothing can be asked": {token: old, unusable: true, reason: Valid},
		"without rights the user is told": {token: old, asking: noRights, reason: RenewalFailed,
			event: "Warning CredentialsRenewalFailed"},
		"a token that ends no later is no use": {token: old, answer: old, reason: RenewalFailed, event: "Warning CredentialsRenewalFailed"},
		"a Secret that changed is read again":  {token: old, answer: next, writing: changed, reason: Valid, again: true},
		"a Secret that cannot be written is told": {token: old, answer: next, writing: errors.New("no disk"), reason: RenewalFailed,
			event: "Warning CredentialsRenewalFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := kubeconfigWith(t, test.token)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "west", UID: "s", ResourceVersion: "7"},
				Data: map[string][]byte{"kubeconfig": kubeconfig, "other": []byte("kept")}}
			home, west := fake.NewClientset(secret), fake.NewClientset()
			asked := 0
			west.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				assert.Equal(t, "token", action.GetSubresource())
				assert.Equal(t, "tenant", action.GetNamespace())
				return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: test.answer}}, test.asking
			})
			var patched []byte
			home.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patched = action.(clienttesting.PatchAction).GetPatch()
				return true, secret, test.writing
			})
			events := record.NewFakeRecorder(10)
			c, remote := renewing(t, home, west, secret, events)
			condition := c.renew(t.Context(), remote, kubeconfig, !test.unusable)
			assert.Equal(t, test.reason, condition.Reason)
			if test.event != "" {
				assert.Contains(t, <-events.Events, test.event)
			}
			assert.Empty(t, events.Events)
			if test.stored {
				var patch corev1.Secret
				require.NoError(t, json.Unmarshal(patched, &patch))
				assert.Equal(t, map[string][]byte{"kubeconfig": kubeconfigWith(t, test.answer)}, patch.Data, "nothing but the token changes")
				assert.Equal(t, "7", patch.ResourceVersion)
				assert.EqualValues(t, "s", patch.UID)
			}
			before := asked
			c.renew(t.Context(), remote, kubeconfig, !test.unusable)
			assert.Equal(t, test.again, asked > before)
			assert.Empty(t, events.Events, "told once")
		})
	}
}

// renewing returns a cluster that is connected to west.
func renewing(t *testing.T, home, west *fake.Clientset, secret *corev1.Secret, events record.EventRecorder) (*Cluster,
	*v1alpha1.RemoteCluster) {
	t.Helper()
	secrets := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Secrets().Informer()
	require.NoError(t, secrets.GetStore().Add(secret))
	registry := New(Config{Home: home, Secrets: secrets, Namespace: "system", Recorder: events})
	c := &Cluster{id: "west", clusters: registry, connection: &connection{client: west}}
	return c, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "system", Name: "west"}},
	}
}

func TestARenewedTokenKeepsTheConnection(t *testing.T) {
	now := time.Now()
	token := func(i int) []byte { return kubeconfigWith(t, tokenOf(t, now, now.Add(time.Duration(i)*time.Hour))) }
	shape := shapeOf(token(1), v1alpha1.SameName)
	assert.Equal(t, shape, shapeOf(token(2), v1alpha1.SameName))
	assert.NotEqual(t, shape, shapeOf(token(1), v1alpha1.Suffixed), "namespaces are kept by another rule")
	usable := verdict{checked: true, epoch: acting}
	for name, test := range map[string]struct {
		c    *Cluster
		want bool
	}{
		"the same but for the token": {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: shape, bearer: &bearer{},
			verdict: usable}, want: true},
		"another server": {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: "other", bearer: &bearer{},
			verdict: usable}},
		"a cluster that was in trouble": {c: &Cluster{connection: &connection{}, fingerprint: "f", shape: shape, bearer: &bearer{}}},
		"one that has just come back":   {c: &Cluster{connection: &connection{}, shape: shape, bearer: &bearer{}, verdict: usable}},
		"one without a connection":      {c: &Cluster{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, test.c.renewed(shape)) })
	}
	assert.Empty(t, shapeOf([]byte("{}"), v1alpha1.SameName))
}
