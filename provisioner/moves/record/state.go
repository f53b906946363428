package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Over says whether the move is finished.
func (r *Record) Over() bool {
	return r.Phase == v1alpha1.MoveDone || r.Phase == v1alpha1.MoveAborted || r.Phase == v1alpha1.MoveFailed || r.Phase == v1alpha1.MoveChecked
}

// Holds says whether no other program part may change the claims, their volumes or their
// backing claims.
func (r *Record) Holds() bool {
	return r.Phase == v1alpha1.MoveRollBack && !r.Freed || Before(r.Phase, v1alpha1.MoveRetain)
}

// Busy says whether no other move may begin with the claims.
func (r *Record) Busy() bool { return !r.Over() && !r.Freed }

// WasCommitted says whether the move has been in Commit, which changes the marks of the
// backing claims at both ends.
func (r *Record) WasCommitted() bool { return !r.Began[v1alpha1.MoveCommit].IsZero() }

// GaveUp says whether an end was given up.
func (r *Record) GaveUp(end End) bool { return slices.Contains(r.GivenUp, end) }

// ClusterOf is the cluster of an end: all claims of a move have the same.
func (r *Record) ClusterOf(end End) string { return r.Claims[0].At(end).Ref.Cluster }

// LeftBehind describes what the move has left at the ends that were given up; empty if none
// was.
func (r *Record) LeftBehind() string {
	var said []string
	for _, end := range r.GivenUp {
		var left []string
		for i := range r.Claims {
			ref := r.Claims[i].At(end).Ref
			mover := fmt.Sprintf("the ShadowPod and the Secret %s/%s", ref.Namespace, r.MoverName(i, end))
			if end == Target || r.Phase == v1alpha1.MoveFinalize || r.Phase == v1alpha1.MoveDone {
				left = append(left, "real claim "+ref.Key().String())
			}
			left = append(left, mover)
			if end == Source && r.Claims[i].Snapshot.MayExist() {
				// They have the name of the snapshot's mover.
				left = append(left, fmt.Sprintf("the VolumeSnapshot, the claim, the ShadowPod and the Secret %s/%s", ref.Namespace,
					r.MoverName(i, Snapped)))
			}
		}
		said = append(said, fmt.Sprintf("cluster %s was given up; if it comes back, remove by hand what is there of the move: %s",
			r.Claims[0].At(end).Ref.Cluster, strings.Join(left, ", ")))
	}
	return strings.Join(said, "; ")
}

// KeptVolumes describes the real volumes that are kept with their data although the move
// has deleted their claims; empty if there is none.
func (r *Record) KeptVolumes() string {
	var said []string
	for i := range r.Claims {
		ends := Ends
		if r.Claims[i].Snapshot != nil {
			ends = append([]End{Snapped}, ends...)
		}
		for _, end := range ends {
			if copied := r.Claims[i].At(end); copied.Stays != "" && !r.GaveUp(end) {
				said = append(said, fmt.Sprintf("%s in cluster %s (claim %s, %s)", copied.Stays, copied.Ref.Cluster, r.Claims[i].Name, end))
			}
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "what the reclaim policy Retain keeps stays with its data, for an administrator to remove: real volume " +
		strings.Join(said, ", real volume ")
}
