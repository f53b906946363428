package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

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
			if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || recorder.Code != http.StatusOK || answer.Pod != "web" || len(answer.Decisions) != 1 {
				t.Fatalf("the pod was not explained: %d %s: %v", recorder.Code, recorder.Body, err)
			}
		}
	})
}
