package app_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

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
	for _, path := range []string{claimsPath, volumesPath, nodesPath, namespacesPath, storageClassesPath, roomPath, podsPath, csiNodesPath, clustersPath} {
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
