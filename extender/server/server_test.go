package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// newServer returns a server that knows nodes home-1 and west, namespace app,
// whose pods may leave home, and a claim app/data whose volume is in west.
func newServer() *server.Server {
	view := snapshot.New()
	view.Nodes.Set("home-1", keys.Home)
	view.Nodes.Set("west", "west")
	opened, _ := snapshot.FromNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}})
	view.Namespaces.Set("app", opened)
	view.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv"})
	view.Volumes.Set("pv", &snapshot.Volume{Cluster: "west", Bytes: 1, ClaimUID: "uid"})
	return &server.Server{
		View:     view,
		Metrics:  metrics.New(),
		Journal:  explain.NewJournal(),
		Now:      time.Now,
		Missing:  func() []string { return nil },
		Stopping: func() bool { return false },
	}
}

func podWith(claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web", UID: "pod-uid"}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

func nodes(names ...string) *corev1.NodeList {
	list := &corev1.NodeList{}
	for _, name := range names {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "west" {
			node.Labels = map[string]string{keys.Cluster: "west"}
		}
		list.Items = append(list.Items, node)
	}
	return list
}

func post(handler http.Handler, path string, body io.Reader) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, body))
	return recorder
}

// ask calls a verb as kube-scheduler does.
func ask[T any](t *testing.T, handler http.Handler, path string, args any) T {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	answer := post(handler, path, bytes.NewReader(body))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	assert.Equal(t, fmt.Sprint(answer.Body.Len()), answer.Header().Get("Content-Length"))
	var result T
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &result), answer.Body.String())
	return result
}

func TestFilter(t *testing.T) {
	s := newServer()
	elsewhere := extenderv1.FailedNodesMap{"home-1": filter.DataElsewhere.Sentence()}
	none := extenderv1.FailedNodesMap{}
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		nodes  []string
		kept   []string
		failed extenderv1.FailedNodesMap
	}{
		"a pod without claims gets its list back":  {pod: podWith(), nodes: []string{"west", "home-1"}, kept: []string{"west", "home-1"}, failed: none},
		"a pod goes where its data is":             {pod: podWith("data"), nodes: []string{"home-1", "west"}, kept: []string{"west"}, failed: elsewhere},
		"no node is left":                          {pod: podWith("data"), nodes: []string{"home-1"}, kept: []string{}, failed: elsewhere},
		"no node was sent":                         {pod: podWith("data"), nodes: []string{}, kept: []string{}, failed: none},
		"no node was sent for a pod without claim": {pod: podWith(), nodes: []string{}, kept: []string{}, failed: none},
	} {
		t.Run(name, func(t *testing.T) {
			result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: test.pod, NodeNames: &test.nodes})
			assert.Equal(t, extenderv1.ExtenderFilterResult{NodeNames: &test.kept, FailedAndUnresolvableNodes: test.failed}, result)

			result = ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: test.pod, Nodes: nodes(test.nodes...)})
			require.NotNil(t, result.Nodes, "the answer has the mode of the request")
			assert.Nil(t, result.NodeNames)
			kept := []string{}
			for _, node := range result.Nodes.Items {
				kept = append(kept, node.Name)
			}
			assert.Equal(t, test.kept, kept)
			assert.Equal(t, test.failed, result.FailedAndUnresolvableNodes)
		})
	}
	assert.InDelta(t, 4, counter(t, s, `lodestone_extender_refused_nodes_total{reason="DataElsewhere"}`), 0)
	assert.InDelta(t, 10, counter(t, s, `lodestone_extender_requests_total{code="200",verb="filter"}`), 0)
}

func TestFilterTrustsTheNodesOfTheRequest(t *testing.T) {
	s := newServer()
	s.View.Nodes.Delete("west")
	result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith("data"), Nodes: nodes("west", "home-1")})
	require.NotNil(t, result.Nodes)
	assert.Len(t, result.Nodes.Items, 1, "labels that came with the request need no cache")
}

func TestPrioritize(t *testing.T) {
	s := newServer()
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want extenderv1.HostPriorityList
	}{
		"a pod without claims prefers nothing": {pod: podWith(), want: extenderv1.HostPriorityList{}},
		"a pod prefers its data":               {pod: podWith("data"), want: extenderv1.HostPriorityList{{Host: "home-1"}, {Host: "west", Score: 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			names := []string{"home-1", "west"}
			assert.Equal(t, test.want, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: test.pod, NodeNames: &names}))
			assert.Equal(t, test.want, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: test.pod, Nodes: nodes(names...)}))
		})
	}
	assert.Empty(t, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{}}))
}

// counter returns the value of a series as Prometheus would read it.
func counter(t *testing.T, s *server.Server, series string) float64 {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.Status().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	for line := range strings.Lines(recorder.Body.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			var number float64
			_, err := fmt.Sscan(value, &number)
			require.NoError(t, err)
			return number
		}
	}
	require.Failf(t, "series missing", "%s in\n%s", series, recorder.Body)
	return 0
}

func TestMetricsHaveGoodNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(newServer().Metrics.Registry())
	require.NoError(t, err)
	assert.Empty(t, problems)
}
