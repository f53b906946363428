package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// evil is an API server that answers as its owner wants. It says that it is
// a cluster of its own, that home may do all, and for the rest what answer writes.
type evil struct {
	*httptest.Server
	id     string
	answer atomic.Pointer[http.HandlerFunc]
	// asked are the requests that answer was given, longest are the bytes of the longest
	// answer to one that was no watch.
	asked, longest atomic.Int64
	// sick: it fails where home looks how it is.
	sick atomic.Bool
}

func newEvil(t *testing.T, id string, answer http.HandlerFunc) *evil {
	t.Helper()
	e := &evil{id: id}
	e.says(answer)
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &counted{ResponseWriter: w}
		if r.URL.Query().Get("watch") == "" {
			answer.longest = &e.longest
		}
		w = answer
		switch {
		case e.sick.Load() && (r.URL.Path == "/version" || strings.HasSuffix(r.URL.Path, "/kube-system")):
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			object(w, fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, id))
		case r.URL.Path == "/version":
			object(w, `{"gitVersion":"v1.36.3"}`)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			body, _ := io.ReadAll(r.Body)
			object(w, fmt.Sprintf(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`,
				!strings.Contains(string(body), "namespacerequests")))
		default:
			e.asked.Add(1)
			(*e.answer.Load())(w, r)
		}
	}))
	// Home may ask again at any moment: watches end with the server, or it would wait for them.
	ctx, stop := context.WithCancel(context.Background())
	e.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	e.Start()
	t.Cleanup(func() {
		stop()
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

func (e *evil) says(answer http.HandlerFunc) { e.answer.Store(&answer) }

// kubeconfig is one that leads there.
func (e *evil) kubeconfig(t *testing.T) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"evil": {Server: e.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"home": {Token: "token"}},
		Contexts:       map[string]*clientcmdapi.Context{"evil": {Cluster: "evil", AuthInfo: "home"}},
		CurrentContext: "evil",
	})
	require.NoError(t, err)
	return data
}

// counted sends what is written at once, and says how long the longest answer is.
type counted struct {
	http.ResponseWriter
	sent int64
	// longest, if not nil, is raised to the bytes of this answer.
	longest *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent += int64(n)
	for most := int64(0); c.longest != nil && c.sent > most; {
		if most = c.longest.Load(); c.sent > most && c.longest.CompareAndSwap(most, c.sent) {
			break
		}
	}
	if flusher, ok := c.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
	return n, err
}

func object(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// kindOf is the kind of what a request asks for.
func kindOf(r *http.Request) string {
	switch parts := strings.Split(r.URL.Path, "/"); parts[len(parts)-1] {
	case "persistentvolumeclaims":
		return "PersistentVolumeClaim"
	case "storageclasses":
		return "StorageClass"
	case "csistoragecapacities":
		return "CSIStorageCapacity"
	case "nodes":
		return "Node"
	case "volumesnapshots":
		return "VolumeSnapshot"
	case "volumesnapshotcontents":
		return "VolumeSnapshotContent"
	}
	return "PersistentVolume"
}

// groupOf is the API group and version of what a request asks for.
func groupOf(r *http.Request) string {
	if strings.Contains(r.URL.Path, "snapshot.storage.k8s.io") {
		return "snapshot.storage.k8s.io/v1"
	}
	if strings.Contains(r.URL.Path, "storage.k8s.io") {
		return "storage.k8s.io/v1"
	}
	return "v1"
}

// lists answers lists and watches with these objects, and nothing after.
func lists(objects func(kind string) []string) http.HandlerFunc { return follows(objects, nil) }

// follows answers lists and watches with these objects, and a watch then with more,
// unless that is nil.
func follows(objects func(kind string) []string, more http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, group := kindOf(r), groupOf(r)
		query := r.URL.Query()
		if query.Get("watch") == "" {
			object(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"10"},"items":[%s]}`, kind, group, strings.Join(objects(kind), ",")))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if query.Get("sendInitialEvents") == "true" {
			for _, text := range objects(kind) {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, typed(text, kind, group))
			}
			_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`, kind, group)
		}
		if more != nil {
			more(w, r)
		}
		<-r.Context().Done()
	}
}

// withoutEnd brings objects of the kind that is watched, as many as are read.
func withoutEnd(w http.ResponseWriter, r *http.Request) {
	kind, group := kindOf(r), groupOf(r)
	for n := 0; r.Context().Err() == nil; {
		var many strings.Builder
		for range 100 {
			n++
			_, _ = fmt.Fprintf(&many, `{"type":"ADDED","object":{"kind":%q,"apiVersion":%q,"metadata":{"namespace":"none","name":"n%d","uid":"n%d","resourceVersion":"%d"}}}`, kind, group, n, n, 10+n)
		}
		if _, err := io.WriteString(w, many.String()); err != nil {
			return
		}
	}
}

// typed is an object with its kind, as watches bring it.
func typed(text, kind, group string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return text
	}
	fields["kind"], fields["apiVersion"] = kind, group
	data, err := json.Marshal(fields)
	if err != nil {
		return text
	}
	return string(data)
}
