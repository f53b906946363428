package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func recordOf(move types.UID, phase v1alpha1.MovePhase, claims ...types.UID) *record.Record {
	r := &record.Record{UID: move, Name: string(move), Phase: phase}
	for _, uid := range claims {
		r.Claims = append(r.Claims, record.Claim{UID: uid})
	}
	return r
}

func TestAClaimBelongsToOneMoveAtATime(t *testing.T) {
	r := NewRegistry()
	assert.Nil(t, r.begin(recordOf("first", v1alpha1.MovePrepare, "a", "b")))
	assert.Equal(t, "first", r.begin(recordOf("second", v1alpha1.MovePrepare, "c", "b")).Name)
	assert.False(t, r.Holds("c"), "nothing is held of a move that does not begin")
	assert.Nil(t, r.begin(recordOf("first", v1alpha1.MovePrepare, "a", "b")), "it may be written again")
	assert.Nil(t, r.begin(recordOf("refused", v1alpha1.MoveFailed, "a")), "one that is over from the start holds nothing")

	r.set("first", recordOf("first", v1alpha1.MoveRetain, "a", "b"))
	assert.False(t, r.Holds("a"), "the claim can be used")
	assert.NotNil(t, r.begin(recordOf("third", v1alpha1.MovePrepare, "a")), "but its source is still kept")
	assert.Equal(t, []types.UID(nil), r.set("first", recordOf("first", v1alpha1.MoveDone, "a", "b")))
	assert.Nil(t, r.begin(recordOf("third", v1alpha1.MovePrepare, "a")))
	assert.Equal(t, []types.UID{"a"}, r.set("third", nil))
}
