package mtls_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/certificates"
	"github.com/lodestone-storage/lodestone/extender/mtls"
)

func TestWhoMayAsk(t *testing.T) {
	f := serve(t, "kube-scheduler", "scheduler.example.com")
	stranger := newAuthority(t)
	for name, test := range map[string]struct {
		shown *certificates.Pair
		// says is what the client is told; empty: it is answered.
		says string
	}{
		"a client of that name": {shown: clientOf(t, f.authority)},
		"a client with a DNS name that is listed": {shown: issue(t, f.authority, certificates.Leaf{
			Name: "other", Usage: x509.ExtKeyUsageClientAuth, Hosts: []string{"scheduler.example.com"}})},
		"a client of another name": {shown: issue(t, f.authority, certificates.Leaf{
			Name: "tenant", Usage: x509.ExtKeyUsageClientAuth}), says: "tls: bad certificate"},
		"a client without a certificate":                      {says: "tls: certificate required"},
		"a client of another authority":                       {shown: clientOf(t, stranger), says: "tls: unknown certificate authority"},
		"the server's certificate does not pass for a client": {shown: serverOf(t, f.authority), says: "tls: bad certificate"},
		"a client whose certificate has expired": {shown: issue(t, f.authority, certificates.Leaf{
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
	shown := issue(t, f.authority, certificates.Leaf{Name: "anything", Usage: x509.ExtKeyUsageClientAuth, Life: time.Hour})
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

	// After a while another one takes its place, and no request fails.
	f.advance(time.Hour)
	for range 20 {
		code, answer := f.ask(client, f.url)
		require.Equal(t, http.StatusOK, code, answer)
	}
	assert.EqualValues(t, 2, dials.Load())
}
