package wire_test

import (
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
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web"}}},
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
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "own", UID: "o"}, appsv1.SchemeGroupVersion.WithKind(kind))}
			request, err := wire.Decode(encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a"}}))
			require.NoError(t, err)
			assert.Equal(t, want, request.Pod.Daemon, kind)
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
