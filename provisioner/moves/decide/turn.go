package decide

import (
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// AwaitsTurn says whether a move that has no record has to wait for its turn. One that nobody
// wants any more has nothing to wait for.
func AwaitsTurn(move *v1alpha1.VolumeMove) bool {
	return move.DeletionTimestamp == nil && !IsAborted(move)
}

// IsAborted says whether a move that is not committed is to end.
func IsAborted(move *v1alpha1.VolumeMove) bool {
	return move.Spec.Action == v1alpha1.ActionAbort || move.Spec.Action == v1alpha1.ActionGiveUp
}
