package unpeer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestVolumesAreGivenUpOneByOne(t *testing.T) {
	volume := func(name, lost string) corev1.PersistentVolume {
		v := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if lost != "" {
			v.Annotations = map[string]string{keys.Lost: lost}
		}
		return v
	}
	const when = "2026-01-02T03:04:05Z"
	for name, test := range map[string]struct {
		volumes []corev1.PersistentVolume
		named   []string
		says    string
	}{
		"none is there":                       {},
		"all were declared lost":              {volumes: []corev1.PersistentVolume{volume("a", when), volume("b", when)}},
		"all are named":                       {volumes: []corev1.PersistentVolume{volume("a", ""), volume("b", "")}, named: []string{"b", "a"}},
		"one is named, one declared lost":     {volumes: []corev1.PersistentVolume{volume("a", ""), volume("b", when)}, named: []string{"a"}},
		"one that was declared lost is named": {volumes: []corev1.PersistentVolume{volume("a", when)}, named: []string{"a"}},
		"one is neither": {volumes: []corev1.PersistentVolume{volume("a", ""), volume("b", when), volume("c", "")},
			named: []string{"a"}, says: "nothing was changed: c;"},
		"none is either": {volumes: []corev1.PersistentVolume{volume("a", ""), volume("b", "")}, says: "nothing was changed: a, b;"},
		"a name of another cluster's": {volumes: []corev1.PersistentVolume{volume("a", when)}, named: []string{"z"},
			says: "names z, whose data is not in"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkNamed("west", test.volumes, test.named)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
			assert.ErrorContains(t, err, test.says)
		})
	}
}
