package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestTheEndOfAMoveSaysWhatStays(t *testing.T) {
	says := func(phase v1alpha1.MovePhase, change func(*record.Record)) string {
		r := recordIn(phase)
		r.Why = "the move was aborted"
		change(r)
		return statusOf(decide.Observation{Move: &v1alpha1.VolumeMove{}, Record: r}, decide.Step{}).Message
	}
	const kept = "what the reclaim policy Retain keeps stays with its data, for an administrator to remove: real volume "
	at := "the claims have their volumes at the target"
	nothing := func(*record.Record) {}
	stays := func(r *record.Record) { r.Claims[0].Source.Stays = "pv-1" }
	assert.Equal(t, at+", and the copy at the source is gone", says(v1alpha1.MoveDone, nothing))
	assert.Equal(t, at+"; "+kept+"pv-1 in cluster home (claim data, source)", says(v1alpha1.MoveDone, stays))
	assert.NotContains(t, says(v1alpha1.MoveDone, func(r *record.Record) {
		stays(r)
		r.GivenUp = []record.End{record.Source}
	}), kept, "nothing was removed there")
	assert.Equal(t, "the move was aborted", says(v1alpha1.MoveAborted, nothing))
	assert.Equal(t, "the move was aborted; "+kept+"pv-3 in cluster home (claim data, snapshot), real volume pv-2 in cluster west (claim data, target)",
		says(v1alpha1.MoveAborted, func(r *record.Record) {
			r.Claims[0].Target.Stays = "pv-2"
			r.Claims[0].Snapshot = &record.Snapshot{Copy: record.Copy{Ref: r.Claims[0].Source.Ref, Stays: "pv-3"}}
		}))
}
