package wire_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// encode writes a request as kube-scheduler does.
func encode(t *testing.T, args extenderv1.ExtenderArgs) []byte {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	return body
}

func somePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "app", Name: "web", UID: "pod-uid",
			Annotations: map[string]string{keys.Near: "logs, , cache,logs", "lodestone.dev/NEAR": "not this one"},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "data",
					VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web"}}},
				{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			},
			Containers: []corev1.Container{{Name: "web"}},
		},
	}
}

func TestDecode(t *testing.T) {
	wantPod := snapshot.Pod{
		Namespace: "app", Name: "web", UID: "pod-uid",
		Volumes: []snapshot.PodVolume{{ClaimName: "data-web"}, {ClaimName: "web-scratch", Ephemeral: true}},
		Near:    []string{"logs", "cache", "logs"},
	}
	t.Run("a pod of a DaemonSet", func(t *testing.T) {
		for kind, want := range map[string]bool{"DaemonSet": true, "ReplicaSet": false} {
			pod := somePod()
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "own", UID: "o"},
				appsv1.SchemeGroupVersion.WithKind(kind))}
			request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a"}}))
			require.NoError(t, err)
			assert.Equal(t, want, request.Pod.Daemon, kind)
		}
	})
	t.Run("a pod that asks to be spread", func(t *testing.T) {
		for name, test := range spreadings() {
			pod := somePod()
			test.change(&pod.Spec)
			request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a"}}))
			require.NoError(t, err)
			assert.Equal(t, test.want, request.Pod.Spreads, name)
		}
	})
	t.Run("names mode", func(t *testing.T) {
		request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &[]string{"a", "b"}}))
		require.NoError(t, err)
		assert.Equal(t, wire.Request{Pod: wantPod, Names: []string{"a", "b"}}, request)
	})
	t.Run("node mode", func(t *testing.T) {
		nodes := &corev1.NodeList{Items: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{keys.Cluster: "west"}}},
		}}
		request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), Nodes: nodes}))
		require.NoError(t, err)
		assert.True(t, request.NodeMode)
		assert.Equal(t, wantPod, request.Pod)
		assert.Equal(t, []string{"a", "b"}, request.Names)
		assert.Equal(t, snapshot.Node{Name: "a", Cluster: keys.Home, Known: true}, request.Nodes[0].Node)
		assert.Equal(t, snapshot.Node{Name: "b", Cluster: "west", Known: true}, request.Nodes[1].Node)
	})
	t.Run("an empty list is a list", func(t *testing.T) {
		request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &[]string{}}))
		require.NoError(t, err)
		assert.Empty(t, request.Names)
		request, err = wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), Nodes: &corev1.NodeList{}}))
		require.NoError(t, err)
		assert.True(t, request.NodeMode)
		assert.Empty(t, request.Names)
	})
	t.Run("a name that no pod has is not repeated for each volume", func(t *testing.T) {
		pod := somePod()
		pod.Name = strings.Repeat("x", 254)
		request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{}}))
		require.NoError(t, err)
		assert.Equal(t, []snapshot.PodVolume{{ClaimName: "data-web"}, {Ephemeral: true}}, request.Pod.Volumes)
	})
	t.Run("the list of near claims is bounded", func(t *testing.T) {
		pod := somePod()
		pod.Annotations[keys.Near] = strings.Repeat("a,", 1000)
		request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{}}))
		require.NoError(t, err)
		assert.Len(t, request.Pod.Near, 64)
	})
}

type spreading struct {
	change func(*corev1.PodSpec)
	want   bool
}

// spreadings are pods with each kind of constraint that keeps pods together or apart.
func spreadings() map[string]spreading {
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
	soft := []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
	return map[string]spreading{
		"none": {change: func(*corev1.PodSpec) {}},
		"an affinity without rule": {change: func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
		}},
		"to nodes": {change: func(s *corev1.PodSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }},
		"to other pods": {change: func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}}
		}},
		"softly apart": {want: true, change: func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}}
		}},
		"apart": {want: true, change: func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}},
		"spread": {want: true, change: func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
				WhenUnsatisfiable: corev1.ScheduleAnyway}}
		}},
	}
}

