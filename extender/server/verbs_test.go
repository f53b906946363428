package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestARefusalOfAllNodesThatOneChangeEndsIsLookedAtTwice(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*snapshot.Snapshot)
	}{
		"the end of a move": {
			before: func(v *snapshot.Snapshot) {
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv", Moving: true})
			},
			after: func(v *snapshot.Snapshot) {
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv"})
			},
		},
		"room for one more volume": {
			before: func(v *snapshot.Snapshot) {
				v.Classes.Set("lodestone", &snapshot.Class{})
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", ClassName: "lodestone"})
				v.StorageClasses().Set("disk", &storagev1.StorageClass{
					ObjectMeta:  metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
					Provisioner: "disk",
				})
				v.Limits.Set("home-1", snapshot.Limits{"disk": 0})
			},
			after: func(v *snapshot.Snapshot) { v.Limits.Set("home-1", snapshot.Limits{"disk": 1}) },
		},
		"the volume of a data source": {
			before: func(v *snapshot.Snapshot) {
				v.Clusters.Set("west", &snapshot.Cluster{Ready: true})
				v.Classes.Set("lodestone", &snapshot.Class{})
				v.Claims.Set("app/data", &snapshot.Claim{UID: "uid", ClassName: "lodestone", Source: "source"})
				v.Claims.Set("app/source", &snapshot.Claim{UID: "source", ClassName: "lodestone"})
			},
			after: func(v *snapshot.Snapshot) {
				v.Volumes.Set("pv-source", &snapshot.Volume{Cluster: keys.Home, ClaimUID: "source"})
				v.Claims.Set("app/source", &snapshot.Claim{UID: "source", ClassName: "lodestone", VolumeName: "pv-source"})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			test.before(s.View)
			names := []string{"home-1", "west"}
			// The time is read when the call arrives, before the decision, and before the pause.
			result := during(t, s, "data", names, 3, func() { test.after(s.View) })
			require.NotNil(t, result.NodeNames)
			assert.Len(t, *result.NodeNames, 1)
			assert.Len(t, explained(t, s).Decisions, 1)
			assert.Len(t, explained(t, s).Decisions[0].Nodes, 2, "what is explained is what was answered")
		})
	}
}

// Pods that wait for long are tried again and again, and kube-scheduler places one pod after
// another.
func TestSecondLooksAreRare(t *testing.T) {
	s := newServer()
	s.View.Claims.Set("app/data", &snapshot.Claim{UID: "uid", VolumeName: "pv", Moving: true})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reads := 0
	s.Now = func() time.Time { reads++; return now }
	// decisions is how often one call decides: it reads the time when it arrives, for
	// each decision, before it may pause, and when it ends.
	decisions := func() int {
		reads = 0
		ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
			extenderv1.ExtenderArgs{Pod: podWith("data"), NodeNames: &[]string{"west"}})
		return reads - 3
	}
	assert.Equal(t, 2, decisions())
	assert.Equal(t, 1, decisions())
	now = now.Add(249 * time.Millisecond)
	assert.Equal(t, 1, decisions())
	now = now.Add(time.Millisecond)
	assert.Equal(t, 2, decisions())
}

func TestARefusalThatOneChangeDoesNotEndIsNotLookedAtTwice(t *testing.T) {
	s := newServer()
	result := during(t, s, "data", []string{"home-1"}, 3, func() {
		s.View.Volumes.Set("pv", &snapshot.Volume{Cluster: keys.Home, ClaimUID: "uid"})
	})
	assert.Len(t, result.FailedAndUnresolvableNodes, 1)
}

// during calls filter, and changes the view when the call reads the time for the
// n-th time: once when it arrives, then before each decision.
func during(t *testing.T, s *server.Server, pod string, names []string, n int64, change func()) extenderv1.ExtenderFilterResult {
	t.Helper()
	var reads atomic.Int64
	s.Now = func() time.Time {
		if reads.Add(1) == n {
			change()
		}
		return time.Now()
	}
	return ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter", extenderv1.ExtenderArgs{Pod: podWith(pod), NodeNames: &names})
}

func TestFilterWaitsForWhatKubeSchedulerHasSeen(t *testing.T) {
	t.Run("a claim", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		claim, _ := s.View.Claims.Get("app/data")
		s.View.Claims.Delete("app/data")
		result := during(t, s, "data", []string{"home-1", "west"}, 1, func() {
			time.AfterFunc(10*time.Millisecond, func() { s.View.Claims.Set("app/data", claim) })
		})
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"west"}, *result.NodeNames)
	})
	t.Run("a namespace", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true})
		opened, _ := s.View.Namespaces.Get("app")
		s.View.Namespaces.Delete("app")
		result := during(t, s, "data", []string{"home-1", "west"}, 1, func() {
			time.AfterFunc(10*time.Millisecond, func() { s.View.Namespaces.Set("app", opened) })
		})
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"west"}, *result.NodeNames)
	})
	t.Run("a node", func(t *testing.T) {
		s := newServer()
		s.Patience = time.Hour
		s.View.Classes.Set("lodestone", &snapshot.Class{})
		s.View.Namespaces.Set("app", nil)
		s.View.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound", ClassName: "lodestone"})
		result := during(t, s, "unbound", []string{"home-new", "west"}, 4, func() { s.View.Nodes.Set("home-new", keys.Home) })
		require.NotNil(t, result.NodeNames)
		assert.Equal(t, []string{"home-new"}, *result.NodeNames)
		assert.Equal(t, extenderv1.FailedNodesMap{"west": filter.NotOffloaded.Sentence()}, result.FailedAndUnresolvableNodes)
		assert.InDelta(t, 1, counter(t, s, `lodestone_extender_waits_total{outcome="caught_up"}`), 0)
	})
}

