package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

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
		return code == http.StatusServiceUnavailable && body == "not ready: still reading remoteclusters from the API server; if this lasts, "+
			"the log says why\n"
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

	// The program is stopped while a call is under way.
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

// soon bounds waits that end in milliseconds unless something is broken.
const soon = 30 * time.Second

// running is the program, started in this process.
type running struct {
	t             *testing.T
	verbs, status string
	stop          context.CancelFunc
	done          chan error
}

func start(t *testing.T, api *apiServer, grace time.Duration) *running {
	t.Helper()
	return startWith(t, api, func(config *app.Config) { config.ShutdownGrace = grace })
}

func startWith(t *testing.T, api *apiServer, change func(*app.Config)) *running {
	t.Helper()
	config := &app.Config{Home: api.config(), Verbs: listen(t), Status: listen(t), MaxStaleness: app.NewOptions().MaxStaleness}
	change(config)
	scheme := "http"
	if config.TLS != nil {
		scheme = "https"
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{
		t: t, stop: stop, done: make(chan error, 1),
		verbs: scheme + "://" + config.Verbs.Addr().String(), status: "http://" + config.Status.Addr().String(),
	}
	go func() { r.done <- app.Run(ctx, config) }()
	t.Cleanup(stop)
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// get returns the answer of the status address; empty when nothing answers.
func (r *running) get(path string) (int, string) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.status+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	return read(http.DefaultClient.Do(request))
}

func read(response *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func (r *running) waitUntilReady() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		code, _ := r.get("/readyz")
		return code == http.StatusOK
	}, soon, 10*time.Millisecond)
}

// filter returns the names that are kept for a pod that mounts app/data.
func (r *running) filter(names ...string) []string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"}}
	pod.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	require.NoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.verbs+"/filter", bytes.NewReader(body))
	require.NoError(r.t, err)
	code, answer := read(http.DefaultClient.Do(request))
	require.Equal(r.t, http.StatusOK, code, answer)
	var result extenderv1.ExtenderFilterResult
	require.NoError(r.t, json.Unmarshal([]byte(answer), &result))
	require.NotNil(r.t, result.NodeNames)
	return *result.NodeNames
}

// Without the room only a preference is missing.
func TestRunIsReadyWhereRoomMayNotBeRead(t *testing.T) {
	api := newAPIServer(t)
	api.remove(roomPath)
	r := startWith(t, api, func(config *app.Config) { config.MaxStaleness = 200 * time.Millisecond })
	r.waitUntilReady()
	require.Eventually(t, func() bool {
		_, metrics := r.get("/metrics")
		return strings.Contains(metrics, `lodestone_extender_watch_connected{kind="csistoragecapacities"} 0`)
	}, soon, 10*time.Millisecond, "it can be seen")
	time.Sleep(2 * 200 * time.Millisecond)
	_, body := r.get("/readyz")
	assert.Equal(t, "ok\n", body)
}

func TestRunAnswersFromWhatItKnewDuringAnOutage(t *testing.T) {
	api := newAPIServer(t)
	claim, volume := dataIn("west")
	api.set(claimsPath, claim)
	api.set(volumesPath, volume)
	api.set(nodesPath, node("home-1", keys.Home), node("west", "west"))
	api.set(namespacesPath, opened("app"))
	r := startWith(t, api, func(config *app.Config) { config.MaxStaleness = 200 * time.Millisecond })
	r.waitUntilReady()
	assert.Equal(t, []string{"west"}, r.filter("home-1", "west"))
	_, explanation := r.get("/explain?namespace=app&pod=web")
	assert.NotContains(t, explanation, `"stale"`)

	api.remove(volumesPath)
	api.CloseClientConnections()
	require.Eventually(t, func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.HasPrefix(body, "not ready: persistentvolumes cannot be watched for ")
	}, soon, 10*time.Millisecond)
	code, body := r.get("/readyz/serving")
	assert.Equal(t, http.StatusOK, code, "its Service must not drop it: "+body)
	require.Eventually(t, func() bool {
		kept := r.filter("home-1", "west")
		_, explanation := r.get("/explain?namespace=app&pod=web")
		return assert.ObjectsAreEqual([]string{"west"}, kept) && strings.Contains(explanation, `"stale": "1s"`)
	}, soon, 50*time.Millisecond, "an explanation says that it is from old knowledge")
	require.Eventually(t, func() bool {
		_, metrics := r.get("/metrics")
		return strings.Contains(metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 0`) &&
			strings.Contains(metrics, `lodestone_extender_watch_connected{kind="nodes"} 1`)
	}, soon, 10*time.Millisecond, "only one kind is affected")

	// The program is ready only after it has read what changed meanwhile.
	_, moved := dataIn(keys.Home)
	moved.ResourceVersion = "2"
	api.set(volumesPath, moved)
	r.waitUntilReady()
	assert.Equal(t, []string{"home-1"}, r.filter("home-1", "west"))
	_, explanation = r.get("/explain?namespace=app&pod=web")
	decisions := strings.Split(explanation, `"time"`)
	assert.NotContains(t, decisions[len(decisions)-1], `"stale"`)
}

// apiServer lists and watches a few objects, as far as the extender asks.
type apiServer struct {
	*httptest.Server
	mu sync.Mutex
	// lists holds the items by the path of their collection; a path that is not
	// in it does not exist yet.
	lists map[string][]runtime.Object
	// events holds what a watch of a path sends, and stays open for more.
	events map[string]chan any
}

const (
	claimsPath         = "/api/v1/persistentvolumeclaims"
	volumesPath        = "/api/v1/persistentvolumes"
	nodesPath          = "/api/v1/nodes"
	namespacesPath     = "/api/v1/namespaces"
	podsPath           = "/api/v1/pods"
	csiNodesPath       = "/apis/storage.k8s.io/v1/csinodes"
	storageClassesPath = "/apis/storage.k8s.io/v1/storageclasses"
	roomPath           = "/apis/storage.k8s.io/v1/csistoragecapacities"
	clustersPath       = "/apis/lodestone.dev/v1alpha1/remoteclusters"
)

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{lists: map[string][]runtime.Object{}, events: map[string]chan any{}}
	for _, path := range []string{claimsPath, volumesPath, nodesPath, namespacesPath, storageClassesPath, roomPath, podsPath, csiNodesPath,
		clustersPath} {
		s.lists[path] = nil
		s.events[path] = make(chan any)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.URL}
}

// set makes a collection exist with these items.
func (s *apiServer) set(path string, items ...runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[path] = items
}

// remove makes a collection unknown, as before its definition is installed.
func (s *apiServer) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, path)
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	items, ok := s.lists[r.URL.Path]
	s.mu.Unlock()
	query := r.URL.Query()
	switch {
	case !ok:
		http.NotFound(w, r)
	case query.Get("sendInitialEvents") != "":
		http.Error(w, "lists are not streamed here", http.StatusBadRequest)
	case query.Get("watch") != "":
		s.watch(w, r)
	default:
		if items == nil {
			items = []runtime.Object{}
		}
		writeJSON(w, map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items})
	}
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case event := <-s.events[r.URL.Path]:
			writeJSON(w, event)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
