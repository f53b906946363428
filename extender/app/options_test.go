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
	"github.com/lodestone-storage/lodestone/extender/mtls"
)

func TestOptionsValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*app.Options)
		says   string
	}{
		"the defaults are valid":    {change: func(*app.Options) {}},
		"any free ports":            {change: func(o *app.Options) { o.Listen, o.HTTPAddress = "127.0.0.1:0", "127.0.0.1:0" }},
		"listen without port":       {change: func(o *app.Options) { o.Listen = "localhost" }, says: `--listen "localhost" is no address`},
		"http-address without port": {change: func(o *app.Options) { o.HTTPAddress = "" }, says: "--http-address is empty"},
		"one port for both":         {change: func(o *app.Options) { o.HTTPAddress = o.Listen }, says: "give each its own port"},
		"all addresses without TLS": {change: func(o *app.Options) { o.Listen = ":8888" },
			says: "--listen=:8888 without TLS would answer everybody: give --tls-cert-file"},
		"a name without TLS": {change: func(o *app.Options) { o.Listen = "extender.example:8888" },
			says: "or listen on 127.0.0.1, or accept it with --allow-plain-http"},
		"loopback by name":          {change: func(o *app.Options) { o.Listen = "localhost:8888" }},
		"loopback of IPv6":          {change: func(o *app.Options) { o.Listen = "[::1]:8888" }},
		"plain http that is wanted": {change: func(o *app.Options) { o.Listen, o.TLS.AllowPlainHTTP = ":8888", true }},
		"all addresses with TLS":    {change: func(o *app.Options) { o.Listen, o.TLS = ":8888", tlsFiles() }},
		"TLS without a CA": {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.ClientCAFile = "" },
			says: "--client-ca-file missing"},
		"TLS without a pair": {
			change: func(o *app.Options) { o.TLS = app.TLSOptions{ClientCAFile: "ca.crt"} },
			says:   "--tls-cert-file and --tls-private-key-file missing",
		},
		"TLS and plain http": {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.AllowPlainHTTP = true },
			says: "--allow-plain-http has no meaning with --tls-cert-file"},
		"a client without TLS": {change: func(o *app.Options) { o.TLS.ClientNames = []string{"a"} },
			says: "--client-name is checked in client certificates only"},
		"a client without a name": {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.ClientNames = []string{""} },
			says: "--client-name is empty"},
		"negative grace": {change: func(o *app.Options) { o.ShutdownGrace = -time.Second },
			says: "--shutdown-grace is -1s: it must not be negative"},
		"no staleness at all": {change: func(o *app.Options) { o.MaxStaleness = 0 }, says: "--max-staleness is 0s: it must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			options := app.NewOptions()
			test.change(options)
			err := options.Validate()
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func tlsFiles() app.TLSOptions {
	return app.TLSOptions{CertFile: "tls.crt", PrivateKeyFile: "tls.key", ClientCAFile: "ca.crt"}
}

func TestCertificatesOptionsValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*app.CertificatesOptions)
		says   string
	}{
		"the defaults are valid": {change: func(*app.CertificatesOptions) {}},
		"a namespace that is no name": {
			change: func(o *app.CertificatesOptions) { o.Namespace = "A b" }, says: `--namespace "A b" is no name`},
		"a life that is too short": {
			change: func(o *app.CertificatesOptions) { o.ServerLife = time.Minute }, says: "--server-duration is 1m0s: give at least 1h"},
		"an empty host":           {change: func(o *app.CertificatesOptions) { o.Hosts = []string{""} }, says: "--host is empty"},
		"a client without a name": {change: func(o *app.CertificatesOptions) { o.ClientName = "" }, says: "--client-name is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			options := app.NewCertificatesOptions()
			test.change(options)
			err := options.Validate()
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func TestOptionsConfig(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
current-context: home
contexts: [{name: home, context: {cluster: home, user: home}}]
clusters: [{name: home, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: home}]
`), 0o600))
	options := app.NewOptions()
	options.Kubeconfig, options.Listen, options.HTTPAddress = kubeconfig, "127.0.0.1:0", "127.0.0.1:0"
	config, err := options.Config(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "http://127.0.0.1:1", config.Home.Host)
	assert.Nil(t, config.TLS)

	t.Run("TLS", func(t *testing.T) {
		protected := *options
		protected.TLS = tlsFiles()
		protected.TLS.ClientNames = []string{"kube-scheduler"}
		config, err := protected.Config(t.Context())
		require.NoError(t, err)
		require.NoError(t, config.Close())
		assert.Equal(t, &mtls.Settings{
			Files: mtls.Files{Certificate: "tls.crt", Key: "tls.key", ClientCA: "ca.crt"}, Names: []string{"kube-scheduler"},
		}, config.TLS)
	})

	t.Run("a port that is taken", func(t *testing.T) {
		taken := *options
		taken.HTTPAddress = config.Status.Addr().String()
		_, err := taken.Config(t.Context())
		assert.ErrorContains(t, err, "open --http-address")
	})
	t.Run("no kubeconfig", func(t *testing.T) {
		missing := *options
		missing.Kubeconfig = filepath.Join(t.TempDir(), "none")
		_, err := missing.Config(t.Context())
		assert.ErrorContains(t, err, "read --kubeconfig")
	})
	t.Run("neither kubeconfig nor pod", func(t *testing.T) {
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		outside := *options
		outside.Kubeconfig = ""
		_, err := outside.Config(t.Context())
		assert.ErrorContains(t, err, "outside a pod, set --kubeconfig")
	})
	address := config.Verbs.Addr().String()
	require.NoError(t, config.Close())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err, "Close must free the ports")
	require.NoError(t, listener.Close())
}

// certified returns a program that serves with TLS, and a client with its certificate.
func certified(t *testing.T, life time.Duration) (*running, *http.Client) {
	t.Helper()
	authority, err := mtls.NewAuthority(time.Now(), 24*time.Hour)
	require.NoError(t, err)
	directory := t.TempDir()
	pair := func(leaf mtls.Leaf) (certificate, key string) {
		made, err := authority.Issue(time.Now(), leaf)
		require.NoError(t, err)
		keyPEM, err := made.KeyPEM()
		require.NoError(t, err)
		return write(t, directory, leaf.Name+".crt", made.CertificatePEM()), write(t, directory, leaf.Name+".key", keyPEM)
	}
	settings := &mtls.Settings{Files: mtls.Files{ClientCA: write(t, directory, "ca.crt", authority.CertificatePEM())}}
	settings.Files.Certificate, settings.Files.Key = pair(mtls.Leaf{Name: "server", Usage: x509.ExtKeyUsageServerAuth,
		Hosts: []string{"127.0.0.1"}, Life: life})

	shown, err := tls.LoadX509KeyPair(pair(mtls.Leaf{Name: "client", Usage: x509.ExtKeyUsageClientAuth, Life: time.Hour}))
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{shown},
		MinVersion: tls.VersionTLS13}}
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
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.verbs+"/filter",
			strings.NewReader(`{"Pod":{},"NodeNames":["a"]}`))
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
