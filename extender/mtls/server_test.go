package mtls_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

	// The first authority is removed: its clients are refused, also on the connection that they
	// have.
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
		"a certificate that has expired by now": func(f *fixture) { f.put("tls", issue(f.t, f.authority, mtls.Leaf{Life: -time.Minute})) },
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

			// Complete files are used again.
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

func key(t *testing.T, pair *mtls.Pair) []byte {
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
	f.put("tls", issue(t, f.authority, mtls.Leaf{Life: 2 * life}))
	assert.Never(t, func() bool { return f.server.Problem() == nil }, 20*often, often, "its authority has expired too")
}

func TestWhoMayAsk(t *testing.T) {
	f := serve(t, "kube-scheduler", "scheduler.example.com")
	stranger := newAuthority(t)
	for name, test := range map[string]struct {
		shown *mtls.Pair
		// says is the error that the client gets; empty: it gets an answer.
		says string
	}{
		"a client of that name": {shown: clientOf(t, f.authority)},
		"a client with a DNS name that is listed": {shown: issue(t, f.authority, mtls.Leaf{
			Name: "other", Usage: x509.ExtKeyUsageClientAuth, Hosts: []string{"scheduler.example.com"}})},
		"a client of another name": {shown: issue(t, f.authority, mtls.Leaf{
			Name: "tenant", Usage: x509.ExtKeyUsageClientAuth}), says: "tls: bad certificate"},
		"a client without a certificate":                      {says: "tls: certificate required"},
		"a client of another authority":                       {shown: clientOf(t, stranger), says: "tls: unknown certificate authority"},
		"the server's certificate does not pass for a client": {shown: serverOf(t, f.authority), says: "tls: bad certificate"},
		"a client whose certificate has expired": {shown: issue(t, f.authority, mtls.Leaf{
			Name: "kube-scheduler", Usage: x509.ExtKeyUsageClientAuth, Life: -time.Minute}), says: "tls: expired certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.observed.failedHandshakes()
			code, answer := f.ask(f.client(test.shown, f.authority), f.url)
			if test.says == "" {
				assert.Equal(t, http.StatusOK, code, answer)
				return
			}
			assert.Zero(t, code)
			assert.Contains(t, answer, test.says)
			assert.Eventually(t, func() bool { return f.observed.failedHandshakes() > before }, soon, often)
		})
	}
}

func TestAnyNameIsAdmittedWhenNoneIsListed(t *testing.T) {
	f := serve(t)
	shown := issue(t, f.authority, mtls.Leaf{Name: "anything", Usage: x509.ExtKeyUsageClientAuth, Life: time.Hour})
	code, answer := f.ask(f.client(shown, f.authority), f.url)
	assert.Equal(t, http.StatusOK, code, answer)
	assert.WithinDuration(t, shown.Certificate.NotAfter, f.observed.expires(mtls.ClientCertificate), 0)
	assert.WithinDuration(t, f.authority.Certificate.NotAfter, f.observed.expires(mtls.ClientCA), 0)
}

func TestPlainHTTPIsAnsweredWithASentence(t *testing.T) {
	f := serve(t)
	code, answer := f.ask(http.DefaultClient, strings.Replace(f.url, "https", "http", 1))
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, answer, "Client sent an HTTP request to an HTTPS server.")
}

func TestOlderTLSIsRefused(t *testing.T) {
	f := serve(t)
	client := f.client(clientOf(t, f.authority), f.authority)
	transport, ok := client.Transport.(*http.Transport)
	require.True(t, ok)
	transport.TLSClientConfig.MaxVersion = tls.VersionTLS12
	code, answer := f.ask(client, f.url)
	assert.Zero(t, code)
	assert.Contains(t, answer, "protocol version")
}

func TestAConnectionServesManyRequestsForAWhile(t *testing.T) {
	f := serve(t)
	client := f.client(clientOf(t, f.authority), f.authority)
	dials := countDials(client)
	for range 20 {
		code, answer := f.ask(client, f.url)
		require.Equal(t, http.StatusOK, code, answer)
	}
	assert.EqualValues(t, 1, dials.Load())

	// After a while another connection replaces it, and no request fails.
	f.advance(time.Hour)
	for range 20 {
		code, answer := f.ask(client, f.url)
		require.Equal(t, http.StatusOK, code, answer)
	}
	assert.EqualValues(t, 2, dials.Load())
}
