package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

// Whatever is sent, the answer is either one sentence or a complete decision:
// each node either kept or refused with a reason, and none scored beyond the
// highest score, however often it is named.
func FuzzVerbs(f *testing.F) {
	names := []string{"home-1", "west", "new"}
	for _, args := range []extenderv1.ExtenderArgs{
		{Pod: podWith("data"), NodeNames: &names},
		{Pod: podWith(), Nodes: nodes(names...)},
		{Pod: podWith("data", "gone"), Nodes: nodes(names...)},
		{},
	} {
		body, err := json.Marshal(args)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
	f.Add([]byte(`{"pod":{"metadata":{"namespace":"app"},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}},"nodenames":["\u0000","é","west","west"]}`))

	handler := newServer().Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := wire.Decode(body)
		filtered := post(handler, "/filter", bytes.NewReader(body))
		scored := post(handler, "/prioritize", bytes.NewReader(body))
		if filtered.Code != scored.Code {
			t.Fatalf("filter answered %d and prioritize %d", filtered.Code, scored.Code)
		}
		var result extenderv1.ExtenderFilterResult
		if err != nil {
			if jsonErr := json.Unmarshal(filtered.Body.Bytes(), &result); filtered.Code != http.StatusBadRequest || jsonErr != nil ||
				result.Error == "" {
				t.Fatalf("a bad request got %d: %s", filtered.Code, filtered.Body)
			}
			return
		}
		if filtered.Code != http.StatusOK {
			t.Fatalf("a good request got %d: %s", filtered.Code, filtered.Body)
		}
		if request.NodeMode {
			// Whole nodes may have any content: this program uses only their names.
			var loose struct {
				Nodes struct{ Items []json.RawMessage }
			}
			if err := json.Unmarshal(filtered.Body.Bytes(), &loose); err != nil {
				t.Fatalf("the answer is not JSON: %v", err)
			}
			return
		}
		if err := json.Unmarshal(filtered.Body.Bytes(), &result); err != nil || result.NodeNames == nil {
			t.Fatalf("filter answered %s: %v", filtered.Body, err)
		}
		decided := map[string]bool{}
		for _, name := range *result.NodeNames {
			decided[name] = true
		}
		for name, reason := range result.FailedAndUnresolvableNodes {
			if decided[name] || reason == "" {
				t.Fatalf("node %q is both kept and refused, or refused without a reason: %s", name, filtered.Body)
			}
			decided[name] = true
		}
		var list extenderv1.HostPriorityList
		if err := json.Unmarshal(scored.Body.Bytes(), &list); err != nil || (len(list) > 0 && len(list) != len(request.Names)) {
			t.Fatalf("prioritize answered %s for %d nodes: %v", scored.Body, len(request.Names), err)
		}
		for _, name := range request.Names {
			if !decided[name] {
				t.Fatalf("node %q got no decision: %s", name, filtered.Body)
			}
		}
		sums := map[string]int64{}
		for _, host := range list {
			if sums[host.Host] += host.Score; host.Score < 0 || sums[host.Host] > score.Max || !decided[host.Host] {
				t.Fatalf("%q is not a candidate or its score is out of range: %s", host.Host, scored.Body)
			}
		}
	})
}

// Whatever is asked, the answer is either one sentence, or the explanation of just
// that pod.
func FuzzExplain(f *testing.F) {
	for _, query := range []string{
		"namespace=app&pod=web", "pod=web&namespace=app&namespace=other", "namespace=app&pod=gone", "namespace=&pod=web",
		"namespace=app", "", "%zz", "namespace=a%00p&pod=w%2Feb", "pod=web;namespace=app", "namespace=app&pod=" + strings.Repeat("x", 300),
	} {
		f.Add(query)
	}
	s := newServer()
	handler := s.Handler()
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"home-1", "west"}})
	if err != nil {
		f.Fatal(err)
	}
	if answer := post(handler, "/filter", strings.NewReader(string(body))); answer.Code != http.StatusOK {
		f.Fatal(answer.Body)
	}
	status := s.Status()
	f.Fuzz(func(t *testing.T, query string) {
		request := httptest.NewRequest(http.MethodGet, "/explain", nil)
		request.URL.RawQuery = query
		recorder := httptest.NewRecorder()
		status.ServeHTTP(recorder, request)
		asked := request.URL.Query()
		switch namespace, pod := asked.Get("namespace"), asked.Get("pod"); {
		case namespace == "" || pod == "":
			if recorder.Code != http.StatusBadRequest {
				t.Fatalf("no pod was named: %d %s", recorder.Code, recorder.Body)
			}
		case namespace != "app" || pod != "web":
			if recorder.Code != http.StatusNotFound || strings.Count(recorder.Body.String(), "\n") != 1 {
				t.Fatalf("an unknown pod was explained, or in several lines: %d %s", recorder.Code, recorder.Body)
			}
		default:
			var answer explanation
			if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || recorder.Code != http.StatusOK || answer.Pod != "web" ||
				len(answer.Decisions) != 1 {
				t.Fatalf("the pod was not explained: %d %s: %v", recorder.Code, recorder.Body, err)
			}
		}
	})
}
