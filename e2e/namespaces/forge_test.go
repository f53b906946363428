package namespaces

import (
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

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

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

// signed returns a kubeconfig of west with a client certificate for a user that
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
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()), NotBefore: from, NotAfter: until,
		Subject:     pkix.Name{CommonName: "lodestone:home:test", Organization: []string{"system:masters"}},
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
