package app_test

import (
	"net"
	"os"
	"path/filepath"
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
		"listen without port":       {change: func(o *app.Options) { o.Listen = "localhost" }, says: "--listen must be [host]:port"},
		"http-address without port": {change: func(o *app.Options) { o.HTTPAddress = "" }, says: "--http-address must be [host]:port"},
		"one port for both":         {change: func(o *app.Options) { o.HTTPAddress = o.Listen }, says: "give each its own port"},
		"all addresses without TLS": {change: func(o *app.Options) { o.Listen = ":8888" }, says: "--listen=:8888 without TLS would answer everybody: give --tls-cert-file"},
		"a name without TLS":        {change: func(o *app.Options) { o.Listen = "extender.example:8888" }, says: "or listen on 127.0.0.1, or accept it with --allow-plain-http"},
		"loopback by name":          {change: func(o *app.Options) { o.Listen = "localhost:8888" }},
		"loopback of IPv6":          {change: func(o *app.Options) { o.Listen = "[::1]:8888" }},
		"plain http that is wanted": {change: func(o *app.Options) { o.Listen, o.TLS.AllowPlainHTTP = ":8888", true }},
		"all addresses with TLS":    {change: func(o *app.Options) { o.Listen, o.TLS = ":8888", tlsFiles() }},
		"TLS without a CA":          {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.ClientCAFile = "" }, says: "--client-ca-file missing"},
		"TLS without a pair": {
			change: func(o *app.Options) { o.TLS = app.TLSOptions{ClientCAFile: "ca.crt"} },
			says:   "--tls-cert-file and --tls-private-key-file missing",
		},
		"TLS and plain http":      {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.AllowPlainHTTP = true }, says: "--allow-plain-http has no meaning with --tls-cert-file"},
		"a client without TLS":    {change: func(o *app.Options) { o.TLS.ClientNames = []string{"a"} }, says: "--client-name is checked in client certificates only"},
		"a client without a name": {change: func(o *app.Options) { o.TLS = tlsFiles(); o.TLS.ClientNames = []string{""} }, says: "--client-name is empty"},
		"negative grace":          {change: func(o *app.Options) { o.ShutdownGrace = -time.Second }, says: "--shutdown-grace is -1s: it must not be negative"},
		"no staleness at all":     {change: func(o *app.Options) { o.MaxStaleness = 0 }, says: "--max-staleness is 0s: it must be positive"},
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