func TestFilterWaitsNoLongerThanItsPatience(t *testing.T) {
	s := newServer()
	names := []string{"home-1", "west"}
	result := ask[extenderv1.ExtenderFilterResult](t, s.Handler(), "/filter",
		extenderv1.ExtenderArgs{Pod: podWith("never"), NodeNames: &names})
	require.NotNil(t, result.NodeNames)
	assert.Equal(t, names, *result.NodeNames)
	assert.InDelta(t, 1, counter(t, s, `lodestone_extender_waits_total{outcome="gave_up"}`), 0)
}

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
	// A node that was deleted here counts as too new; a node without victims is left to
	// kube-scheduler.
	odd := candidates("home-1", "new")
	odd["home-1"].Pods = []*extenderv1.MetaPod{}
	none := map[string]*extenderv1.MetaVictims{}
	for name, test := range map[string]struct {
		pod        *corev1.Pod
		candidates map[string]*extenderv1.MetaVictims
		kept       map[string]*extenderv1.MetaVictims
	}{
		"a pod without claims keeps all": {pod: podWith(), candidates: all, kept: all},
		"a pod with data keeps where that is": {pod: podWith("data"), candidates: all,
			kept: map[string]*extenderv1.MetaVictims{"west": all["west"]}},
		"a pod without volume yet is judged too": {pod: podWith("unbound"), candidates: all,
			kept: map[string]*extenderv1.MetaVictims{"home-1": all["home-1"]}},
		"nobody is evicted where nothing would do": {pod: podWith("data", "unbound"), candidates: all, kept: none},
		"nodes that are not known are not emptied": {pod: podWith("unbound"), candidates: odd,
			kept: map[string]*extenderv1.MetaVictims{"home-1": odd["home-1"]}},
		"no candidate was sent":                   {pod: podWith("data"), candidates: none, kept: none},
		"no candidate was sent, no claims either": {pod: podWith(), candidates: none, kept: none},
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
		"empty":     {body: strings.NewReader(""), code: http.StatusBadRequest, says: "no body"},
		"malformed": {body: strings.NewReader("{"), code: http.StatusBadRequest, says: "not ExtenderPreemptionArgs"},
		"truncated": {body: bytes.NewReader(whole[:len(whole)-1]), code: http.StatusBadRequest, says: "not ExtenderPreemptionArgs"},
		"nil pod":   {body: strings.NewReader(`{"NodeNameToMetaVictims":{}}`), code: http.StatusBadRequest, says: "no Pod"},
		"nil candidates": {body: strings.NewReader(`{"Pod":{}}`), code: http.StatusBadRequest,
			says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"nil victims": {body: strings.NewReader(`{"Pod":{},"NodeNameToMetaVictims":{"a":null}}`), code: http.StatusBadRequest,
			says: "has no Victims"},
		"huge": {body: io.LimitReader(endless{}, 64<<20+1), code: http.StatusRequestEntityTooLarge, says: "nodeCacheCapable: true"},
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
		if err := json.Unmarshal(answer.Body.Bytes(), &result); err != nil || answer.Code != http.StatusOK ||
			result.NodeNameToMetaVictims == nil {
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

// The file is what kubectl lodestone why is tested with.
func TestAPreferenceIsExplainedWithNumbers(t *testing.T) {
	s := newServer()
	s.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	s.View.StorageClasses().Set("lodestone", &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.Siblings: keys.SiblingsPack},
	})
	s.View.StorageClasses().Set("disk", &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
	})
	s.View.Room.Set("all", snapshot.Capacity{ClassName: "disk", Bytes: 20 << 10})
	s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{
		{Name: "ssd", Default: true, Free: ptr.To(resource.MustParse("4Ki"))},
	}})
	for i, cluster := range []string{keys.Home, "west", keys.Home} {
		uid := fmt.Sprint(i)
		s.View.Claims.Set("app/data-db-"+uid, &snapshot.Claim{UID: uid, VolumeName: uid})
		s.View.Volumes.Set(uid, &snapshot.Volume{Cluster: cluster, Bytes: 100, ClaimUID: uid})
	}
	s.View.Claims.Set("app/data-db-3", &snapshot.Claim{UID: "new", ClassName: "lodestone", Asked: 1 << 10})
	pod := podWith("data-db-3")
	pod.Name = "db-3"
	pod.Annotations = map[string]string{keys.Near: "data"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}

	names := []string{"new", "home-1", "west"}
	got := ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	assert.Equal(t, extenderv1.HostPriorityList{{Host: "new"}, {Host: "home-1", Score: 3}, {Host: "west", Score: 7}}, got,
		"of a node that is not known yet nothing is said")
	code, body := get(s, "/explain?namespace=app&pod=db-3")
	require.Equal(t, http.StatusOK, code, body)
	want, err := os.ReadFile("testdata/explained.json")
	require.NoError(t, err)
	assert.JSONEq(t, string(want), body)
}

// An unbound claim is no reason to prefer a node, nor to store a decision on the pod.
func TestNothingIsExplainedWhereNothingDraws(t *testing.T) {
	s := newServer()
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.Claims.Set("app/new", &snapshot.Claim{UID: "new", ClassName: "lodestone"})
	names := []string{"home-1", "west"}
	got := ask[extenderv1.HostPriorityList](t, s.Handler(), "/prioritize", extenderv1.ExtenderArgs{Pod: podWith("new"), NodeNames: &names})
	for _, node := range got {
		assert.Zero(t, node.Score)
	}
	code, body := get(s, "/explain?namespace=app&pod=web")
	assert.Equal(t, http.StatusNotFound, code, body)
}
