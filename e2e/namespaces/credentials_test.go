package namespaces

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// The tests of this file do not run in parallel: they change how west is reached.

// rotate puts a kubeconfig into the Secret of west.
func rotate(t *testing.T, kubeconfig []byte) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	secret := must.Get(t, secrets, "west")
	secret.Data["kubeconfig"] = kubeconfig
	must.Update(t, secrets, secret)
}

// restore puts good credentials back after a test.
func restore(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		kubeconfig, err := owner.kubeconfig(context.Background())
		require.NoError(t, err)
		rotate(t, kubeconfig)
		require.NoError(t, bed.AwaitReady(context.Background(), "west", metav1.ConditionTrue))
	})
}

func inSecret(t *testing.T) []byte {
	t.Helper()
	secret := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	return secret.Data["kubeconfig"]
}

func condition(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	remote := must.Get(t, bed.Remotes, "west")
	if found := meta.FindStatusCondition(remote.Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func awaitCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	await.Until(t, kind+" is "+string(status)+", "+reason, func() bool {
		have := condition(t, kind)
		return have.Status == status && have.Reason == reason
	}, func() any { return condition(t, kind) })
	return condition(t, kind)
}

func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	testbed.Require(t)
	restore(t)
	ready := condition(t, v1alpha1.Ready)
	require.Equal(t, metav1.ConditionTrue, ready.Status)
	old := aged(t, 9*time.Minute, time.Minute)
	rotate(t, old)
	await.Until(t, "there is another token", func() bool {
		return remote.CredentialsOf(inSecret(t)).Until.After(remote.CredentialsOf(old).Until)
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	renewed := remote.CredentialsOf(inSecret(t))
	assert.False(t, renewed.Due(time.Now()))
	assert.Equal(t, remote.CredentialsOf(old).Account, renewed.Account)
	await.Until(t, "the condition says until when", func() bool {
		have := condition(t, v1alpha1.CredentialsValid)
		return have.Reason == remote.Valid && strings.Contains(have.Message, renewed.Until.Format(time.RFC3339))
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	assert.Equal(t, ready.LastTransitionTime, condition(t, v1alpha1.Ready).LastTransitionTime, "west was Ready all the while")

	namespace := space(t, "shop-", true)
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
}

func TestATokenThatCannotBeRenewedIsToldOfBeforeItEnds(t *testing.T) {
	testbed.Require(t)
	restore(t)
	owner.silence(t)
	bindings := bed.West.Client().RbacV1().RoleBindings(owner.tenant())
	require.NoError(t, bindings.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	rotate(t, aged(t, 9*time.Minute, time.Minute))
	told := awaitCondition(t, v1alpha1.CredentialsValid, metav1.ConditionTrue, remote.RenewalFailed)
	assert.Contains(t, told.Message, "serviceaccounts")
	assert.Contains(t, told.Message, "kubectl lodestone peer --renew")
	await.Until(t, "there is an event", func() bool {
		list, err := bed.Home.Client().CoreV1().Events(metav1.NamespaceDefault).List(context.Background(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=RemoteCluster,involvedObject.name=west,reason=CredentialsRenewalFailed"})
		return err == nil && len(list.Items) > 0
	}, func() any { return "no event" })
	assert.Equal(t, metav1.ConditionTrue, condition(t, v1alpha1.Ready).Status, "it is valid still")
}

func TestATokenThatHasEndedIsToldOf(t *testing.T) {
	testbed.Require(t)
	restore(t)
	rotate(t, aged(t, time.Hour, -time.Minute))
	awaitCondition(t, v1alpha1.CredentialsValid, metav1.ConditionFalse, remote.Expired)
	ready := awaitCondition(t, v1alpha1.Ready, metav1.ConditionFalse, "NotAuthorized")
	assert.Contains(t, ready.Message, "expired at")
	assert.Contains(t, ready.Message, "kubectl lodestone peer --renew")
	assert.Contains(t, condition(t, v1alpha1.Authorized).Message, "expired at")
}

func TestAProgramThatStartsLateRenewsAtOnce(t *testing.T) {
	testbed.Require(t)
	restore(t)
	require.NoError(t, running.Stop())
	old := aged(t, 9*time.Minute, time.Minute)
	rotate(t, old)
	var err error
	running, err = startProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	await.Until(t, "there is another token", func() bool {
		return remote.CredentialsOf(inSecret(t)).Until.After(remote.CredentialsOf(old).Until)
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	assert.Equal(t, keys.HomeAccount, remote.CredentialsOf(inSecret(t)).Account)
}

func TestTheEndOfACertificateIsToldOf(t *testing.T) {
	testbed.Require(t)
	restore(t)
	now := time.Now()
	for _, test := range []struct {
		from, until   time.Duration
		status, ready metav1.ConditionStatus
		reason        string
	}{
		{from: -time.Minute, until: time.Hour, status: metav1.ConditionTrue, reason: remote.Valid, ready: metav1.ConditionTrue},
		{from: -time.Hour, until: 5 * time.Minute, status: metav1.ConditionTrue, reason: remote.ExpiresSoon, ready: metav1.ConditionTrue},
		{from: -time.Hour, until: -time.Minute, status: metav1.ConditionFalse, reason: remote.Expired, ready: metav1.ConditionFalse},
	} {
		until := now.Add(test.until)
		rotate(t, signed(t, now.Add(test.from), until))
		await.Until(t, "the condition tells of this certificate", func() bool {
			have := condition(t, v1alpha1.CredentialsValid)
			return have.Status == test.status && have.Reason == test.reason && strings.Contains(have.Message, until.UTC().Format(time.RFC3339))
		}, func() any { return condition(t, v1alpha1.CredentialsValid) })
		require.NoError(t, bed.AwaitReady(t.Context(), "west", test.ready))
	}
	assert.Contains(t, condition(t, v1alpha1.Ready).Message, "client certificate of the kubeconfig expired")
}

// aged returns a kubeconfig of home's account in west whose token has been valid
// for some time and ends after some more, as if time had passed since it was
// asked for.
func aged(t *testing.T, age, left time.Duration) []byte {
	t.Helper()
	data, err := owner.kubeconfig(t.Context())
	require.NoError(t, err)
	config, err := clientcmd.Load(data)
	require.NoError(t, err)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.Token = resigned(t, user.Token, time.Now().Add(-age), time.Now().Add(left))
	data, err = clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

// resigned returns a token of west with another life, signed with west's key.
func resigned(t *testing.T, token string, from, until time.Time) string {
	t.Helper()
	parts := splitToken(t, token)
	claims := map[string]any{}
	require.NoError(t, json.Unmarshal(parts[1], &claims))
	claims["iat"], claims["nbf"], claims["exp"] = from.Unix(), from.Unix(), until.Unix()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	signed := base64.RawURLEncoding.EncodeToString(parts[0]) + "." + base64.RawURLEncoding.EncodeToString(payload)

	data, err := os.ReadFile(filepath.Join(filepath.Dir(bed.West.LogDirectory()), "service-accounts.key"))
	require.NoError(t, err)
	block, _ := pem.Decode(data)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func splitToken(t *testing.T, token string) [3][]byte {
	t.Helper()
	var parts [3][]byte
	split := strings.Split(token, ".")
	require.Len(t, split, len(parts))
	for i, part := range split {
		decoded, err := base64.RawURLEncoding.DecodeString(part)
		require.NoError(t, err)
		parts[i] = decoded
	}
	return parts
}

// signed returns a kubeconfig of west with a client certificate for home, which
// may do everything.
func signed(t *testing.T, from, until time.Time) []byte {
	t.Helper()
	directory := filepath.Dir(bed.West.LogDirectory())
	caCertificate, caKey := readPEM(t, directory, "ca.crt"), readPEM(t, directory, "ca.key")
	ca, err := x509.ParseCertificate(caCertificate)
	require.NoError(t, err)
	signer, err := x509.ParseECPrivateKey(caKey)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()), NotBefore: from, NotAfter: until,
		Subject:     pkix.Name{CommonName: keys.HomeUserPrefix + id, Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, &key.PublicKey, signer)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)

	data, err := owner.kubeconfig(t.Context())
	require.NoError(t, err)
	config, err := clientcmd.Load(data)
	require.NoError(t, err)
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.Token = ""
	user.ClientCertificateData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	user.ClientKeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	data, err = clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

func readPEM(t *testing.T, directory, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(directory, name))
	require.NoError(t, err)
	block, _ := pem.Decode(data)
	require.NotNil(t, block)
	return block.Bytes
}
