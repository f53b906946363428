package look

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

func TestTheLatestWordOnJustThisPodCounts(t *testing.T) {
	var answers []explained
	require.NoError(t, json.Unmarshal([]byte(`[
	  {"uid": "a", "decisions": [
	    {"time": "2026-01-02T03:04:05Z", "verb": "filter", "nodes": [{"cluster": "west", "reason": "NotOffloaded", "sentence": "old", "nodes": 1}]},
	    {"time": "2026-01-02T03:04:09Z", "verb": "preempt", "nodes": [{"cluster": "west", "reason": "NotOffloaded", "sentence": "preempt", "nodes": 1}]}
	  ]},
	  {"uid": "a", "decisions": [
	    {"time": "2026-01-02T03:04:07.5Z", "verb": "filter", "nodes": [{"cluster": "home", "reason": "DataElsewhere", "sentence": "new", "nodes": 2, "examples": ["home-1"]}]}
	  ]},
	  {"uid": "b", "decisions": [
	    {"time": "2026-01-02T03:04:08Z", "verb": "filter", "nodes": [{"cluster": "east", "reason": "NotOffloaded", "sentence": "another pod", "nodes": 1}]}
	  ]}
	]`), &answers))
	assert.Equal(t, []why.Verdict{{Cluster: "home", Reason: "DataElsewhere", Sentence: "new", Nodes: 2}}, lastSaid("a", answers))
	assert.Empty(t, lastSaid("c", answers))
}

func TestClaimNamesHaveThoseOfEphemeralVolumes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}}}
	assert.Equal(t, []string{"web-data", "web-scratch"}, claimNames(pod))
}
