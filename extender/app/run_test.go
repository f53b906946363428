package app_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func node(name, cluster string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
	if cluster != keys.Home {
		node.Labels = map[string]string{keys.Cluster: cluster}
	}
	return node
}

// opened is a namespace whose pods may run in remote clusters.
func opened(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
}

func dataIn(cluster string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data", UID: "uid", ResourceVersion: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		}, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "1"},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef:     &corev1.ObjectReference{UID: "uid"},
				NodeAffinity: locality.Affinity(cluster, nil),
			},
		}
}

func TestRunServesWhatTheAPIServerHolds(t *testing.T) {
	api := newAPIServer(t)
	claim, volume := dataIn("west")
	api.set(claimsPath, claim)
	api.set(volumesPath, volume)
	api.set(nodesPath, node("home-1", keys.Home), node("west", "west"))
	api.set(namespacesPath, opened("app"))
	r := start(t, api, 0)
	r.waitUntilReady()
	assert.Equal(t, []string{"west"}, r.filter("home-1", "west"))

	code, explanation := r.get("/explain?namespace=app&pod=web")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, explanation, `"dataIn": "west"`)

	// The data is moved home: the next decision follows.
	_, moved := dataIn(keys.Home)
	moved.ResourceVersion = "2"
	api.events[volumesPath] <- map[string]any{"type": "MODIFIED", "object": typed(moved, "PersistentVolume")}
	require.Eventually(t, func() bool {
		return assert.ObjectsAreEqual([]string{"home-1"}, r.filter("home-1", "west"))
	}, soon, 5*time.Millisecond)

	code, metrics := r.get("/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, metrics, `lodestone_extender_cached_objects{kind="nodes"} 2`)
	assert.Contains(t, metrics, `lodestone_extender_last_change_timestamp_seconds{kind="persistentvolumes"} 1.`)

	r.stop()
	require.NoError(t, <-r.done)
}

func typed(volume *corev1.PersistentVolume, kind string) *corev1.PersistentVolume {
	volume.APIVersion, volume.Kind = "v1", kind
	return volume
}

func TestRunIsReadyOnlyWhenAllIsRead(t *testing.T) {
	api := newAPIServer(t)
	api.remove(clustersPath)
	r := start(t, api, 0)
	require.Eventually(t, func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && body == "not ready: still reading remoteclusters from the API server; if this lasts, the log says why\n"
	}, soon, 10*time.Millisecond)
	code, _ := r.get("/healthz")
	assert.Equal(t, http.StatusOK, code)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.verbs+"/filter", bytes.NewReader([]byte("{}")))
	require.NoError(t, err)
	code, body := read(http.DefaultClient.Do(request))
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "still reading remoteclusters")

	api.set(clustersPath)
	r.waitUntilReady()
}

func TestRunFinishesWhatItBegan(t *testing.T) {
	api := newAPIServer(t)
	claim, volume := dataIn("west")
	api.set(claimsPath, claim)
	api.set(volumesPath, volume)
	api.set(nodesPath, node("west", "west"))
	api.set(namespacesPath, opened("app"))
	r := start(t, api, 500*time.Millisecond)
	r.waitUntilReady()

	// A call is under way when the program is told to stop.
	bodyReader, body := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.verbs+"/filter", bodyReader)
	require.NoError(t, err)
	answered := make(chan int, 1)
	go func() {
		code, _ := read(http.DefaultClient.Do(request))
		answered <- code
	}()
	_, err = io.WriteString(body, `{"Pod":{},`)
	require.NoError(t, err)

	r.stop()
	require.Eventually(t, func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && body == "not ready: the program is stopping\n"
	}, soon, 5*time.Millisecond)
	assert.Equal(t, []string{"west"}, r.filter("west"), "new calls are still answered during the grace period")

	// The grace period ends, and no new connection is taken...
	address := r.verbs[len("http://"):]
	require.Eventually(t, func() bool {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return true
		}
		return connection.Close() != nil
	}, soon, 10*time.Millisecond)
	select {
	case err := <-r.done:
		require.Failf(t, "the program ended under a call", "%v", err)
	default:
	}
	// ...but the call under way gets its answer.
	_, err = io.WriteString(body, `"NodeNames":[]}`)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	assert.Equal(t, http.StatusOK, <-answered)
	require.NoError(t, <-r.done)
}

func TestRunFailsWhenItCannotServe(t *testing.T) {
	api := newAPIServer(t)
	r := start(t, api, 0)
	r.waitUntilReady()

	var listen net.ListenConfig
	closed, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	status, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	err = app.Run(t.Context(), &app.Config{Home: api.config(), Verbs: closed, Status: status})
	assert.ErrorContains(t, err, "serve on 127.0.0.1")
}
