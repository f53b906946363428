package mtls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/mtls"
)

const (
	often = 5 * time.Millisecond
	soon  = 20 * time.Second
	life  = 24 * time.Hour
)

// observed counts the calls of the Observer.
type observed struct {
	mu                 sync.Mutex
	expiry             map[string]time.Time
	reloads, handshake int
}

func (o *observed) Expires(kind string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expiry[kind] = at
}

func (o *observed) ReloadFailed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reloads++
}

func (o *observed) HandshakeFailed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handshake++
}

func (o *observed) failedReloads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reloads
}

func (o *observed) failedHandshakes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handshake
}

func (o *observed) expires(kind string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.expiry[kind]
}

// fixture is a directory with a server's files, and what its Observer got.
type fixture struct {
	t         *testing.T
	directory string
	authority *mtls.Pair
	server    *mtls.Server
	observed  *observed
	url       string
	// later is how far the server's clock is ahead.
	mu    sync.Mutex
	later time.Duration
}

func newAuthority(t *testing.T) *mtls.Pair {
	t.Helper()
	authority, err := mtls.NewAuthority(time.Now(), life)
	require.NoError(t, err)
	return authority
}

func issue(t *testing.T, authority *mtls.Pair, leaf mtls.Leaf) *mtls.Pair {
	t.Helper()
	if leaf.Life == 0 {
		leaf.Life = life
	}
	pair, err := authority.Issue(time.Now(), leaf)
	require.NoError(t, err)
	return pair
}

func serverOf(t *testing.T, authority *mtls.Pair) *mtls.Pair {
	t.Helper()
	return issue(t, authority, mtls.Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"extender.test"}})
}

func clientOf(t *testing.T, authority *mtls.Pair) *mtls.Pair {
	t.Helper()
	return issue(t, authority, mtls.Leaf{Name: "kube-scheduler", Usage: x509.ExtKeyUsageClientAuth})
}

// serve starts a server with new certificates, which accepts only clients with these names.
func serve(t *testing.T, names ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, directory: t.TempDir(), authority: newAuthority(t), observed: &observed{expiry: map[string]time.Time{}}}
	f.put("tls", serverOf(t, f.authority))
	f.write("ca.crt", f.authority.CertificatePEM())
	var err error
	f.server, err = mtls.Open(mtls.Settings{Files: f.files(), Names: names}, f.now, f.observed)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "answered")
	})}
	f.server.Attach(t.Context(), server)
	f.url = "https://" + listener.Addr().String() + "/filter"
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.server.Follow(ctx, often) })
	running.Go(func() {
		err := server.Serve(f.server.Listener(listener))
		assert.ErrorIs(t, err, http.ErrServerClosed)
	})
	t.Cleanup(func() {
		stop()
		_ = server.Close()
		running.Wait()
	})
	return f
}

func (f *fixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.later)
}

func (f *fixture) advance(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later += by
}

func (f *fixture) files() mtls.Files {
	return mtls.Files{Certificate: f.path("tls.crt"), Key: f.path("tls.key"), ClientCA: f.path("ca.crt")}
}

func (f *fixture) path(name string) string {
	return filepath.Join(f.directory, name)
}

func (f *fixture) write(name string, content []byte) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path(name), content, 0o600))
}

func (f *fixture) put(name string, pair *mtls.Pair) {
	f.t.Helper()
	key, err := pair.KeyPEM()
	require.NoError(f.t, err)
	f.write(name+".key", key)
	f.write(name+".crt", pair.CertificatePEM())
}

// client returns a client that trusts authorities and sends a certificate, if any.
func (f *fixture) client(shown *mtls.Pair, trusted ...*mtls.Pair) *http.Client {
	f.t.Helper()
	pool := x509.NewCertPool()
	for _, authority := range trusted {
		pool.AddCert(authority.Certificate)
	}
	config := &tls.Config{RootCAs: pool, ServerName: "extender.test", MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if shown != nil {
		key, err := shown.KeyPEM()
		require.NoError(f.t, err)
		pair, err := tls.X509KeyPair(shown.CertificatePEM(), key)
		require.NoError(f.t, err)
		// Sent even if the server asks for other authorities.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask returns the status code and the body, or 0 and why there is no answer.
func (f *fixture) ask(client *http.Client, url string) (int, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	require.NoError(f.t, err)
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(f.t, err)
	return response.StatusCode, string(body)
}
