package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/wire"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// sameAsDecode fails unless scan refuses the body, or reads it as decode does. It
// returns whether scan read it. text shows all that matters of a request.
func sameAsDecode[R any](t *testing.T, body []byte, scan func([]byte, []string) (R, bool), decode func([]byte) (R, error),
	text func(R) string) bool {
	t.Helper()
	before := string(body)
	got, ok := scan(body, make([]string, 0, 2))
	require.Equal(t, before, string(body), "the body must not be changed")
	if !ok {
		return false
	}
	want, err := decode(body)
	require.NoError(t, err, "what decode refuses must not be scanned")
	require.Equal(t, text(want), text(got))
	return true
}

func scansLikeDecode(t *testing.T, body []byte) bool {
	t.Helper()
	return sameAsDecode(t, body, wire.Scan, wire.Decode, func(r wire.Request) string {
		answer := decodeAnswer[json.RawMessage](t, wire.AppendFilterResult(nil, r, nil))
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, answer))
		return fmt.Sprintf("%q", []any{r.Pod, r.Names, r.Nodes, r.NodeMode, compact.String()})
	})
}

func scansPreemptLikeDecode(t *testing.T, body []byte) bool {
	t.Helper()
	return sameAsDecode(t, body, wire.ScanPreempt, wire.DecodePreempt, func(r wire.PreemptRequest) string {
		return fmt.Sprintf("%q", []any{r, string(wire.AppendPreemptResult(nil, r, nil))})
	})
}

// richPod has all relevant fields of a pod, among others.
func richPod() *corev1.Pod {
	pod := somePod()
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations["note"] = "quotes \" and \\ and <html> and é and \u2028"
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not controlling"},
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "db", UID: "o"}, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
	}
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PATTERN", Value: `{"not":["json"`}}
	return pod
}

func TestWhatKubeSchedulerWritesIsScanned(t *testing.T) {
	list := &corev1.NodeList{Items: []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "b"}},
			Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"x"}, SizeBytes: 5}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{keys.Cluster: "west"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{keys.Cluster: ""}}},
	}}
	near := richPod()
	near.Annotations[keys.Near] = "a&b,\"é\",c"
	for name, args := range map[string]extenderv1.ExtenderArgs{
		"names":                    {Pod: richPod(), NodeNames: &[]string{"a", "b.example", strings.Repeat("long-", 50)}},
		"no name":                  {Pod: richPod(), NodeNames: &[]string{}},
		"whole nodes":              {Pod: richPod(), Nodes: list},
		"no node":                  {Pod: richPod(), Nodes: &corev1.NodeList{Items: []corev1.Node{}}},
		"a list of nodes that nil": {Pod: richPod(), Nodes: &corev1.NodeList{}},
		"an empty pod":             {Pod: &corev1.Pod{}, NodeNames: &[]string{"a"}},
		"odd names of near claims": {Pod: near, NodeNames: &[]string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.True(t, scansLikeDecode(t, encode(t, args)))
		})
	}
	for name, test := range spreadings() {
		t.Run("a pod's constraint: "+name, func(t *testing.T) {
			pod := richPod()
			test.change(&pod.Spec)
			body := encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a"}})
			assert.True(t, scansLikeDecode(t, body))
			scanned, _ := wire.Scan(body, nil)
			assert.Equal(t, test.want, scanned.Pod.Spreads)
		})
	}
	for name, args := range map[string]extenderv1.ExtenderPreemptionArgs{
		"UIDs": {Pod: richPod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"b": {Pods: meta("3")},
			"a": {Pods: meta("1", "2"), NumPDBViolations: 1}, "c": {}}},
		"whole victims": {Pod: richPod(), NodeNameToVictims: map[string]*extenderv1.Victims{"b": {Pods: whole("3")},
			"a": {Pods: append(whole("1"), whole("2")...)}, "c": {}}},
		"no candidate": {Pod: richPod(), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.True(t, scansPreemptLikeDecode(t, encodePreempt(t, args)))
		})
	}
}

