package explain

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

func TestTheLatestWordOnJustThisPodCounts(t *testing.T) {
	var answers []explained
	require.NoError(t, json.Unmarshal([]byte(`[
	  {"uid": "a", "decisions": [
	    {"time": "2026-01-02T03:04:05Z", "verb": "filter",
	     "nodes": [{"cluster": "west", "reason": "NotOffloaded", "sentence": "old", "nodes": 1}]},
	    {"time": "2026-01-02T03:04:09Z", "verb": "preempt",
	     "nodes": [{"cluster": "west", "reason": "NotOffloaded", "sentence": "preempt", "nodes": 1}]}
	  ]},
	  {"uid": "a", "decisions": [
	    {"time": "2026-01-02T03:04:07.5Z", "verb": "filter",
	     "nodes": [{"cluster": "home", "reason": "DataElsewhere", "sentence": "new", "nodes": 2, "examples": ["home-1"]}]}
	  ]},
	  {"uid": "b", "decisions": [
	    {"time": "2026-01-02T03:04:08Z", "verb": "filter",
	     "nodes": [{"cluster": "east", "reason": "NotOffloaded", "sentence": "another pod", "nodes": 1}]}
	  ]},
	  {"uid": "d", "decisions": [
	    {"time": "2026-01-02T03:04:08Z", "verb": "filter", "nodes": []},
	    {"time": "2026-01-02T03:04:07Z", "verb": "prioritize",
	     "scores": [{"cluster": "west", "score": 10, "data": {"pull": 1, "bytes": 1, "of": 1}}]}
	  ]}
	]`), &answers))
	assert.Equal(t, why.Said{Verdicts: []why.Verdict{{Cluster: "home", Reason: "DataElsewhere", Sentence: "new", Nodes: 2}}},
		lastSaid("a", answers))
	assert.Empty(t, lastSaid("c", answers))
	assert.Empty(t, lastSaid("d", answers).Marks, "there was no choice any more")
}

func TestTheExtenderIsAskedThroughTheAPIServer(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "pod-uid"}}
	// As the extender writes it.
	preference, err := os.ReadFile("../../extender/server/testdata/explained.json")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		answer string
		code   int
		want   why.Said
	}{
		"it knows the pod": {
			answer: `{"uid": "pod-uid", "decisions": [{"time": "2026-01-02T03:04:05Z", "verb": "filter", "nodes": [{"cluster": "west", "reason": "NotOffloaded", "sentence": "closed", "nodes": 1}]}]}`,
			code:   http.StatusOK, want: why.Said{Verdicts: []why.Verdict{{Cluster: "west", Reason: "NotOffloaded", Sentence: "closed", Nodes: 1}}},
		},
		"it has a preference": {
			answer: string(preference), code: http.StatusOK,
			want: why.Said{Marks: []why.Mark{
				{
					Cluster: "west", Score: 7, Data: &why.Data{Bytes: 1, Of: 1}, Siblings: &why.Siblings{Pack: &why.Count{Here: 1, Of: 3}},
					Room: &why.Room{Class: "ssd", Free: 4096, Asked: 1024},
				},
				{
					Cluster: "home", Score: 3, Data: &why.Data{Of: 1}, Siblings: &why.Siblings{Pack: &why.Count{Here: 2, Of: 3}},
					Room: &why.Room{Class: "disk", Free: 20480, Asked: 1024},
				},
			}},
		},
		"it does not know the pod":     {answer: "nothing is known", code: http.StatusNotFound},
		"the user may not ask":         {answer: "forbidden", code: http.StatusForbidden},
		"it answers what nobody reads": {answer: "<html>", code: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			api := http.NewServeMux()
			api.HandleFunc("GET /api/v1/namespaces/lodestone-system/pods", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"namespace": "lodestone-system", "name": "extender-0"}}]}`))
			})
			api.HandleFunc("GET /api/v1/namespaces/lodestone-system/pods/{replica}/proxy/explain", func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "extender-0:8082", r.PathValue("replica"))
				assert.Equal(t, "shop", r.FormValue("namespace"))
				assert.Equal(t, "web", r.FormValue("pod"))
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte(test.answer))
			})
			server := httptest.NewServer(api)
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			g := &Gatherer{Home: &cli.Cluster{Client: client}, Lodestone: "lodestone-system"}
			assert.Equal(t, test.want, g.extender(t.Context(), pod))
		})
	}
}

func TestClaimNamesHaveThoseOfEphemeralVolumes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}}}
	assert.Equal(t, []string{"web-data", "web-scratch"}, ClaimNames(pod))
}
