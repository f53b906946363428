package credentials_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/provisioner/credentials"
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
		Clusters:       map[string]*clientcmdapi.Cluster{"west": {Server: "https://west"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": &user, "other": {Token: "of-other"}},
		Contexts:       map[string]*clientcmdapi.Context{"west": {Cluster: "west", AuthInfo: "me"}, "spare": {Cluster: "west", AuthInfo: "other"}},
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
	endless := credentials.Credentials{Kind: credentials.Endless}
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
		want credentials.Credentials
	}{
		"a token of an account":       {user: clientcmdapi.AuthInfo{Token: token(t, account)}, want: credentials.Credentials{Kind: credentials.Token, Namespace: "a", Account: "b", From: from, Until: until}},
		"a token without an end":      {user: clientcmdapi.AuthInfo{Token: token(t, with("exp", 0))}, want: endless},
		"a token of a user":           {user: clientcmdapi.AuthInfo{Token: token(t, with("sub", "alice"))}, want: endless},
		"a token that ends too early": {user: clientcmdapi.AuthInfo{Token: token(t, with("exp", from.Unix()))}, want: endless},
		"a token that is no JWT":      {user: clientcmdapi.AuthInfo{Token: "abc"}, want: endless},
		"a token of garbage":          {user: clientcmdapi.AuthInfo{Token: "a.!.c"}, want: endless},
		"a certificate":               {user: clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)}, want: credentials.Credentials{Kind: credentials.Certificate, From: from, Until: until}},
		"a certificate of garbage":    {user: clientcmdapi.AuthInfo{ClientCertificateData: []byte("x")}, want: endless},
		"a password":                  {user: clientcmdapi.AuthInfo{Username: "a", Password: "b"}, want: endless},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, credentials.Of(kubeconfig(t, test.user)))
		})
	}
	assert.Equal(t, endless, credentials.Of([]byte("{")))
	assert.Equal(t, endless, credentials.Of([]byte("{}")))
}

func TestATokenIsDueWhenAFifthOfItsLifeIsLeft(t *testing.T) {
	have := credentials.Of(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	assert.Equal(t, from.Add(8*time.Hour), have.RenewAt())
	assert.False(t, have.Due(from.Add(8*time.Hour-time.Second)))
	assert.True(t, have.Due(from.Add(8*time.Hour)))
	assert.True(t, have.Due(until.Add(time.Hour)))
	other := credentials.Of(kubeconfig(t, clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)}))
	assert.False(t, other.Due(until), "nobody but the remote's owner renews a certificate")
	assert.False(t, credentials.Credentials{Kind: credentials.Endless}.Due(until))
}

func TestOnlyALaterTokenOfTheSameAccountSucceeds(t *testing.T) {
	have := credentials.Of(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	require.NoError(t, have.Succeeds(accountToken(t, until.Add(time.Second))))
	require.ErrorContains(t, have.Succeeds(accountToken(t, until)), "no later")
	require.ErrorContains(t, have.Succeeds("garbage"), "no token of the same account")
	other := token(t, map[string]any{"sub": "system:serviceaccount:tenant:root", "iat": from.Unix(), "exp": until.Unix() + 1})
	require.ErrorContains(t, have.Succeeds(other), "no token of the same account")
}

func TestOnlyTheTokenOfTheCurrentUserIsReplaced(t *testing.T) {
	before := kubeconfig(t, clientcmdapi.AuthInfo{Token: "old"})
	after, err := credentials.WithToken(before, "new")
	require.NoError(t, err)
	assert.Equal(t, string(kubeconfig(t, clientcmdapi.AuthInfo{Token: "new"})), string(after))
	_, err = credentials.WithToken([]byte("{}"), "new")
	require.ErrorContains(t, err, "names no user")
}

func TestCondition(t *testing.T) {
	bearer := credentials.Of(kubeconfig(t, clientcmdapi.AuthInfo{Token: accountToken(t, until)}))
	signed := credentials.Of(kubeconfig(t, clientcmdapi.AuthInfo{ClientCertificateData: certificate(t)}))
	late := until.Add(-time.Hour)
	for name, test := range map[string]struct {
		have    credentials.Credentials
		now     time.Time
		failure string
		status  metav1.ConditionStatus
		reason  string
		says    []string
	}{
		"nothing known":            {have: credentials.Credentials{Kind: credentials.Endless}, now: late, status: metav1.ConditionTrue, reason: credentials.NoEnd, says: []string{"no end"}},
		"a young token":            {have: bearer, now: from, status: metav1.ConditionTrue, reason: credentials.Valid, says: []string{"until 2026-01-02T10:00:00Z", "renewed at 2026-01-02T08:00:00Z"}},
		"a token not renewed":      {have: bearer, now: late, failure: "forbidden", status: metav1.ConditionTrue, reason: credentials.RenewalFailed, says: []string{"until 2026-01-02T10:00:00Z only", "forbidden", "peer --renew"}},
		"a token that ended":       {have: bearer, now: until, failure: "forbidden", status: metav1.ConditionFalse, reason: credentials.Expired, says: []string{"token", "expired at 2026-01-02T10:00:00Z", "peer --renew"}},
		"a young certificate":      {have: signed, now: from, status: metav1.ConditionTrue, reason: credentials.Valid, says: []string{"until 2026-01-02T10:00:00Z"}},
		"an old certificate":       {have: signed, now: late, status: metav1.ConditionTrue, reason: credentials.ExpiresSoon, says: []string{"only", "peer --renew"}},
		"a certificate that ended": {have: signed, now: until, status: metav1.ConditionFalse, reason: credentials.Expired, says: []string{"client certificate", "expired"}},
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
