package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

func refusedBy(t *testing.T, clusters ...string) string {
	t.Helper()
	var all []refusal.Refusal
	for _, id := range clusters {
		all = append(all, refusal.Refusal{Cluster: id, Reason: "Test", Until: time.Now().Add(time.Minute)})
	}
	encoded, err := refusal.Encode(all)
	require.NoError(t, err)
	return encoded
}

func TestOpened(t *testing.T) {
	for name, row := range map[string]struct {
		before, after map[string]string
		volume        string
		want          bool
	}{
		"nothing changed": {before: map[string]string{keys.Class: "fast"}, after: map[string]string{keys.Class: "fast"}},
		"a refusal is over": {
			before: map[string]string{keys.Refused: refusedBy(t, "west")}, want: true,
		},
		"one refusal of two is over": {
			before: map[string]string{keys.Refused: refusedBy(t, "west", "east")},
			after:  map[string]string{keys.Refused: refusedBy(t, "east")}, want: true,
		},
		"a new refusal closes": {after: map[string]string{keys.Refused: refusedBy(t, "west")}},
		"the user chooses another class": {
			before: map[string]string{keys.Class: "wrong"}, after: map[string]string{keys.Class: "fast"}, want: true,
		},
		"a node is selected meanwhile": {
			before: map[string]string{keys.Refused: refusedBy(t, "west")}, after: map[string]string{keys.SelectedNode: "home-1"},
		},
		"a bound claim is no longer held by a move": {
			before: map[string]string{keys.Move: "uid", keys.SelectedNode: "home-1"}, after: map[string]string{keys.SelectedNode: "home-1"}, volume: "pvc-1", want: true,
		},
		"a move begins": {after: map[string]string{keys.Move: "uid"}, volume: "pvc-1"},
		"a class is written on a bound claim": {
			after: map[string]string{keys.Class: "fast"}, volume: "pvc-1",
		},
		"a touch opens nothing": {after: map[string]string{keys.ClusterChanged: "now"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
			before.Annotations, after.Annotations = row.before, row.after
			before.Spec.VolumeName, after.Spec.VolumeName = row.volume, row.volume
			assert.Equal(t, row.want, opened(before, after))
		})
	}
}
