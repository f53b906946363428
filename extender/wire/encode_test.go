package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/wire"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// decodeAnswer reads an answer with the type that kube-scheduler reads it with,
// and fails on anything that is not exactly one JSON value.
func decodeAnswer[T any](t *testing.T, answer []byte) T {
	t.Helper()
	var result T
	require.NoError(t, json.Unmarshal(answer, &result), string(answer))
	return result
}

// refusal returns the sentences of a list; nil for no list.
func refusal(sentences []string) func(i int) string {
	if sentences == nil {
		return nil
	}
	return func(i int) string { return sentences[i] }
}

func TestAppendFilterResultInNamesMode(t *testing.T) {
	request := wire.Request{Names: []string{"a", "b", "c"}}
	for name, test := range map[string]struct {
		request  wire.Request
		refusals []string
		kept     []string
		failed   extenderv1.FailedNodesMap
	}{
		"all are kept": {request: request, kept: []string{"a", "b", "c"}, failed: extenderv1.FailedNodesMap{}},
		"one is refused": {request: request, refusals: []string{"", "why", ""}, kept: []string{"a", "c"},
			failed: extenderv1.FailedNodesMap{"b": "why"}},
		"all are refused": {request: request, refusals: []string{"x", "y", "z"}, kept: []string{},
			failed: extenderv1.FailedNodesMap{"a": "x", "b": "y", "c": "z"}},
		"no node was sent": {request: wire.Request{}, kept: []string{}, failed: extenderv1.FailedNodesMap{}},
		"names out of the way": {request: wire.Request{Names: []string{"a\"b", "é\n", "\\"}}, refusals: []string{"", "", "<why>"},
			kept: []string{"a\"b", "é\n"}, failed: extenderv1.FailedNodesMap{"\\": "<why>"}},
	} {
		t.Run(name, func(t *testing.T) {
			result := decodeAnswer[extenderv1.ExtenderFilterResult](t, wire.AppendFilterResult(nil, test.request, refusal(test.refusals)))
			require.NotNil(t, result.NodeNames, "a missing list would lose the mode")
			assert.Equal(t, extenderv1.ExtenderFilterResult{NodeNames: &test.kept, FailedAndUnresolvableNodes: test.failed}, result)
		})
	}
}

func TestAppendFilterResultInNodeModeRepeatsTheNodes(t *testing.T) {
	node := func(name string) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Cluster: "west", "a": "<&>"}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
		}
	}
	request, err := wire.Decode(encode(t,
		extenderv1.ExtenderArgs{Pod: somePod(), Nodes: &corev1.NodeList{Items: []corev1.Node{node("a"), node("b"), node("c")}}}))
	require.NoError(t, err)

	result := decodeAnswer[extenderv1.ExtenderFilterResult](t, wire.AppendFilterResult(nil, request, refusal([]string{"", "why", ""})))
	require.NotNil(t, result.Nodes)
	assert.Nil(t, result.NodeNames)
	assert.Equal(t, extenderv1.FailedNodesMap{"b": "why"}, result.FailedAndUnresolvableNodes)
	require.Len(t, result.Nodes.Items, 2)
	assert.Equal(t, "a", result.Nodes.Items[0].Name)
	assert.Equal(t, "c", result.Nodes.Items[1].Name)
	assert.Equal(t, node("c").Labels, result.Nodes.Items[1].Labels)
	assert.Equal(t, "1500m", result.Nodes.Items[1].Status.Allocatable.Cpu().String())

	result = decodeAnswer[extenderv1.ExtenderFilterResult](t, wire.AppendFilterResult(nil, request, refusal([]string{"x", "x", "x"})))
	require.NotNil(t, result.Nodes)
	assert.Empty(t, result.Nodes.Items)
}

func TestAppendPriorities(t *testing.T) {
	request := wire.Request{Names: []string{"a", "b", "a", "c", "b", "d\""}}
	score := func(i int) int64 { return int64(i) }
	list := decodeAnswer[extenderv1.HostPriorityList](t, wire.AppendPriorities(nil, request, score))
	assert.Equal(t, extenderv1.HostPriorityList{
		{Host: "a"}, {Host: "b", Score: 1}, {Host: "a", Score: 2}, {Host: "c", Score: 3}, {Host: "b"}, {Host: "d\"", Score: 5},
	}, list, "a host gets more than 0 once at most: kube-scheduler adds up")

	assert.Equal(t, extenderv1.HostPriorityList{},
		decodeAnswer[extenderv1.HostPriorityList](t, wire.AppendPriorities(nil, wire.Request{}, score)))
	assert.Equal(t, extenderv1.HostPriorityList{}, decodeAnswer[extenderv1.HostPriorityList](t, wire.AppendNoPriorities(nil)))
}

func TestAppendPrioritiesOfManyHosts(t *testing.T) {
	request := wire.Request{}
	for i := range 1000 {
		request.Names = append(request.Names, fmt.Sprintf("node-%d", i%600))
	}
	list := decodeAnswer[extenderv1.HostPriorityList](t, wire.AppendPriorities(nil, request, func(int) int64 { return 7 }))
	require.Len(t, list, 1000)
	for i, host := range list {
		want := int64(7)
		if i >= 600 {
			want = 0
		}
		assert.Equal(t, extenderv1.HostPriority{Host: request.Names[i], Score: want}, host)
	}
}

func TestAppendError(t *testing.T) {
	result := decodeAnswer[extenderv1.ExtenderFilterResult](t, wire.AppendError(nil, `a "sentence"`))
	assert.Equal(t, extenderv1.ExtenderFilterResult{Error: `a "sentence"`}, result)
}