// scan either reads these rows as encoding/json does, or leaves them to it.
func TestUnusualRequests(t *testing.T) {
	const names = `,"NodeNames":["a"]}`
	for name, test := range map[string]struct {
		body    string
		scanned bool
	}{
		"white space everywhere": {body: " {\t\"Pod\" :\r\n{ \"metadata\" : { } } , \"NodeNames\" : [ \"a\" , \"b\" ] } \n",
			scanned: true},
		"a member that nobody knows":    {body: `{"Pod":{},"More":[{"a":[1,-0.5e+3,true,false,null,"\u00e9\n"]}]` + names, scanned: true},
		"names before the pod":          {body: `{"NodeNames":["a","b"],"Pod":{"metadata":{"name":",,,"}}}`, scanned: true},
		"a null pod":                    {body: `{"Pod":null` + names},
		"constraints of another type":   {body: `{"Pod":{"spec":{"topologySpreadConstraints":["x"]}}` + names},
		"null constraints":              {body: `{"Pod":{"spec":{"topologySpreadConstraints":null}}` + names},
		"a null affinity":               {body: `{"Pod":{"spec":{"affinity":null}}` + names},
		"affinity twice":                {body: `{"Pod":{"spec":{"affinity":{},"affinity":{"podAntiAffinity":{}}}}` + names},
		"keys in other letters":         {body: `{"pod":{}` + names},
		"keys in other letters, nested": {body: `{"Pod":{"metadata":{"Name":"x"}}` + names},
		"keys that fold to ASCII":       {body: `{"Pod":{"ſpec":{"volumes":[{"ephemeral":{}}]}}` + names},
		"an escape in a key":            {body: `{"Pod":{"\u006detadata":{"name":"x"}}` + names},
		"an escape in a label's key": {
			body: `{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a","labels":{"lodestone.dev\/cluster":"west"}}}]}}`,
		},
		"a key twice":           {body: `{"Pod":{"metadata":{"name":"x"},"metadata":{"uid":"y"}}` + names},
		"a list of names twice": {body: `{"Pod":{},"NodeNames":["b"]` + names},
		"an annotation twice": {body: `{"Pod":{"metadata":{"annotations":{"lodestone.dev/near":"a","lodestone.dev/near":"b"}}}` +
			names},
		"an annotation that is null":       {body: `{"Pod":{"metadata":{"annotations":{"x":null}}}` + names},
		"both lists":                       {body: `{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"b"}}]}` + names},
		"an empty name":                    {body: `{"Pod":{},"NodeNames":["a",""]}`},
		"a name that is null":              {body: `{"Pod":{},"NodeNames":["a",null]}`},
		"a name with an escape":            {body: `{"Pod":{},"NodeNames":["\u0061"]}`},
		"a name beyond ASCII":              {body: `{"Pod":{},"NodeNames":["é"]}`},
		"a name with DEL":                  {body: "{\"Pod\":{},\"NodeNames\":[\"a\x7f\"]}", scanned: true},
		"a comma in a name":                {body: `{"Pod":{},"NodeNames":["a,b]","c"]}`, scanned: true},
		"invalid UTF-8 where nobody looks": {body: "{\"Pod\":{\"spec\":{\"x\":\"\xff\xfe\"}}" + names, scanned: true},
		"invalid UTF-8 in a name":          {body: "{\"Pod\":{\"metadata\":{\"name\":\"\xff\"}}" + names, scanned: true},
		"half a surrogate in a name":       {body: `{"Pod":{"metadata":{"name":"\ud800x"}}` + names, scanned: true},
		"an escape that is none":           {body: `{"Pod":{"x":"\q"}` + names},
		"an escape of too few digits":      {body: `{"Pod":{"x":"\u12"}` + names},
		"a control character":              {body: "{\"Pod\":{\"x\":\"a\nb\"}" + names},
		"a number with a leading zero":     {body: `{"Pod":{"x":01}` + names},
		"a number that ends early":         {body: `{"Pod":{"x":1.}` + names},
		"half a word":                      {body: `{"Pod":{"x":nul}` + names},
		"a comma too many":                 {body: `{"Pod":{"x":[1,]}` + names},
		"a colon too few":                  {body: `{"Pod":{"x" 1}` + names},
		"something behind it":              {body: `{"Pod":{}` + names + `x`},
		"nested deeply":                    {body: `{"Pod":{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}` + names},
		"an owner that controls with text": {body: `{"Pod":{"metadata":{"ownerReferences":[{"controller":"x"}]}}` + names},
		"a volume that is null":            {body: `{"Pod":{"spec":{"volumes":[null]}}` + names},
		"a claim that is null":             {body: `{"Pod":{"spec":{"volumes":[{"persistentVolumeClaim":null}]}}` + names},
		"an ephemeral volume that is text": {body: `{"Pod":{"spec":{"volumes":[{"ephemeral":"x"}]}}` + names},
		"a volume that is both": {
			body: `{"Pod":{"spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"},"ephemeral":{}}]}}` + names, scanned: true,
		},
		"a node without name": {body: `{"Pod":{},"Nodes":{"items":[{}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.scanned, scansLikeDecode(t, []byte(test.body)))
		})
	}
}

func TestUnusualPreemptRequests(t *testing.T) {
	for name, test := range map[string]struct {
		body    string
		scanned bool
	}{
		"both lists":                           {body: `{"Pod":{},"NodeNameToVictims":{"a":{}},"NodeNameToMetaVictims":{"b":{}}}`},
		"one list, and no other":               {body: `{"Pod":{},"NodeNameToVictims":{"a":{}},"NodeNameToMetaVictims":null}`, scanned: true},
		"a candidate twice":                    {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"NumPDBViolations":1},"a":{"Pods":[]}}}`},
		"a candidate in letters beyond ASCII":  {body: `{"Pod":{},"NodeNameToMetaVictims":{"é":{}}}`},
		"no pods":                              {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":null}}}`, scanned: true},
		"more violations than a number can be": {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"NumPDBViolations":9223372036854775808}}}`},
		"half a violation":                     {body: `{"Pod":{},"NodeNameToMetaVictims":{"a":{"NumPDBViolations":0.5}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.scanned, scansPreemptLikeDecode(t, []byte(test.body)))
		})
	}
}
