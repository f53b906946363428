package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// newServer returns a server with nodes home-1 and west, namespace app, whose pods may run in
// remote clusters, and a claim app/data whose volume is in west.
func newServer() *server.Server {
	view := snapshot.New()
	view.Nodes.Set("home-1", keys.Home)
	view.Nodes.Set("west", "west")
	opened, _ := snapshot.FromNamespace(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}},
	})
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
		"a pod without claims gets its list back": {pod: podWith(), nodes: []string{"west", "home-1"}, kept: []string{"west", "home-1"},
			failed: none},
		"a pod goes where its data is": {pod: podWith("data"), nodes: []string{"home-1", "west"}, kept: []string{"west"},
			failed: elsewhere},
		"no node is left":                          {pod: podWith("data"), nodes: []string{"home-1"}, kept: []string{}, failed: elsewhere},
		"no node was sent":                         {pod: podWith("data"), nodes: []string{}, kept: []string{}, failed: none},
		"no node was sent for a pod without claim": {pod: podWith(), nodes: []string{}, kept: []string{}, failed: none},
	} {
		t.Run(name, func(t *testing.T) {
			result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: test.pod, NodeNames: &test.nodes})
			assert.Equal(t, extenderv1.ExtenderFilterResult{NodeNames: &test.kept, FailedAndUnresolvableNodes: test.failed}, result)

			result = ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
				extenderv1.ExtenderArgs{Pod: test.pod, Nodes: nodes(test.nodes...)})
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
	result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
		extenderv1.ExtenderArgs{Pod: podWith("data"), Nodes: nodes("west", "home-1")})
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
		"a pod prefers its data": {pod: podWith("data"),
			want: extenderv1.HostPriorityList{{Host: "home-1"}, {Host: "west", Score: 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			names := []string{"home-1", "west"}
			assert.Equal(t, test.want, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize",
				extenderv1.ExtenderArgs{Pod: test.pod, NodeNames: &names}))
			assert.Equal(t, test.want, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize",
				extenderv1.ExtenderArgs{Pod: test.pod, Nodes: nodes(names...)}))
		})
	}
	assert.Empty(t, ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize",
		extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{}}))
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

func TestBadRequestsGetOneSentence(t *testing.T) {
	whole, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	huge := func() io.Reader { return io.LimitReader(endless{}, 64<<20+1) }
	for name, test := range map[string]struct {
		body func() io.Reader
		code int
		says string
	}{
		"empty": {body: func() io.Reader { return strings.NewReader("") }, code: http.StatusBadRequest, says: "no body"},
		"malformed": {body: func() io.Reader { return strings.NewReader("{") }, code: http.StatusBadRequest,
			says: "not ExtenderArgs"},
		"truncated": {body: func() io.Reader { return bytes.NewReader(whole[:len(whole)-1]) }, code: http.StatusBadRequest,
			says: "not ExtenderArgs"},
		"nil pod": {body: func() io.Reader { return strings.NewReader(`{"NodeNames":[]}`) }, code: http.StatusBadRequest,
			says: "no Pod"},
		"nil nodes": {body: func() io.Reader { return strings.NewReader(`{"Pod":{}}`) }, code: http.StatusBadRequest,
			says: "neither NodeNames nor Nodes"},
		"huge, and says so": {body: func() io.Reader { return bytes.NewReader(make([]byte, 64<<20+1)) },
			code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
		"huge, of unknown length": {body: huge, code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
		"broken off": {body: func() io.Reader { return io.MultiReader(bytes.NewReader(whole[:10]), failing{}) },
			code: http.StatusBadRequest, says: "did not arrive whole"},
	} {
		for _, verb := range []string{"/filter", "/prioritize"} {
			t.Run(name+" "+verb, func(t *testing.T) {
				answer := post(newServer().Handler(), verb, test.body())
				assert.Equal(t, test.code, answer.Code)
				var result extenderv1.ExtenderFilterResult
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &result), answer.Body.String())
				assert.Contains(t, result.Error, test.says)
				assert.Nil(t, result.NodeNames)
				assert.Nil(t, result.Nodes)
			})
		}
	}
}

