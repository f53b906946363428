package tenancy

import (
	"encoding/json"
	"fmt"
	"io"
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
	// asked are the requests that answer was given, sent are the bytes of answers that were written.
	asked, sent atomic.Int64
}

func newEvil(t *testing.T, id string, answer http.HandlerFunc) *evil {
	t.Helper()
	e := &evil{id: id}
	e.says(answer)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &counted{ResponseWriter: w, sent: &e.sent}
		switch {
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
	t.Cleanup(func() {
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

// counted counts what is written.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
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
	}
	return "PersistentVolume"
}

// lists answers lists and watches with these objects, and nothing after.
func lists(objects func(kind string) []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, group := kindOf(r), "v1"
		if strings.Contains(r.URL.Path, "storage.k8s.io") {
			group = "storage.k8s.io/v1"
		}
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
		<-r.Context().Done()
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
