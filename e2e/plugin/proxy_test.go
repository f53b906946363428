package plugin

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// killer stands between the plugin and both clusters. It kills the plugin after
// a write was done and before the plugin hears of it.
type killer struct {
	kubeconfig string

	mu      sync.Mutex
	started chan struct{}
	victim  *os.Process
	left    int
	killed  bool
}

var errKilled = errors.New("killed")

func newKiller(t *testing.T) *killer {
	t.Helper()
	k := &killer{}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		server := k.serve(t, cluster.AdminConfig())
		config.Clusters[cluster.Name()].Server = server.URL
		config.Clusters[cluster.Name()].CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	k.kubeconfig = t.TempDir() + "/kubeconfig"
	require.NoError(t, os.WriteFile(k.kubeconfig, content, 0o600))
	return k
}

func (k *killer) serve(t *testing.T, to *rest.Config) *httptest.Server {
	t.Helper()
	target, err := url.Parse(to.Host)
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(to.CAData))
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}},
		ModifyResponse: k.answered,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewTLSServer(proxy)
	t.Cleanup(server.Close)
	return server
}

// answered is called with each answer of a cluster.
func (k *killer) answered(response *http.Response) error {
	request := response.Request
	if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "selfsubject") || request.URL.Query().Has("dryRun") {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left != 0 {
		return nil
	}
	<-k.started
	_ = k.victim.Kill()
	k.killed = true
	return errKilled
}

// run runs the plugin and kills it after a number of writes; 0 means never. It
// says whether it came to that.
func (k *killer) run(t *testing.T, writes int, args ...string) (result, bool) {
	t.Helper()
	k.mu.Lock()
	k.left, k.killed, k.started = writes, false, make(chan struct{})
	k.mu.Unlock()
	c := command(t.Context(), "", args...)
	c.Env = append(c.Env, "KUBECONFIG="+k.kubeconfig)
	var out, stderr strings.Builder
	c.Stdout, c.Stderr = &out, &stderr
	require.NoError(t, c.Start())
	k.victim = c.Process
	close(k.started)
	_ = c.Wait() // its code is judged by the caller
	k.mu.Lock()
	defer k.mu.Unlock()
	return result{code: c.ProcessState.ExitCode(), out: out.String(), stderr: stderr.String()}, k.killed
}