func TestDecodeRefusesWithOneSentence(t *testing.T) {
	whole := string(encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &[]string{"a"}}))
	for name, test := range map[string]struct{ body, says string }{
		"nothing":              {body: "", says: "no body"},
		"not JSON":             {body: "<html>", says: "not ExtenderArgs in JSON"},
		"half a request":       {body: whole[:len(whole)/2], says: "not ExtenderArgs in JSON"},
		"two requests":         {body: whole + whole, says: "not ExtenderArgs in JSON"},
		"another type":         {body: `[]`, says: "not ExtenderArgs in JSON"},
		"null":                 {body: `null`, says: "no Pod"},
		"no pod":               {body: `{"NodeNames":["a"]}`, says: "no Pod"},
		"null pod":             {body: `{"Pod":null,"NodeNames":["a"]}`, says: "no Pod"},
		"no nodes":             {body: `{"Pod":{}}`, says: "neither NodeNames nor Nodes"},
		"null nodes":           {body: `{"Pod":{},"Nodes":null,"NodeNames":null}`, says: "neither NodeNames nor Nodes"},
		"a node that is null":  {body: `{"Pod":{},"Nodes":{"items":[null]}}`, says: "item 0 of Nodes has no name"},
		"a node without name":  {body: `{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},{}]}}`, says: "item 1 of Nodes has no name"},
		"a node that is text":  {body: `{"Pod":{},"Nodes":{"items":["a"]}}`, says: "item 0 of Nodes is not a Node"},
		"nested without end":   {body: `{"Pod":` + strings.Repeat("[", 100000), says: "not ExtenderArgs in JSON"},
		"names that are not":   {body: `{"Pod":{},"NodeNames":[1]}`, says: "not ExtenderArgs in JSON"},
		"volumes that are not": {body: `{"Pod":{"spec":{"volumes":{}}},"NodeNames":[]}`, says: "not ExtenderArgs in JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.Decode([]byte(test.body))
			require.ErrorContains(t, err, test.says)
			assert.ErrorContains(t, err, "send ", "the sentence must say what to do")
			assert.NotContains(t, fmt.Sprint(err), "\n")
		})
	}
}

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
	args := string(encodePreempt(t,
		extenderv1.ExtenderPreemptionArgs{Pod: somePod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"a": {Pods: meta("1")}}}))
	for name, test := range map[string]struct{ body, says string }{
		"nothing":                   {body: "", says: "no body"},
		"not JSON":                  {body: "<html>", says: "not ExtenderPreemptionArgs in JSON"},
		"half a request":            {body: args[:len(args)/2], says: "not ExtenderPreemptionArgs in JSON"},
		"two requests":              {body: args + args, says: "not ExtenderPreemptionArgs in JSON"},
		"another type":              {body: `[]`, says: "not ExtenderPreemptionArgs in JSON"},
		"null":                      {body: `null`, says: "no Pod"},
		"null pod":                  {body: `{"Pod":null,"NodeNameToMetaVictims":{}}`, says: "no Pod"},
		"a request of another verb": {body: `{"Pod":{},"NodeNames":["a"]}`, says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"null candidates": {body: `{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":null}`,
			says: "neither NodeNameToMetaVictims nor NodeNameToVictims"},
		"candidates that are not":  {body: `{"Pod":{},"NodeNameToMetaVictims":["a"]}`, says: "not ExtenderPreemptionArgs in JSON"},
		"a candidate that is null": {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":null}}`, says: `candidate node "a" has no Victims`},
		"a victim that is null": {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},null]}}}`,
			says: `victim 1 of candidate node "a" has no UID`},
		"a victim without UID": {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}`,
			says: `victim 0 of candidate node "a" has no UID`},
		"a whole victim that is null": {body: `{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[null]}}}`,
			says: `victim 0 of candidate node "a" has no UID`},
		"a whole victim without UID": {body: `{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"name":"x"}}]}}}`,
			says: `victim 0 of candidate node "a" has no UID`},
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
		"all are kept": {request: request, want: map[string]*extenderv1.MetaVictims{"a": a, "b\"": b, "c": c}},
		"one is refused": {request: request, refusals: []string{"why", "", ""},
			want: map[string]*extenderv1.MetaVictims{"b\"": b, "c": c}},
		"all are refused":       {request: request, refusals: []string{"x", "y", "z"}, want: map[string]*extenderv1.MetaVictims{}},
		"no candidate was sent": {want: map[string]*extenderv1.MetaVictims{}},
	} {
		t.Run(name, func(t *testing.T) {
			result := decodeAnswer[extenderv1.ExtenderPreemptionResult](t, wire.AppendPreemptResult(nil, test.request, refusal(test.refusals)))
			assert.Equal(t, extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: test.want}, result)
		})
	}
}

// members are the keys that an object under a key mostly has; an empty list is a
// map of any names.
var members = map[string][]string{
	"args":                  {"Pod", "NodeNames", "Nodes", "NodeNameToVictims", "NodeNameToMetaVictims"},
	"Pod":                   {"metadata", "spec", "status"},
	"Nodes":                 {"metadata", "items"},
	"items":                 {"metadata", "spec"},
	"metadata":              {"name", "namespace", "uid", "annotations", "labels", "ownerReferences"},
	"annotations":           {keys.Near, "other"},
	"labels":                {keys.Cluster, "zone"},
	"ownerReferences":       {"apiVersion", "kind", "name", "controller"},
	"spec":                  {"volumes", "containers"},
	"volumes":               {"name", "persistentVolumeClaim", "ephemeral", "emptyDir"},
	"persistentVolumeClaim": {"claimName", "readOnly"},
	"ephemeral":             {"volumeClaimTemplate"},
	"NodeNameToVictims":     {},
	"NodeNameToMetaVictims": {},
	"victims":               {"Pods", "NumPDBViolations"},
	"Pods":                  {"UID", "metadata"},
}

// lists are the keys whose value mostly is an array.
var lists = map[string]bool{"NodeNames": true, "items": true, "ownerReferences": true, "volumes": true, "Pods": true}

