package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

func get(s *server.Server, path string) (int, string) {
	recorder := httptest.NewRecorder()
	s.Status().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		missing  []string
		stopping bool
		stale    time.Duration
		code     int
		says     string
		serving  int
	}{
		"all has been read": {code: http.StatusOK, says: "ok\n", serving: http.StatusOK},
		"something is still missing": {missing: []string{"remoteclusters"}, code: http.StatusServiceUnavailable,
			says:    "not ready: still reading remoteclusters from the API server; if this lasts, the log says why\n",
			serving: http.StatusServiceUnavailable},
		"a kind is out of sight for a while": {stale: time.Minute, code: http.StatusOK, says: "ok\n", serving: http.StatusOK},
		"a kind is out of sight for too long": {stale: 90*time.Second + time.Millisecond, code: http.StatusServiceUnavailable,
			says: "not ready: nodes cannot be watched for 1m30s, and calls are answered from what was known before: see that the API server is " +
				"reachable and lets this program's ServiceAccount list and watch them; the log says why\n", serving: http.StatusOK},
		"the program is about to end": {stopping: true, code: http.StatusServiceUnavailable, says: "not ready: the program is stopping\n",
			serving: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.Missing = func() []string { return test.missing }
			s.MaxStaleness = time.Minute
			s.Stalest = func() (string, time.Duration) { return "nodes", test.stale }
			s.Stopping = func() bool { return test.stopping }
			code, body := get(s, "/readyz")
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.says, body)

			code, body = get(s, "/readyz/serving")
			assert.Equal(t, test.serving, code)
			if code != http.StatusOK {
				assert.Equal(t, test.says, body)
			}

			code, _ = get(s, "/healthz")
			assert.Equal(t, http.StatusOK, code, "a program that is not ready must not be restarted for it")
		})
	}
}

// explanation is what /explain answers, as its readers see it.
type explanation struct {
	Namespace, Pod, UID string
	Decisions           []decision
}

type decision struct {
	Time   time.Time
	Verb   string
	Claims []struct {
		Name, Volume, DataIn string
		Unknown              bool
		Bytes                int64
	}
	Nodes []struct {
		Cluster, Reason, Sentence string
		Nodes                     int
		Examples                  []string
	}
	Scores []extenderv1.HostPriority
}

func explained(t *testing.T, s *server.Server) explanation {
	t.Helper()
	code, body := get(s, "/explain?namespace=app&pod=web")
	require.Equal(t, http.StatusOK, code, body)
	var result explanation
	require.NoError(t, json.Unmarshal([]byte(body), &result), body)
	return result
}

func TestExplainSaysWhatDecided(t *testing.T) {
	s := newServer()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Now = func() time.Time { return now }
	names := []string{"home-1", "west"}
	args := extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &names}
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", args)
	ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", args)
	ask[extenderv1.ExtenderPreemptionResult](t, s.Handler(), "/preempt",
		extenderv1.ExtenderPreemptionArgs{Pod: podWith("data"), NodeNameToMetaVictims: candidates("home-1")})

	_, body := get(s, "/explain?namespace=app&pod=web")
	claim := `{"name": "data", "volume": "pv", "dataIn": "west", "bytes": 1}`
	refused := `{"cluster": "home", "reason": "DataElsewhere", "sentence": "node(s) outside the cluster that holds the volume's data", "nodes": 1, "examples": ["home-1"]}`
	assert.JSONEq(t, `{"namespace": "app", "pod": "web", "uid": "pod-uid", "decisions": [
		{"time": "2026-01-02T03:04:05Z", "verb": "preempt", "claims": [`+claim+`], "nodes": [`+refused+`]},
		{"time": "2026-01-02T03:04:05Z", "verb": "prioritize", "claims": [`+claim+`], "scores": [
			{"cluster": "west", "score": 10, "data": {"pull": 1, "bytes": 1, "of": 1}},
			{"cluster": "home", "score": 0, "data": {"pull": 0, "bytes": 0, "of": 1}}
		]},
		{"time": "2026-01-02T03:04:05Z", "verb": "filter", "claims": [`+claim+`], "nodes": [`+refused+
		`, {"cluster": "west", "reason": "Accepted", "nodes": 1}]}
	]}`, body)
}

