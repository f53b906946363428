package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/extender/certificates"
	"github.com/lodestone-storage/lodestone/extender/mtls"
)

// certified is a program that serves with TLS for life, and a client of its own.
func certified(t *testing.T, life time.Duration) (*running, *http.Client) {
	t.Helper()
	authority, err := certificates.NewAuthority(time.Now(), 24*time.Hour)
	require.NoError(t, err)
	directory := t.TempDir()
	pair := func(leaf certificates.Leaf) (certificate, key string) {
		made, err := authority.Issue(time.Now(), leaf)
		require.NoError(t, err)
		keyPEM, err := made.KeyPEM()
		require.NoError(t, err)
		return write(t, directory, leaf.Name+".crt", made.CertificatePEM()), write(t, directory, leaf.Name+".key", keyPEM)
	}
	settings := &mtls.Settings{Files: mtls.Files{ClientCA: write(t, directory, "ca.crt", authority.CertificatePEM())}}
	settings.Files.Certificate, settings.Files.Key = pair(certificates.Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"127.0.0.1"}, Life: life})

	shown, err := tls.LoadX509KeyPair(pair(certificates.Leaf{Name: "client", Usage: x509.ExtKeyUsageClientAuth, Life: time.Hour}))
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{shown}, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)

	r := startWith(t, newAPIServer(t), func(config *app.Config) { config.TLS = settings })
	return r, &http.Client{Transport: transport}
}

func write(t *testing.T, directory, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(directory, name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestOnlyAClientWithACertificateMayAskWhileAnybodyMayProbe(t *testing.T) {
	r, client := certified(t, time.Hour)
	r.waitUntilReady()
	ask := func(client *http.Client) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.verbs+"/filter", strings.NewReader(`{"Pod":{},"NodeNames":["a"]}`))
		require.NoError(t, err)
		return read(client.Do(request))
	}
	code, answer := ask(client)
	assert.Equal(t, http.StatusOK, code, answer)
	code, answer = ask(http.DefaultClient)
	assert.Zero(t, code)
	assert.Contains(t, answer, "certificate")
	_, metrics := r.get("/metrics")
	for _, name := range []string{`lodestone_extender_certificate_expiry_timestamp_seconds{certificate="client"}`,
		`lodestone_extender_certificate_expiry_timestamp_seconds{certificate="server"}`,
		"lodestone_extender_certificate_reload_errors_total 0"} {
		assert.Contains(t, metrics, name)
	}
	r.stop()
	assert.NoError(t, <-r.done)
}

func TestAnExtenderWhoseCertificateHasExpiredIsNotReady(t *testing.T) {
	r, _ := certified(t, -time.Minute)
	for _, path := range []string{"/readyz", "/readyz/serving"} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			code, answer := r.get(path)
			assert.Equal(c, http.StatusServiceUnavailable, code)
			assert.Contains(c, answer, "has expired at")
		}, soon, 10*time.Millisecond)
	}
	code, _ := r.get("/healthz")
	assert.Equal(t, http.StatusOK, code, "a restart would not help")
}

func TestCertificatesThatCannotBeReadEndTheProgram(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	r := startWith(t, newAPIServer(t), func(config *app.Config) {
		config.TLS = &mtls.Settings{Files: mtls.Files{Certificate: missing, Key: missing, ClientCA: missing}}
	})
	require.ErrorIs(t, <-r.done, os.ErrNotExist)
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", strings.TrimPrefix(r.verbs, "https://"))
	require.NoError(t, err, "the port must be free")
	require.NoError(t, again.Close())
}

func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	r, _ := certified(t, time.Hour)
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.verbs, "https://"))
	require.NoError(t, err)
	defer connection.Close()
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(soon)))
	_, err = connection.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
}
