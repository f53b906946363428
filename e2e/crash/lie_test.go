package crash

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALieIsToldOnceAndOnlyByARemoteCluster(t *testing.T) {
	const claim = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data","uid":"u","labels":{"a":"b"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := claim
		if r.URL.Path == "/api/v1/namespaces/crash-abcdefgh/pods" {
			answer = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + claim + `]}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	const one, all = "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data", "/api/v1/namespaces/crash-abcdefgh/pods"
	for _, test := range []struct {
		fault      Fault
		path, kind string
		code       int
		holds      string
		lacks      string
	}{
		{Absent, one, "shadow", http.StatusNotFound, `"reason":"NotFound"`, `"uid"`},
		{Another, one, "shadow", http.StatusOK, `"volumeName":"v"`, `"uid":"u"`},
		{Bare, one, "shadow", http.StatusOK, `"uid":"u"`, `volumeName`},
		{Ending, one, "shadow", http.StatusOK, `"deletionTimestamp":"20`, `"reason"`},
		{Absent, all, "pod", http.StatusOK, `"items":[]`, `"uid"`},
		{Another, all, "pod", http.StatusOK, `"resourceVersion":"7"`, `"uid":"u"`},
	} {
		l := newLedger()
		verb := "get"
		if test.path == all {
			verb = "list"
		}
		c := newCase(&Flow{Name: "f", Lied: true}, test.fault, Call{Cluster: "west", Verb: verb, Object: test.kind, Nth: 1}, "crash-abcdefgh")
		require.True(t, test.fault.meets(c.Call))
		l.add(c)
		c.act(nil)
		w := &way{gate: &gate{number: 1, ledger: l}, cluster: "west", target: target, transport: http.DefaultTransport}
		w.proxy = newProxy(target, http.DefaultTransport)
		ask := func() *httptest.ResponseRecorder {
			answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, test.path, http.NoBody)
			request.Header.Set("User-Agent", "lodestone-provisioner")
			w.ServeHTTP(answer, request)
			return answer
		}
		lie := ask()
		assert.Equal(t, test.code, lie.Code)
		assert.True(t, json.Valid(lie.Body.Bytes()))
		assert.Contains(t, lie.Body.String(), test.holds, "%s of %s", test.fault, test.path)
		assert.NotContains(t, lie.Body.String(), test.lacks, "%s of %s", test.fault, test.path)
		assert.True(t, c.struck())
		truth := ask()
		assert.Equal(t, http.StatusOK, truth.Code)
		assert.Contains(t, truth.Body.String(), claim, "once")
	}
	_, told := lie(absent).about(object{"items": []any{}})
	assert.False(t, told, "who is told of none is told no lie")
	for _, call := range []Call{{Cluster: "home", Verb: "get", Object: "claim"}, {Cluster: "west", Verb: "patch", Object: "shadow"}} {
		assert.False(t, Absent.meets(call), "%v", call)
	}
	assert.NotContains(t, Faults(), Absent)
	assert.Contains(t, MoveFaults(), Absent)
}