func TestLargeRequestsShareABudget(t *testing.T) {
	s := newServer()
	handler := s.Handler()
	held, release := make(chan struct{}, 2), make(chan struct{})
	done := make(chan int, 2)
	for range 2 {
		go func() { done <- post(handler, "/filter", &holding{held: held, release: release}).Code }()
		<-held
	}
	answer := post(handler, "/filter", strings.NewReader("{}"))
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Contains(t, answer.Body.String(), "too many large requests at once")
	close(release)
	assert.Equal(t, http.StatusBadRequest, <-done)
	assert.Equal(t, http.StatusBadRequest, <-done)
	assert.Equal(t, http.StatusBadRequest, post(handler, "/filter", strings.NewReader("{}")).Code, "the budget is given back")
}

func TestOtherCallsAreRefused(t *testing.T) {
	handler := newServer().Handler()
	assert.Equal(t, http.StatusNotFound, post(handler, "/bind", strings.NewReader("{}")).Code)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/filter", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, recorder.Code)
}

func TestNothingIsAnsweredBeforeAllIsRead(t *testing.T) {
	s := newServer()
	s.Missing = func() []string { return []string{"nodes", "remoteclusters"} }
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	answer := post(s.Handler(), "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Contains(t, answer.Body.String(), "still reading nodes, remoteclusters")
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	s := newServer()
	view := s.View
	s.View = nil
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	handler := s.Handler()
	answer := post(handler, "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusInternalServerError, answer.Code)
	assert.Contains(t, answer.Body.String(), "its log says where")
	assert.InDelta(t, 1, counter(t, s, "lodestone_extender_panics_total"), 0)

	s.View = view
	assert.Equal(t, http.StatusOK, post(handler, "/filter", bytes.NewReader(body)).Code)
}

func TestConnectionsEndWhenStopping(t *testing.T) {
	s := newServer()
	s.Stopping = func() bool { return true }
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
	require.NoError(t, err)
	answer := post(s.Handler(), "/filter", bytes.NewReader(body))
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Equal(t, "close", answer.Header().Get("Connection"))
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// failing is a body whose sender hangs up.
type failing struct{}

func (failing) Read([]byte) (int, error) {
	return 0, errors.New("connection reset")
}

// holding is a body of unknown length that blocks until it is released, and then ends.
type holding struct {
	held    chan<- struct{}
	release <-chan struct{}
}

func (h *holding) Read([]byte) (int, error) {
	h.held <- struct{}{}
	<-h.release
	return 0, io.EOF
}

func TestMemoryOfARequestIsBounded(t *testing.T) {
	handler := newServer().Handler()
	for name, test := range map[string]struct {
		body string
		code int
		says string
	}{
		"very many names, whose answer would be far larger": {
			body: `{"Pod":{},"NodeNames":[` + strings.Repeat(`"a",`, 600_000) + `"a"]}`,
			code: http.StatusServiceUnavailable, says: "too many large requests at once",
		},
		"very many volumes, whose claims would have far longer names": {
			body: `{"Pod":{"metadata":{"name":"web"},"spec":{"volumes":[` + strings.Repeat(`{"ephemeral":{}},`, 600_000) +
				`{}]}},"NodeNames":["a"]}`,
			code: http.StatusServiceUnavailable, says: "too many large requests at once",
		},
		"large, and only encoding/json could say what it means": {
			body: `{"pod":{},"NodeNames":[` + strings.Repeat(`"",`, 3<<20) + `""]}`,
			code: http.StatusServiceUnavailable, says: "send what kube-scheduler sends",
		},
		"large and broken off": {
			body: `{"Pod":{},"NodeNames":[` + strings.Repeat(`"node",`, 2<<20),
			code: http.StatusServiceUnavailable, says: "send what kube-scheduler sends",
		},
		"large, but in what does not matter": {
			body: `{"Pod":{"x":[` + strings.Repeat(`{},`, 2<<20) + `{}]},"NodeNames":["west"]}`,
			code: http.StatusOK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"/filter", "/prioritize"} {
				answer := post(handler, verb, strings.NewReader(test.body))
				assert.Equal(t, test.code, answer.Code)
				assert.Contains(t, answer.Body.String(), test.says)
			}
			requireAllIsFree(t, handler)
		})
	}
}

// Requests of all sizes and kinds run at once; each must get its own answer,
// whatever the buffers were used for before.
func TestConcurrentRequestsGetTheirOwnAnswers(t *testing.T) {
	s := newServer()
	handler := s.Handler()
	for i := range 2000 {
		s.View.Nodes.Set(fmt.Sprintf("node-%d", i), []string{keys.Home, "west"}[i%2])
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for round := range 12 {
				first := caller*200 + round
				names, want := []string{}, []string{}
				for i := first; i < first+1+caller*round*2; i++ {
					names = append(names, fmt.Sprintf("node-%d", i%2000))
					if i%2 == 1 {
						want = append(want, names[len(names)-1])
					}
				}
				checkAnswers(t, handler, names, want)
			}
		})
	}
	callers.Wait()
	requireAllIsFree(t, handler)
}

