package replicate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// moved is a move from home to west that sent 100 MiB a second for ten seconds, up to so long ago.
func moved(name string, ago time.Duration, tune ...func(*v1alpha1.VolumeMove)) v1alpha1.VolumeMove {
	end := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).Add(-ago)
	move := v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.VolumeMoveStatus{
		Claims: []v1alpha1.MovedClaim{{Name: "wal", Source: &v1alpha1.MovePlace{Cluster: "home"}, Target: &v1alpha1.MovePlace{Cluster: "west"},
			Sent: 1000 << 20}},
		Phases: []v1alpha1.PhaseTime{{Phase: v1alpha1.MovePreCopy, Since: metav1.NewMicroTime(end.Add(-10 * time.Second))},
			{Phase: v1alpha1.MoveQuiesce, Since: metav1.NewMicroTime(end)},
			{Phase: v1alpha1.MoveCommit, Since: metav1.NewMicroTime(end.Add(time.Hour))}},
	}}
	for _, change := range tune {
		change(&move)
	}
	return move
}

func TestThePlanSaysHowLongTheFirstCopyTakesAndWhy(t *testing.T) {
	slow := func(move *v1alpha1.VolumeMove) { move.Status.Claims[0].Sent = 100 << 20 }
	const unknown = "no finished move of this namespace from home to west says how fast the way is"
	for name, row := range map[string]struct {
		limit string
		moves []v1alpha1.VolumeMove
		from  string
		says  string
	}{
		"nothing is known": {from: "home", says: "how long that takes is not known: " + unknown + ", and no --bandwidth-limit is given"},
		"there is no volume": {says: "how long that takes is not known: while the claim has no volume it is not known which way the data " +
			"takes, and no --bandwidth-limit is given"},
		"a limit is given": {from: "home", limit: "10Mi",
			says: "if all of that is sent it takes at least 17m, by that limit; how much longer is not known: " + unknown},
		"a move went the same way": {from: "home", moves: []v1alpha1.VolumeMove{moved("m", 0)},
			says: "if all of that is sent it takes about 102s: move m from home to west sent 100.0 MiB a second"},
		"the last one counts": {from: "home",
			moves: []v1alpha1.VolumeMove{moved("old", time.Hour), moved("new", 0, slow), moved("older", 2*time.Hour)},
			says:  "if all of that is sent it takes about 17m: move new from home to west sent 10.0 MiB a second"},
		"the limit is what holds it up": {from: "home", limit: "10Mi", moves: []v1alpha1.VolumeMove{moved("m", 0)},
			says: "if all of that is sent it takes about 17m, by that limit: move m from home to west sent more"},
		"the limit is higher": {from: "home", limit: "1Gi", moves: []v1alpha1.VolumeMove{moved("m", 0)},
			says: "if all of that is sent it takes about 102s: move m from home to west sent 100.0 MiB a second"},
		"moves that say nothing of the way": {from: "home",
			says: "how long that takes is not known: " + unknown + ", and no --bandwidth-limit is given",
			moves: []v1alpha1.VolumeMove{
				moved("back", 0, func(m *v1alpha1.VolumeMove) { m.Status.Claims[0].Source.Cluster = "west" }),
				moved("elsewhere", 0, func(m *v1alpha1.VolumeMove) { m.Status.Claims[0].Target.Cluster = "east" }),
				moved("stored", 0, func(m *v1alpha1.VolumeMove) { m.Status.Claims[0].Repository = "store" }),
				moved("little", 0, func(m *v1alpha1.VolumeMove) { m.Status.Claims[0].Sent = 1 << 20 }),
				moved("limited", 0, func(m *v1alpha1.VolumeMove) { m.Spec.BandwidthLimit = ptr.To(resource.MustParse("1Mi")) }),
				moved("copying", 0, func(m *v1alpha1.VolumeMove) { m.Status.Phases = m.Status.Phases[:1] }),
				moved("begun", 0, func(m *v1alpha1.VolumeMove) { m.Status = v1alpha1.VolumeMoveStatus{} }),
			}},
	} {
		t.Run(name, func(t *testing.T) {
			var limit *resource.Quantity
			if row.limit != "" {
				limit = ptr.To(resource.MustParse(row.limit))
			}
			assert.Equal(t, row.says, takes(10<<30, limit, row.moves, row.from, "west"))
		})
	}
}
