package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func ask(t *testing.T, path string, args any) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	answerInstantly(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
	return answer
}

func TestInstantExtenderLetsAllNodesPass(t *testing.T) {
	pod := newPod("a", "class")
	// What looks like the names may be in the pod too.
	pod.Annotations = map[string]string{"note": `"NodeNames":["x"]`}
	answer := ask(t, "/filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a", "b"}})
	var result extenderv1.ExtenderFilterResult
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &result))
	assert.Equal(t, extenderv1.ExtenderFilterResult{NodeNames: &[]string{"a", "b"}}, result)
	assert.NotEmpty(t, answer.Header().Get("Content-Length"))
}

func TestInstantExtenderScoresNoNode(t *testing.T) {
	answer := ask(t, "/prioritize", extenderv1.ExtenderArgs{NodeNames: &[]string{"a"}})
	assert.JSONEq(t, "[]", answer.Body.String())
}

func TestInstantExtenderRefusesWhatHasNoNames(t *testing.T) {
	assert.Equal(t, http.StatusBadRequest, ask(t, "/filter", map[string]string{}).Code)
}
