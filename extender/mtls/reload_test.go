package mtls_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/certificates"
	"github.com/lodestone-storage/lodestone/extender/mtls"
)

func countDials(client *http.Client) *atomic.Int64 {
	dials := &atomic.Int64{}
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return dials
}

func TestNewCertificatesServeWithoutARestart(t *testing.T) {
	f := serve(t)
	next := newAuthority(t)
	both := append(f.authority.CertificatePEM(), next.CertificatePEM()...)
	client := f.client(clientOf(t, f.authority), f.authority, next)
	dials := countDials(client)
	code, answer := f.ask(client, f.url)
	require.Equal(t, http.StatusOK, code, answer)

	// Both authorities are trusted, and the next one signs the server's certificate.
	f.write("ca.crt", both)
	server := serverOf(t, next)
	f.put("tls", server)
	require.Eventually(t, func() bool {
		code, answer := f.ask(client, f.url)
		require.Equal(t, http.StatusOK, code, answer)
		return f.observed.expires(mtls.ServerCertificate).Equal(server.Certificate.NotAfter) && dials.Load() > 1
	}, soon, often, "the open connection must end after an answer, and the next one succeed")
	code, answer = f.ask(f.client(clientOf(t, next), next), f.url)
	assert.Equal(t, http.StatusOK, code, answer)

	// The first authority goes: its clients do, also on the connection they have.
	f.write("ca.crt", next.CertificatePEM())
	require.Eventually(t, func() bool {
		code, _ := f.ask(client, f.url)
		return code != http.StatusOK
	}, soon, often)
	code, _ = f.ask(f.client(clientOf(t, f.authority), next), f.url)
	assert.Zero(t, code)
	assert.LessOrEqual(t, f.observed.failedReloads(), 1, "only between the writes of certificate and key can there be no pair")
}

func TestAnOpenConnectionEndsWithItsAuthority(t *testing.T) {
	f := serve(t)
	client := f.client(clientOf(t, f.authority), f.authority)
	code, answer := f.ask(client, f.url)
	require.Equal(t, http.StatusOK, code, answer)
	f.write("ca.crt", newAuthority(t).CertificatePEM())
	require.Eventually(t, func() bool {
		code, answer = f.ask(client, f.url)
		return code != http.StatusOK
	}, soon, often)
	assert.Equal(t, http.StatusForbidden, code)
	assert.Contains(t, answer, "give kube-scheduler one of the CA in --client-ca-file")
}

func TestAnOpenConnectionEndsWithItsCertificate(t *testing.T) {
	f := serve(t)
	shown := clientOf(t, f.authority)
	client := f.client(shown, f.authority)
	code, answer := f.ask(client, f.url)
	require.Equal(t, http.StatusOK, code, answer)
	f.advance(life + time.Hour)
	code, answer = f.ask(client, f.url)
	assert.Equal(t, http.StatusForbidden, code)
	assert.Contains(t, answer, "expired")
}

func TestFilesThatCannotBeUsedLeaveTheLastOnesInUse(t *testing.T) {
	for name, test := range map[string]func(*fixture){
		"half of the certificate": func(f *fixture) {
			whole, err := os.ReadFile(f.path("tls.crt"))
			require.NoError(f.t, err)
			f.write("tls.crt", whole[:len(whole)/2])
		},
		"half of a second authority": func(f *fixture) {
			second := newAuthority(f.t).CertificatePEM()
			f.write("ca.crt", bytes.Join([][]byte{f.authority.CertificatePEM(), second[:len(second)/2]}, nil))
		},
		"an empty file of authorities":          func(f *fixture) { f.write("ca.crt", nil) },
		"a client CA that is no authority":      func(f *fixture) { f.write("ca.crt", serverOf(f.t, f.authority).CertificatePEM()) },
		"a key among the authorities":           func(f *fixture) { f.write("ca.crt", key(f.t, f.authority)) },
		"a key that belongs to another one":     func(f *fixture) { f.write("tls.key", key(f.t, f.authority)) },
		"a file that is gone":                   func(f *fixture) { require.NoError(f.t, os.Remove(f.path("tls.key"))) },
		"a file that is too large":              func(f *fixture) { f.write("ca.crt", make([]byte, 2<<20)) },
		"a certificate that has expired by now": func(f *fixture) { f.put("tls", issue(f.t, f.authority, certificates.Leaf{Life: -time.Minute})) },
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			kept := map[string][]byte{}
			for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
				content, err := os.ReadFile(f.path(file))
				require.NoError(t, err)
				kept[file] = content
			}
			test(f)
			require.Eventually(t, func() bool { return f.observed.failedReloads() > 0 }, soon, often)
			code, answer := f.ask(f.client(clientOf(t, f.authority), f.authority), f.url)
			assert.Equal(t, http.StatusOK, code, answer)
			assert.NoError(t, f.server.Problem())

			// Whole files are used again.
			for file, content := range kept {
				f.write(file, content)
			}
			next := newAuthority(t)
			f.write("ca.crt", append(f.authority.CertificatePEM(), next.CertificatePEM()...))
			require.Eventually(t, func() bool {
				code, _ := f.ask(f.client(clientOf(t, next), f.authority), f.url)
				return code == http.StatusOK
			}, soon, often)
		})
	}
}

func key(t *testing.T, pair *certificates.Pair) []byte {
	t.Helper()
	encoded, err := pair.KeyPEM()
	require.NoError(t, err)
	return encoded
}

func TestFilesThatCannotBeUsedAtTheStartAreAnError(t *testing.T) {
	f := serve(t)
	f.write("tls.key", key(t, f.authority))
	_, err := mtls.Open(mtls.Settings{Files: f.files()}, time.Now, f.observed)
	assert.ErrorContains(t, err, "are no pair of certificate and key")
	missing := f.files()
	missing.ClientCA = f.path("none")
	_, err = mtls.Open(mtls.Settings{Files: missing}, time.Now, f.observed)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestExpiredCertificatesAreAProblem(t *testing.T) {
	f := serve(t)
	assert.NoError(t, f.server.Problem())
	f.advance(life + time.Minute)
	assert.ErrorContains(t, f.server.Problem(), "has expired at")
	f.put("tls", issue(t, f.authority, certificates.Leaf{Life: 2 * life}))
	assert.Never(t, func() bool { return f.server.Problem() == nil }, 20*often, often, "its authority has expired too")
}
