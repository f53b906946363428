package move

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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

func TestWhatIsMovedBackIsTheLatestMoveWhateverAnEarlierOneKeeps(t *testing.T) {
	// The cluster that the claim was first moved from is away, so that the copy there cannot be removed.
	first, later := moveIn(v1alpha1.MoveFinalize, is(v1alpha1.MoveCommitted, metav1.ConditionTrue, "")),
		moveIn(v1alpha1.MoveDone, is(v1alpha1.MoveCommitted, metav1.ConditionTrue, ""))
	first.Name, later.Name = "first", "later"
	later.CreationTimestamp = metav1.NewTime(time.Unix(60, 0))
	moves, of := []v1alpha1.VolumeMove{*first, *later}, cli.Reference{Name: "data"}
	found, err := choose(moves, of, rankToGoBack)
	require.NoError(t, err)
	assert.Equal(t, "later", found.Name)
	found, err = choose(moves, of, rank)
	require.NoError(t, err)
	assert.Equal(t, "first", found.Name, "finalize is for what is kept")
}

func TestWhyAMoveIsNotMovedBack(t *testing.T) {
	for phase, says := range map[v1alpha1.MovePhase]string{
		"": "move data-x is not done (not begun), so there is nothing to move back: kubectl lodestone move abort data-x -n shop ends it",
		v1alpha1.MovePreCopy: "move data-x is not done (PreCopy), so there is nothing to move back: kubectl lodestone move abort data-x -n " +
			"shop ends it",
		v1alpha1.MoveFailed: "move data-x is not done (Failed), so there is nothing to move back: kubectl lodestone move status -n shop shows " +
			"what there is",
		v1alpha1.MoveCommit: "move data-x is not done (Commit), so there is nothing to move back: kubectl lodestone move status -n shop shows " +
			"what there is",
	} {
		_, _, err := origin(moveIn(phase))
		require.EqualError(t, err, says)
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