func TestExplainKeepsWhatWasKnownThen(t *testing.T) {
	s := newServer()
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
		extenderv1.ExtenderArgs{Pod: podWith("data"), Nodes: nodes("home-1", "west")})
	s.View.Volumes.Set("pv", &snapshot.Volume{Cluster: "home", ClaimUID: "uid"})
	assert.Equal(t, "west", explained(t, s).Decisions[0].Claims[0].DataIn)
}

func TestExplainForgetsARefusalThatNoLongerHolds(t *testing.T) {
	s := newServer()
	args := extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"home-1", "west"}}
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", args)
	require.Len(t, explained(t, s).Decisions[0].Nodes, 2)
	// The data may be anywhere now, so no rule applies.
	s.View.Volumes.Set("pv", &snapshot.Volume{ClaimUID: "uid"})
	other := podWith("data")
	other.UID = "made-anew"
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: other, NodeNames: args.NodeNames})
	assert.Equal(t, "pod-uid", explained(t, s).UID, "a pod of that name that no rule ever applied to leaves no trace")

	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", args)
	decisions := explained(t, s).Decisions
	require.Len(t, decisions, 1)
	var reasons []string
	for _, verdict := range decisions[0].Nodes {
		reasons = append(reasons, verdict.Cluster+" "+verdict.Reason)
	}
	assert.Equal(t, []string{"home Accepted", "west Accepted"}, reasons)
}

func TestExplainNamesClaimsThatAreNotThere(t *testing.T) {
	s := newServer()
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
		extenderv1.ExtenderArgs{Pod: podWith("gone"), NodeNames: &[]string{"west"}})
	filtered := explained(t, s).Decisions[0]
	require.Len(t, filtered.Claims, 1)
	assert.Equal(t, "gone", filtered.Claims[0].Name)
	assert.True(t, filtered.Claims[0].Unknown)
	assert.Empty(t, filtered.Nodes, "no rule applied to the nodes")
}

func TestExplainNamesNodesThatAreNotThere(t *testing.T) {
	s := newServer()
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound", ClassName: "lodestone"})
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
		extenderv1.ExtenderArgs{Pod: podWith("unbound"), NodeNames: &[]string{"new"}})
	filtered := explained(t, s).Decisions[0]
	require.Len(t, filtered.Nodes, 1)
	assert.Empty(t, filtered.Nodes[0].Cluster)
	assert.Equal(t, filter.NodeNotSeen.String(), filtered.Nodes[0].Reason)
	assert.Equal(t, []string{"new"}, filtered.Nodes[0].Examples)
}

func TestExplainAnswersOneSentenceOtherwise(t *testing.T) {
	s := newServer()
	// A pod that no rule applies to leaves no trace.
	names := []string{"west"}
	ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith(), NodeNames: &names})
	ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: podWith(), NodeNames: &names})
	for query, test := range map[string]struct {
		code int
		says string
	}{
		"":                         {code: http.StatusBadRequest, says: "name the pod: /explain?namespace=<namespace>&pod=<name>"},
		"?namespace=app":           {code: http.StatusBadRequest, says: "name the pod"},
		"?pod=web":                 {code: http.StatusBadRequest, says: "name the pod"},
		"?namespace=app&pod=web":   {code: http.StatusNotFound, says: `nothing is known of pod "app/web"`},
		"?namespace=a%0Ab&pod=%22": {code: http.StatusNotFound, says: "ask the other replicas"},
	} {
		t.Run(query, func(t *testing.T) {
			code, body := get(s, "/explain"+query)
			assert.Equal(t, test.code, code)
			assert.Contains(t, body, test.says)
			assert.Equal(t, 1, strings.Count(body, "\n"), "one line: %q", body)
		})
	}
}