// checkAnswers asks about a pod whose data is in west.
func checkAnswers(t *testing.T, handler http.Handler, names, want []string) {
	t.Helper()
	list := &corev1.NodeList{}
	for _, name := range names {
		node := corev1.Node{}
		node.Name = name
		if slices.Contains(want, name) {
			node.Labels = map[string]string{keys.Cluster: "west"}
		}
		list.Items = append(list.Items, node)
	}
	result := ask[extenderv1.ExtenderFilterResult](t, handler, "/filter", extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &names})
	assert.Equal(t, &want, result.NodeNames)
	assert.Len(t, result.FailedAndUnresolvableNodes, len(names)-len(want))

	all := ask[extenderv1.ExtenderFilterResult](t, handler, "/filter", extenderv1.ExtenderArgs{Pod: podWith(), NodeNames: &names})
	assert.Equal(t, &names, all.NodeNames)

	scores := ask[extenderv1.HostPriorityList](t, handler, "/prioritize", extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &names})
	scored := []string{}
	for _, score := range scores {
		if score.Score > 0 {
			scored = append(scored, score.Host)
		}
	}
	assert.Equal(t, want, scored)

	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), Nodes: list})
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, post(handler, "/filter", strings.NewReader(string(body[:len(body)-2]))).Code)
	whole := ask[extenderv1.ExtenderFilterResult](t, handler, "/filter", extenderv1.ExtenderArgs{Pod: podWith("data"), Nodes: list})
	kept := []string{}
	for _, node := range whole.Nodes.Items {
		kept = append(kept, node.Name)
	}
	assert.Equal(t, want, kept)
}

// listening is a server on a real socket, with its own short time limit.
type listening struct {
	*httptest.Server
	connections atomic.Int64
}

func listen(t *testing.T, handler http.Handler) *listening {
	t.Helper()
	l := &listening{Server: httptest.NewUnstartedServer(handler)}
	l.Config.ReadTimeout = 300 * time.Millisecond
	l.Config.WriteTimeout = 600 * time.Millisecond
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			l.connections.Add(1)
		}
	}
	l.Start()
	t.Cleanup(l.Close)
	return l
}

// dial opens a connection and writes text to it.
func (l *listening) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	require.NoError(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(connection, text)
	require.NoError(t, err)
	return connection
}

func answerFrom(t *testing.T, from *bufio.Reader) (code int, result extenderv1.ExtenderFilterResult) {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.GreaterOrEqual(t, response.ContentLength, int64(0))
	assert.Empty(t, response.TransferEncoding)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&result))
	return response.StatusCode, result
}

// call is a filter call as text; announced is its Content-Length.
func call(body string, announced int) string {
	return fmt.Sprintf("POST /filter HTTP/1.1\r\nHost: extender\r\nContent-Length: %d\r\n\r\n%s", announced, body)
}

func bodyFor(t *testing.T, claim string, names ...string) string {
	t.Helper()
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith(claim), NodeNames: &names})
	require.NoError(t, err)
	return string(body)
}

// requireAllIsFree fails unless a request that needs almost all the memory that
// there is for requests gets it.
func requireAllIsFree(t *testing.T, handler http.Handler) {
	t.Helper()
	odd := `{"pod":{"x":"` + strings.Repeat("x", 7<<20) + `"},"NodeNames":["west"]}`
	require.Eventually(t, func() bool {
		return post(handler, "/filter", strings.NewReader(odd)).Code == http.StatusOK
	}, 10*time.Second, 50*time.Millisecond)
}

