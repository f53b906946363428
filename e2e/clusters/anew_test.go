package clusters

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// address is one at which west answers, and from turn on east, to requests that begin then: as if west were made anew.
type address struct {
	west, east http.Handler
	turned     atomic.Bool
}

func (a *address) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.turned.Load() {
		a.east.ServeHTTP(w, r)
		return
	}
	a.west.ServeHTTP(w, r)
}

// newAddress returns one, and the kubeconfig that leads there.
func newAddress(t *testing.T) (*address, []byte) {
	t.Helper()
	a := &address{west: proxyTo(t, kubeconfigOf(t, bed.West)), east: proxyTo(t, kubeconfigOf(t, east))}
	server := httptest.NewUnstartedServer(a)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return a, altered(t, func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		cluster.Server = server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	})
}

// proxyTo returns a proxy to the API server of a kubeconfig, with the rights of that.
func proxyTo(t *testing.T, kubeconfig []byte) http.Handler {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	at, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			r.Out.Header.Del("Authorization") // the transport sets that of this cluster
		},
		Transport: transport, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// TestAClusterThatWasMadeAnewSaysNothingOfEarlierVolumes has another cluster answer at the address of west while a volume there is being
// deleted, before a probe has seen that it is another one.
func TestAClusterThatWasMadeAnewSaysNothingOfEarlierVolumes(t *testing.T) {
	namespace := newNamespace(t)
	way, kubeconfig := newAddress(t)
	replaceKubeconfig(t, "west", kubeconfig)
	t.Cleanup(func() {
		data, err := bed.WestKubeconfig(context.Background())
		require.NoError(t, err)
		replaceKubeconfig(t, "west", data)
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")

	useInWest(t, namespace, "data", "db")
	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	real := claimOf(t, bed.West, namespace, "data").Spec.VolumeName

	// Its storage takes its time: the claim there goes, and the real volume stays.
	volumes := bed.West.Client().CoreV1().PersistentVolumes()
	hold := func(patch string) {
		t.Helper()
		must.Patch(t, volumes, real, types.JSONPatchType, []byte(patch))
	}
	hold(`[{"op":"add","path":"/metadata/finalizers/-","value":"test.lodestone.dev/slow"}]`)
	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "the real volume is being deleted", func() bool {
		held := must.Get(t, volumes, real)
		return claimOf(t, bed.West, namespace, "data") == nil && held.DeletionTimestamp != nil
	})
	require.True(t, hasVolume(t, volume))

	way.turned.Store(true)
	// That makes the provisioner look again at once, before a probe does.
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumes(), volume, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"look":"again"}}}`))
	awaitReady(t, "west", metav1.ConditionFalse, "OtherCluster")
	await.Never(t, "the volume must stay until its own cluster says that it is gone", func() bool { return !hasVolume(t, volume) })
	assert.Equal(t, corev1.VolumeReleased, await.Volume(t, bed.Home.Client(), volume).Status.Phase)
	assert.Equal(t, status(t, "west").ClusterUID, await.Volume(t, bed.Home.Client(), volume).Annotations[keys.ClusterUID])

	way.turned.Store(false)
	hold(`[{"op":"remove","path":"/metadata/finalizers"}]`)
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	await.Until(t, "all goes", func() bool { return !hasVolume(t, volume) },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
}
