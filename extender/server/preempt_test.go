package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
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

// candidates has one victim for each node, named like the node.
func candidates(nodes ...string) map[string]*extenderv1.MetaVictims {
	all := map[string]*extenderv1.MetaVictims{}
	for i, node := range nodes {
		all[node] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "on-" + node}}, NumPDBViolations: int64(i)}
	}
	return all
}

func wholeCandidates(from map[string]*extenderv1.MetaVictims) map[string]*extenderv1.Victims {
	all := map[string]*extenderv1.Victims{}
	for node, victims := range from {
		all[node] = &extenderv1.Victims{NumPDBViolations: victims.NumPDBViolations}
		for _, victim := range victims.Pods {
			all[node].Pods = append(all[node].Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(victim.UID)}})
		}
	}
	return all
}

func TestPreemptKeepsWhatFilterWouldKeep(t *testing.T) {
	s := newServer()
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound", ClassName: "lodestone"})
	all := candidates("home-1", "west")
	// A node that vanished here counts as too new; one without victims is
	// kube-scheduler's own business.
	odd := candidates("home-1", "new")
	odd["home-1"].Pods = []*extenderv1.MetaPod{}
	none := map[string]*extenderv1.MetaVictims{}
	for name, test := range map[string]struct {
		pod        *corev1.Pod
		candidates map[string]*extenderv1.MetaVictims
		kept       map[string]*extenderv1.MetaVictims
	}{
		"a pod without claims keeps all":           {pod: podWith(), candidates: all, kept: all},
		"a pod with data keeps where that is":      {pod: podWith("data"), candidates: all, kept: map[string]*extenderv1.MetaVictims{"west": all["west"]}},
		"a pod without volume yet is judged too":   {pod: podWith("unbound"), candidates: all, kept: map[string]*extenderv1.MetaVictims{"home-1": all["home-1"]}},
		"nobody is evicted where nothing would do": {pod: podWith("data", "unbound"), candidates: all, kept: none},
		"nodes that are not known are not emptied": {pod: podWith("unbound"), candidates: odd, kept: map[string]*extenderv1.MetaVictims{"home-1": odd["home-1"]}},
		"no candidate was sent":                    {pod: podWith("data"), candidates: none, kept: none},
		"no candidate was sent, no claims either":  {pod: podWith(), candidates: none, kept: none},
	} {
		t.Run(name, func(t *testing.T) {
			want := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: test.kept}
			assert.Equal(t, want, ask[extenderv1.ExtenderPreemptionResult](t, s.Handler(), "/preempt",
				extenderv1.ExtenderPreemptionArgs{Pod: test.pod, NodeNameToMetaVictims: test.candidates}), "UIDs")
			assert.Equal(t, want, ask[extenderv1.ExtenderPreemptionResult](t, s.Handler(), "/preempt",
				extenderv1.ExtenderPreemptionArgs{Pod: test.pod, NodeNameToVictims: wholeCandidates(test.candidates)}), "whole pods")
		})
	}
	assert.InDelta(t, 2, counter(t, s, `lodestone_extender_spared_nodes_total{reason="NodeNotSeen"}`), 0)
	assert.InDelta(t, 4, counter(t, s, `lodestone_extender_spared_nodes_total{reason="DataElsewhere"}`), 0)
	assert.InDelta(t, 0, counter(t, s, `lodestone_extender_refused_nodes_total{reason="DataElsewhere"}`), 0)
	assert.InDelta(t, 14, counter(t, s, `lodestone_extender_requests_total{code="200",verb="preempt"}`), 0)
}

func TestBadPreemptRequestsGetOneSentence(t *testing.T) {
	whole, err := json.Marshal(extenderv1.ExtenderPreemptionArgs{Pod: podWith("data"), NodeNameToMetaVictims: candidates("west")})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		body io.Reader
		code int
		says string
	}{
		"empty":          {body: strings.NewReader(""), code: http.StatusBadRequest, says: "no body"},
		"malformed":      {body: strings.NewReader("{"), code: http.StatusBadRequest, says: "not ExtenderPreemptionArgs"},
		"truncated":      {body: bytes.NewReader(whole[:len(whole)-1]), code: http.StatusBadRequest, says: "not ExtenderPreemptionArgs"},
		"nil pod":        {body: strings.NewReader(`{"NodeNameToMetaVictims":{}}`), code: http.StatusBadRequest, says: "no Pod"},
		"nil candidates": {body: strings.NewReader(`{"Pod":{}}`), code: http.StatusBadRequest, says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"nil victims":    {body: strings.NewReader(`{"Pod":{},"NodeNameToMetaVictims":{"a":null}}`), code: http.StatusBadRequest, says: "has no Victims"},
		"huge":           {body: io.LimitReader(endless{}, 64<<20+1), code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := post(newServer().Handler(), "/preempt", test.body)
			assert.Equal(t, test.code, answer.Code)
			var result struct{ Error string }
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &result), answer.Body.String())
			assert.Contains(t, result.Error, test.says)
		})
	}
}

// Whatever is sent, the answer is either one sentence, or some of the candidates
// with the victims that they came with.
func FuzzPreempt(f *testing.F) {
	for _, args := range []extenderv1.ExtenderPreemptionArgs{
		{Pod: podWith("data"), NodeNameToMetaVictims: candidates("home-1", "west", "new")},
		{Pod: podWith(), NodeNameToVictims: wholeCandidates(candidates("home-1", "west"))},
		{Pod: podWith("data", "gone"), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"west": nil}},
		{},
	} {
		body, err := json.Marshal(args)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
	handler := newServer().Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := wire.DecodePreempt(body)
		answer := post(handler, "/preempt", bytes.NewReader(body))
		if err != nil {
			if answer.Code != http.StatusBadRequest {
				t.Fatalf("a bad request got %d: %s", answer.Code, answer.Body)
			}
			return
		}
		var result extenderv1.ExtenderPreemptionResult
		if err := json.Unmarshal(answer.Body.Bytes(), &result); err != nil || answer.Code != http.StatusOK || result.NodeNameToMetaVictims == nil {
			t.Fatalf("a good request got %d: %s: %v", answer.Code, answer.Body, err)
		}
		sent := map[string]wire.Victims{}
		for i, name := range request.Names {
			sent[name] = request.Victims[i]
		}
		for name, victims := range result.NodeNameToMetaVictims {
			asked, ok := sent[name]
			if !ok || victims == nil || victims.NumPDBViolations != asked.NumPDBViolations || len(victims.Pods) != len(asked.UIDs) {
				t.Fatalf("node %q came back as %+v, sent as %+v", name, victims, asked)
			}
			for i, victim := range victims.Pods {
				if victim.UID != asked.UIDs[i] {
					t.Fatalf("victim %d of %q is %q, was %q", i, name, victim.UID, asked.UIDs[i])
				}
			}
		}
	})
}