// literals are values that fit a key, and values that fit none.
var (
	literals = map[string][]string{
		"controller":       {"true", "false"},
		"NumPDBViolations": {"0", "1", "-1", "9223372036854775807", "9223372036854775808", "1.0", "1e2"},
		"apiVersion":       {`"apps/v1"`, `"v1"`},
		"kind":             {`"DaemonSet"`, `"StatefulSet"`, `"Pod"`},
	}
	texts = []string{`"a"`, `"b"`, `"web-1"`, `"a,b, c"`, `""`, `"west"`}
	odd   = []string{`null`, `0`, `-0.5e-7`, `true`, `{}`, `[]`, `[null]`, `{"a":1,"a":[2]}`, `"\u0041\n"`, `"é"`, "\"\xff\"",
		`"\ud83d\ude00 \ud83d"`, `"\q"`, `01`, `nul`, `[1,]`}
)

// author writes random requests that are mostly in the form of kube-scheduler's.
type author struct {
	*rand.Rand
	text strings.Builder
}

func (a *author) oneIn(n int) bool { return a.IntN(n) == 0 }

func (a *author) space() {
	if a.oneIn(60) {
		a.text.WriteString([]string{" ", "\n", "\t \r", "\v"}[a.IntN(4)])
	}
}

func (a *author) value(key string) {
	a.space()
	defer a.space()
	switch {
	case a.oneIn(80):
		a.text.WriteString(odd[a.IntN(len(odd))])
	case lists[key]:
		a.text.WriteByte('[')
		for i := range a.IntN(4) {
			if i > 0 {
				a.text.WriteByte(',')
			}
			a.item(key)
		}
		a.text.WriteByte(']')
	default:
		a.item(key)
	}
}

func (a *author) item(key string) {
	names, isObject := members[key]
	if !isObject {
		choice := texts
		if fitting, ok := literals[key]; ok {
			choice = fitting
		}
		a.text.WriteString(choice[a.IntN(len(choice))])
		return
	}
	a.text.WriteByte('{')
	first := true
	member := func(name, under string) {
		if !first {
			a.text.WriteByte(',')
		}
		first = false
		a.key(name)
		a.text.WriteByte(':')
		a.value(under)
	}
	for _, name := range names {
		if key == "args" && name != "Pod" && a.oneIn(2) {
			continue
		}
		if !a.oneIn(5) {
			member(name, name)
		}
		if a.oneIn(60) {
			member(name, name)
		}
	}
	if len(names) == 0 {
		for _, name := range []string{"b", "a", "c"}[a.IntN(3):] {
			member(name, "victims")
		}
	}
	a.text.WriteByte('}')
}

func (a *author) key(name string) {
	switch a.IntN(150) {
	case 0:
		name = strings.ToUpper(name)
	case 1:
		name = `\u00` + "6d" + name[1:]
	case 2:
		name = strings.NewReplacer("s", "ſ", "k", "\u212a").Replace(name)
	}
	a.text.WriteString(`"` + name + `"`)
}

func TestRandomRequestsAreScannedLikeDecoded(t *testing.T) {
	const count = 20_000
	scanned := 0
	for i := range count {
		a := &author{Rand: rand.New(rand.NewPCG(1, uint64(i)))}
		a.value("args")
		body := []byte(a.text.String())
		filter, preempt := scansLikeDecode(t, body), scansPreemptLikeDecode(t, body)
		if t.Failed() {
			t.Fatalf("request %d: %q", i, body)
		}
		if filter || preempt {
			scanned++
		}
	}
	assert.Greater(t, scanned, count/10, "the comparison must mostly be about requests that are scanned")
}

// addSeeds adds requests in the form of kube-scheduler's, complete and truncated.
func addSeeds(f *testing.F, requests ...any) {
	f.Helper()
	for _, request := range requests {
		body, err := json.Marshal(request)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
}

// FuzzScan compares with encoding/json: Scan refuses a body, or reads it alike.
func FuzzScan(f *testing.F) {
	addSeeds(f,
		extenderv1.ExtenderArgs{Pod: richPod(), NodeNames: &[]string{"a", "b.example"}},
		extenderv1.ExtenderArgs{Pod: somePod(), Nodes: &corev1.NodeList{Items: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{keys.Cluster: "west", "zone": "b"}}}, {},
		}}},
		extenderv1.ExtenderArgs{},
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		scansLikeDecode(t, body)
	})
}

// FuzzScanPreempt does the same for ScanPreempt.
func FuzzScanPreempt(f *testing.F) {
	addSeeds(f,
		extenderv1.ExtenderPreemptionArgs{Pod: somePod(),
			NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"a": {Pods: meta("1", "2"), NumPDBViolations: 1}, "b": {}}},
		extenderv1.ExtenderPreemptionArgs{Pod: somePod(), NodeNameToVictims: map[string]*extenderv1.Victims{"a": {Pods: whole("1")}}},
		extenderv1.ExtenderPreemptionArgs{},
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		scansPreemptLikeDecode(t, body)
	})
}
