package replicas

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// fronts are servers in front of the API servers of both clusters, by cluster.
type fronts struct{ servers map[string]*httptest.Server }

// startFronts starts them. through returns what serves the requests to a cluster, of which proxy passes one on.
func startFronts(t *testing.T, through func(cluster string, proxy *httputil.ReverseProxy) http.Handler) fronts {
	t.Helper()
	f := fronts{servers: map[string]*httptest.Server{}}
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		config := cluster.AdminConfig()
		target, err := url.Parse(config.Host)
		require.NoError(t, err)
		// The callers bring their own tokens.
		transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: config.TLSClientConfig})
		require.NoError(t, err)
		silent := log.New(io.Discard, "", 0)
		server := httptest.NewUnstartedServer(through(cluster.Name(), &httputil.ReverseProxy{
			Transport: transport, FlushInterval: -1, ErrorLog: silent,
			Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}))
		server.Config.ErrorLog = silent
		server.StartTLS()
		t.Cleanup(server.Close)
		f.servers[cluster.Name()] = server
	}
	return f
}

// certificate is the authority of a cluster's server.
func (f fronts) certificate(cluster string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.servers[cluster].Certificate().Raw})
}

// leadHome has home reach west through its server until what is returned is called.
func (f fronts) leadHome(t *testing.T) (direct func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	secret, err := secrets.Get(ctx, "west", metav1.GetOptions{})
	require.NoError(t, err)
	before := secret.Data["kubeconfig"]
	config, err := clientcmd.Load(before)
	require.NoError(t, err)
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthorityData = f.servers[bed.West.Name()].URL, f.certificate(bed.West.Name())
	}
	through, err := clientcmd.Write(*config)
	require.NoError(t, err)
	leads := func(kubeconfig []byte) {
		secret, err := secrets.Get(ctx, "west", metav1.GetOptions{})
		require.NoError(t, err)
		secret.Data["kubeconfig"] = kubeconfig
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	leads(through)
	return func() { leads(before) }
}
