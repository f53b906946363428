package decide

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// AwaitsTurn says whether a move that has no record has to wait for its turn. One that nobody
// wants any more has nothing to wait for.
func AwaitsTurn(move *v1alpha1.VolumeMove) bool {
	return move.DeletionTimestamp == nil && !IsAborted(move) && !IsFinished(move)
}

// IsFinished says whether the status of a move says that it is over. Users cannot write it.
func IsFinished(move *v1alpha1.VolumeMove) bool {
	return meta.IsStatusConditionTrue(move.Status.Conditions, v1alpha1.MoveFinished)
}

// IsAborted says whether a move that is not committed is to end.
func IsAborted(move *v1alpha1.VolumeMove) bool {
	return move.Spec.Action == v1alpha1.ActionAbort || move.Spec.Action == v1alpha1.ActionGiveUp
}
