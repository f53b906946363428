package pitfalls

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// ask sends a call as kube-scheduler does, reads the answer into result and, like
// kube-scheduler, nothing after it. It reports whether the connection was used
// before.
func ask(t *testing.T, client *http.Client, url string, args, result any) (reused bool) {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(connection httptrace.GotConnInfo) { reused = connection.Reused },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, "the body of any other answer is thrown away")
	require.Positive(t, response.ContentLength, "an answer in chunks costs a connection")
	require.NoError(t, json.NewDecoder(response.Body).Decode(result))
	return reused
}

func TestAnswersKeepTheContract(t *testing.T) {
	at := address(t)
	runExtender(t, at, "lodestone-extender")
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	s := newShop(t, open)
	s.dataIn("there", west)
	s.dataIn("here", "home")
	nodes := append(slices.Clone(homeNodes), westNode, "unheard-of")
	calls, connections := 0, 0
	send := func(verb string, args, result any) {
		calls++
		if !ask(t, client, "http://"+at+"/"+verb, args, result) {
			connections++
		}
	}

	for name, test := range map[string]struct {
		claims  []string
		pass    []string
		refused filter.Reason
	}{
		"all nodes pass":         {pass: nodes, refused: filter.Accepted},
		"one node passes":        {claims: []string{"there"}, pass: []string{westNode}, refused: filter.DataElsewhere},
		"no node passes":         {claims: []string{"there", "here"}, refused: filter.DataInSeveralClusters},
		"the claim is not there": {claims: []string{"nowhere"}, pass: nodes},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", test.claims...)
			pod.Namespace = s.name
			args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}

			var filtered extenderv1.ExtenderFilterResult
			send("filter", args, &filtered)
			assert.Empty(t, filtered.Error)
			require.NotNil(t, filtered.NodeNames, "null says that no node passes, and nothing why")
			all := slices.Clone(*filtered.NodeNames)
			for _, failed := range []extenderv1.FailedNodesMap{filtered.FailedNodes, filtered.FailedAndUnresolvableNodes} {
				for node, reason := range failed {
					all = append(all, node)
					if node != "unheard-of" {
						assert.Equal(t, test.refused.Sentence(), reason, "reasons are counted by their exact text")
					}
				}
			}
			assert.ElementsMatch(t, nodes, all, "each node is listed once, and no other")
			for _, node := range test.pass {
				if node != "unheard-of" {
					assert.Contains(t, *filtered.NodeNames, node)
				}
			}

			var scores extenderv1.HostPriorityList
			send("prioritize", args, &scores)
			scored := map[string]bool{}
			for _, score := range scores {
				assert.Contains(t, nodes, score.Host)
				assert.False(t, scored[score.Host], "the scores of a node listed twice add up")
				scored[score.Host] = true
				assert.GreaterOrEqual(t, score.Score, extenderv1.MinExtenderPriority)
				assert.LessOrEqual(t, score.Score, extenderv1.MaxExtenderPriority)
			}

			victims := map[string]*extenderv1.MetaVictims{}
			for _, node := range nodes[:3] {
				victims[node] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "1"}}}
			}
			var kept extenderv1.ExtenderPreemptionResult
			send("preempt", extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: victims}, &kept)
			for _, node := range nodes[:3] {
				if slices.Contains(*filtered.NodeNames, node) {
					assert.Equal(t, victims[node], kept.NodeNameToMetaVictims[node])
				} else {
					assert.NotContains(t, kept.NodeNameToMetaVictims, node, "pods would be evicted in vain")
				}
			}
		})
	}
	assert.Equal(t, 1, connections, "of %d calls", calls)
}

func TestExtenderIsAskedForAllProfiles(t *testing.T) {
	at := address(t)
	content := []byte(`profiles: [{schedulerName: default-scheduler}, {schedulerName: other}]
extenders: [{urlPrefix: "", filterVerb: filter, nodeCacheCapable: true, ignorable: true}]`)
	program := scheduler(t, content, settings{extender: at})
	runExtender(t, at, "lodestone-extender")
	s := newShop(t, open)
	for _, profile := range []string{corev1.DefaultSchedulerName, "other"} {
		s.awayFromHome(profile)
		pod := newPod(profile, profile)
		pod.Spec.SchedulerName = profile
		s.make(pod)
		assert.Equal(t, westNode, s.awaitSelected(profile))
	}
	output, err := program.Output()
	require.NoError(t, err)
	assert.Contains(t, output, "because it has extenders configured", "opportunistic batching is off")
}
