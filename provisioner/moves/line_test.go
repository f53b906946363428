package moves

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
)

func queuedMove(namespace string, n int, dry bool) *v1alpha1.VolumeMove {
	name := fmt.Sprintf("%s-%d", namespace, n)
	return &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(n), 0))},
		Spec: v1alpha1.VolumeMoveSpec{DryRun: dry},
	}
}

func begun(l *line) (names []string) {
	for _, move := range l.advance() {
		names = append(names, move.Name)
	}
	return names
}

func recordFrom(namespace, name string, phase v1alpha1.MovePhase) *record.Record {
	return &record.Record{UID: types.UID(name), Namespace: namespace, Name: name, Phase: phase}
}

func TestMovesBeginInTurn(t *testing.T) {
	records := NewRecords()
	l := newLine(turns.Limits{Total: 3, PerNamespace: 2}, records)
	for n := range 5 {
		l.join(queuedMove("many", n, false))
	}
	assert.Equal(t, []string{"many-0", "many-1"}, begun(l))
	assert.Empty(t, begun(l), "they count before they have a record")
	l.join(queuedMove("one", 9, false))
	l.join(queuedMove("other", 8, false))
	assert.Equal(t, []string{"other-8"}, begun(l))
	assert.Equal(t, 4, l.waiting())

	records.set("many-0", recordFrom("many", "many-0", v1alpha1.MovePrepare))
	assert.Empty(t, begun(l), "with a record it counts once")
	l.leave("many-0")
	assert.Empty(t, begun(l))

	l.join(queuedMove("one", 10, true))
	assert.Equal(t, []string{"one-10"}, begun(l), "a dry run does not wait for moves")

	records.set("many-0", recordFrom("many", "many-0", v1alpha1.MoveRetain))
	assert.Equal(t, []string{"one-9"}, begun(l), "one that only keeps its source does not count, and the other namespace is next")
	l.leave("many-1")
	assert.Equal(t, []string{"many-2"}, begun(l), "one that was refused does not count")
}

func TestMovesUnderWayGoOnAboveALoweredLimit(t *testing.T) {
	records := NewRecords()
	for n := range 4 {
		name := fmt.Sprintf("many-%d", n)
		records.set(types.UID(name), recordFrom("many", name, v1alpha1.MovePreCopy))
	}
	l := newLine(turns.Limits{Total: 2, PerNamespace: 2}, records)
	l.join(queuedMove("one", 1, false))
	assert.Empty(t, begun(l))
	for n := range 3 {
		name := fmt.Sprintf("many-%d", n)
		records.set(types.UID(name), recordFrom("many", name, v1alpha1.MoveDone))
	}
	assert.Equal(t, []string{"one-1"}, begun(l))
}

func TestEachMoveIsToldOnceWhereItStands(t *testing.T) {
	l := newLine(turns.Limits{Total: 1, PerNamespace: 1}, NewRecords())
	for n := range 3 {
		l.join(queuedMove("a", n, false))
	}
	assert.Equal(t, []string{"a-0"}, begun(l))
	told := func() (said []string) {
		for {
			place, ok := l.untold()
			if !ok {
				return said
			}
			said = append(said, fmt.Sprintf("%s %d", place.Move.Name, place.Position))
		}
	}
	assert.Equal(t, []string{"a-1 1", "a-2 2"}, told())
	assert.Empty(t, told())
	l.leave("a-0")
	assert.Equal(t, []string{"a-1"}, begun(l))
	assert.Equal(t, []string{"a-2 1"}, told())

	// The write failed, as an event shows.
	again := queuedMove("a", 2, false)
	l.join(again)
	require.Equal(t, []string{"a-2 1"}, told())
	again.Status.Message = turns.Place{Position: 1, Full: true}.Say(l.limits)
	l.join(again)
	assert.Empty(t, told())
}
