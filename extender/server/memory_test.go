package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
			body: `{"Pod":{"metadata":{"name":"web"},"spec":{"volumes":[` + strings.Repeat(`{"ephemeral":{}},`, 600_000) + `{}]}},"NodeNames":["a"]}`,
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
