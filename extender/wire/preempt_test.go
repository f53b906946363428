package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

func encodePreempt(t *testing.T, args extenderv1.ExtenderPreemptionArgs) []byte {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	return body
}

func meta(uids ...string) []*extenderv1.MetaPod {
	pods := []*extenderv1.MetaPod{}
	for _, uid := range uids {
		pods = append(pods, &extenderv1.MetaPod{UID: uid})
	}
	return pods
}

func whole(uids ...string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, uid := range uids {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "named-" + uid, UID: types.UID(uid)}})
	}
	return pods
}

func TestDecodePreemptReadsBothModesAlike(t *testing.T) {
	want := wire.PreemptRequest{
		Pod: snapshot.Pod{
			Namespace: "app", Name: "web", UID: "pod-uid",
			Volumes: []snapshot.PodVolume{{ClaimName: "data-web"}, {ClaimName: "web-scratch", Ephemeral: true}},
			Near:    []string{"logs", "cache", "logs"},
		},
		Names:   []string{"a", "b", "c"},
		Victims: []wire.Victims{{UIDs: []string{"1", "2"}, NumPDBViolations: 1}, {UIDs: []string{"3"}}, {UIDs: []string{}}},
	}
	for name, args := range map[string]extenderv1.ExtenderPreemptionArgs{
		"UIDs": {Pod: somePod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
			"b": {Pods: meta("3")}, "a": {Pods: meta("1", "2"), NumPDBViolations: 1}, "c": {},
		}},
		"whole pods": {Pod: somePod(), NodeNameToVictims: map[string]*extenderv1.Victims{
			"b": {Pods: whole("3")}, "a": {Pods: whole("1", "2"), NumPDBViolations: 1}, "c": {},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := wire.DecodePreempt(encodePreempt(t, args))
			require.NoError(t, err)
			assert.Equal(t, want, request)
		})
	}
}

func TestDecodePreemptRefusesWithOneSentence(t *testing.T) {
	args := string(encodePreempt(t, extenderv1.ExtenderPreemptionArgs{Pod: somePod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"a": {Pods: meta("1")}}}))
	for name, test := range map[string]struct{ body, says string }{
		"nothing":                     {body: "", says: "no body"},
		"not JSON":                    {body: "<html>", says: "not ExtenderPreemptionArgs in JSON"},
		"half a request":              {body: args[:len(args)/2], says: "not ExtenderPreemptionArgs in JSON"},
		"two requests":                {body: args + args, says: "not ExtenderPreemptionArgs in JSON"},
		"another type":                {body: `[]`, says: "not ExtenderPreemptionArgs in JSON"},
		"null":                        {body: `null`, says: "no Pod"},
		"null pod":                    {body: `{"Pod":null,"NodeNameToMetaVictims":{}}`, says: "no Pod"},
		"a request of another verb":   {body: `{"Pod":{},"NodeNames":["a"]}`, says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"null candidates":             {body: `{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":null}`, says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"candidates that are not":     {body: `{"Pod":{},"NodeNameToMetaVictims":["a"]}`, says: "not ExtenderPreemptionArgs in JSON"},
		"a candidate that is null":    {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":null}}`, says: `candidate node "a" has no Victims`},
		"a victim that is null":       {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},null]}}}`, says: `victim 1 of candidate node "a" has no UID`},
		"a victim without UID":        {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}`, says: `victim 0 of candidate node "a" has no UID`},
		"a whole victim that is null": {body: `{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[null]}}}`, says: `victim 0 of candidate node "a" has no UID`},
		"a whole victim without UID":  {body: `{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"name":"x"}}]}}}`, says: `victim 0 of candidate node "a" has no UID`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.DecodePreempt([]byte(test.body))
			require.ErrorContains(t, err, test.says)
			assert.ErrorContains(t, err, "send ", "the sentence must say what to do")
			assert.NotContains(t, fmt.Sprint(err), "\n")
		})
	}
}

func TestAppendPreemptResult(t *testing.T) {
	request := wire.PreemptRequest{
		Names:   []string{"a", "b\"", "c"},
		Victims: []wire.Victims{{UIDs: []string{"1", "2"}, NumPDBViolations: 7}, {UIDs: []string{"é"}}, {}},
	}
	a := &extenderv1.MetaVictims{Pods: meta("1", "2"), NumPDBViolations: 7}
	b := &extenderv1.MetaVictims{Pods: meta("é")}
	c := &extenderv1.MetaVictims{Pods: meta()}
	for name, test := range map[string]struct {
		request  wire.PreemptRequest
		refusals []string
		want     map[string]*extenderv1.MetaVictims
	}{
		"all are kept":          {request: request, want: map[string]*extenderv1.MetaVictims{"a": a, "b\"": b, "c": c}},
		"one is refused":        {request: request, refusals: []string{"why", "", ""}, want: map[string]*extenderv1.MetaVictims{"b\"": b, "c": c}},
		"all are refused":       {request: request, refusals: []string{"x", "y", "z"}, want: map[string]*extenderv1.MetaVictims{}},
		"no candidate was sent": {want: map[string]*extenderv1.MetaVictims{}},
	} {
		t.Run(name, func(t *testing.T) {
			result := decodeAnswer[extenderv1.ExtenderPreemptionResult](t, wire.AppendPreemptResult(nil, test.request, refusal(test.refusals)))
			assert.Equal(t, extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: test.want}, result)
		})
	}
}
