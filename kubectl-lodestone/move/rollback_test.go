package move

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestDataGoesBackIntoACopyThatIsStillKept(t *testing.T) {
	committed := is(v1alpha1.MoveCommitted, metav1.ConditionTrue, "")
	for name, row := range map[string]struct {
		move  *v1alpha1.VolumeMove
		whole bool
		into  string
	}{
		"it is kept":                 {move: moveIn(v1alpha1.MoveRetain, committed), into: "data-x"},
		"all is to be moved":         {move: moveIn(v1alpha1.MoveRetain, committed), whole: true},
		"it is removed":              {move: moveIn(v1alpha1.MoveFinalize, committed)},
		"it is gone":                 {move: moveIn(v1alpha1.MoveDone, committed)},
		"the move is not that far":   {move: moveIn(v1alpha1.MovePreCopy)},
		"nobody wrote where it came": {move: &v1alpha1.VolumeMove{Status: v1alpha1.VolumeMoveStatus{Phase: v1alpha1.MoveRetain}}},
	} {
		if name != "nobody wrote where it came" {
			row.move.Status.Claims = []v1alpha1.MovedClaim{{Name: "data", Source: &v1alpha1.MovePlace{Cluster: "west"}}}
		}
		into, cluster := keptBy(row.move, row.whole)
		assert.Equal(t, row.into, into, name)
		assert.Equal(t, row.into != "", cluster == "west", name)
	}
}

func TestWhatAMoveSaysOfWhatItWritesToIsShownOnce(t *testing.T) {
	var out bytes.Buffer
	shown := newScreen(&out)
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveProvision, v1alpha1.MovePreCopy, v1alpha1.MoveFinalSync} {
		shown.show(moveIn(phase, is(v1alpha1.MoveAccepted, metav1.ConditionTrue, "the copy is written to")))
	}
	assert.Equal(t, 1, strings.Count(out.String(), "data: the copy is written to\n"), out.String())
	assert.Contains(t, out.String(), "data: FinalSync")
}