func TestCallersThatFallSilent(t *testing.T) {
	handler := newServer().Handler()
	server := listen(t, handler)
	body := bodyFor(t, "data", "home-1", "west")

	t.Run("in the header", func(t *testing.T) {
		_, err := io.ReadAll(server.dial(t, "POST /filter HTTP/1.1\r\nHo"))
		require.NoError(t, err, "the connection is closed")
	})
	t.Run("in the body", func(t *testing.T) {
		code, result := answerFrom(t, bufio.NewReader(server.dial(t, call(body[:20], len(body)))))
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, result.Error, "did not arrive whole: send it again")
	})
	t.Run("after the announcement of a large body", func(t *testing.T) {
		for range 2 {
			server.dial(t, call("", 60<<20))
		}
		requireAllIsFree(t, handler)
	})
	t.Run("and hang up in the body", func(t *testing.T) {
		for range 20 {
			require.NoError(t, server.dial(t, call(body[:20], 60<<20)).Close())
		}
		requireAllIsFree(t, handler)
	})
	t.Run("and do not take their answer", func(t *testing.T) {
		large := fmt.Sprintf(`{"Pod":{},"x":%q,"NodeNames":[%s"west"]}`, strings.Repeat("x", 1000),
			strings.Repeat(`"some-node-of-a-very-large-cluster",`, 100_000))
		server.dial(t, call(large, len(large)))
		require.NoError(t, server.dial(t, call(large, len(large))).Close())
		requireAllIsFree(t, handler)
	})
	t.Run("leave the others alone", func(t *testing.T) {
		code, result := answerFrom(t, bufio.NewReader(server.dial(t, call(body, len(body)))))
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, &[]string{"west"}, result.NodeNames)
	})
}

func TestWaysToSendABody(t *testing.T) {
	server := listen(t, newServer().Handler())
	body := bodyFor(t, "data", "home-1", "west")
	send := func(t *testing.T, body io.Reader, header, value string) (code int, result extenderv1.ExtenderFilterResult) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/filter", body)
		require.NoError(t, err)
		request.Header.Set(header, value)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		assert.Positive(t, response.ContentLength)
		assert.Empty(t, response.Header.Get("Content-Encoding"))
		require.NoError(t, json.NewDecoder(response.Body).Decode(&result))
		return response.StatusCode, result
	}
	for name, test := range map[string]struct {
		body          io.Reader
		header, value string
	}{
		"in chunks":           {body: io.MultiReader(strings.NewReader(body[:30]), strings.NewReader(body[30:])), header: "Accept", value: "*/*"},
		"after a question":    {body: strings.NewReader(body), header: "Expect", value: "100-continue"},
		"as plain text":       {body: strings.NewReader(body), header: "Content-Type", value: "text/plain"},
		"with accepted gzip":  {body: strings.NewReader(body), header: "Accept-Encoding", value: "gzip"},
		"with another origin": {body: strings.NewReader(body), header: "Origin", value: "http://elsewhere.example"},
	} {
		t.Run(name, func(t *testing.T) {
			code, result := send(t, test.body, test.header, test.value)
			assert.Equal(t, http.StatusOK, code)
			assert.Equal(t, &[]string{"west"}, result.NodeNames)
		})
	}
	t.Run("compressed, which kube-scheduler never does", func(t *testing.T) {
		code, result := send(t, strings.NewReader("\x1f\x8b\x08\x00rest"), "Content-Encoding", "gzip")
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, result.Error, "not ExtenderArgs in JSON")
	})
}

func TestCallsShareAConnection(t *testing.T) {
	server := listen(t, newServer().Handler())
	kept, none := bodyFor(t, "data", "west"), bodyFor(t, "data", "home-1")
	connection := server.dial(t, strings.Repeat(call(kept, len(kept))+call(none, len(none))+call("{", 1), 10))
	answers := bufio.NewReader(connection)
	for range 10 {
		_, result := answerFrom(t, answers)
		assert.Equal(t, &[]string{"west"}, result.NodeNames, "answers come in the order of the calls")
		_, result = answerFrom(t, answers)
		assert.Equal(t, &[]string{}, result.NodeNames)
		code, _ := answerFrom(t, answers)
		assert.Equal(t, http.StatusBadRequest, code, "a bad request does not end the connection")
	}
	assert.Equal(t, int64(1), server.connections.Load())
}
