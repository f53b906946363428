package replicate

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// enough is how many bytes a move must have sent, in how long, so that it says something of the way.
const (
	enough     = 16 << 20
	longEnough = time.Second
)

// takes says how long the first copy takes of so many bytes, if all are sent, as far as there is a ground for it: the limit, and the last
// move between the two clusters. from is empty while the claims have no volume.
func takes(size int64, limit *resource.Quantity, moves []v1alpha1.VolumeMove, from, to string) string {
	at := func(rate int64) string {
		return duration.HumanDuration(time.Duration(float64(size) / float64(max(rate, 1)) * float64(time.Second)))
	}
	move, rate := lastBetween(moves, from, to)
	switch {
	case move != nil && (limit == nil || rate < limit.Value()):
		return fmt.Sprintf("if all of that is sent it takes about %s: move %s from %s to %s sent %s a second", at(rate), move.Name, from, to,
			sentence.Size(rate))
	case move != nil:
		return fmt.Sprintf("if all of that is sent it takes about %s, by that limit: move %s from %s to %s sent more", at(limit.Value()),
			move.Name, from, to)
	}
	unknown := fmt.Sprintf("no finished move of this namespace from %s to %s says how fast the way is", from, to)
	if from == "" {
		unknown = "while the claim has no volume it is not known which way the data takes"
	}
	if limit != nil {
		return fmt.Sprintf("if all of that is sent it takes at least %s, by that limit; how much longer is not known: %s", at(limit.Value()),
			unknown)
	}
	return fmt.Sprintf("how long that takes is not known: %s, and no --bandwidth-limit is given", unknown)
}

// lastBetween returns the move that was the last to send data between two clusters from mover to mover, as fast as it could, and how many
// bytes a second that were; nil if none is known.
func lastBetween(moves []v1alpha1.VolumeMove, from, to string) (last *v1alpha1.VolumeMove, rate int64) {
	var ended time.Time
	for i := range moves {
		move := &moves[i]
		sent, took, end := sentBy(move, from, to)
		if sent >= enough && took >= longEnough && move.Spec.BandwidthLimit == nil && end.After(ended) {
			last, rate, ended = move, int64(float64(sent)/took.Seconds()), end
		}
	}
	return last, rate
}

// sentBy returns how many bytes a move has sent between two clusters, in how long, and when it was done with that. What was sent while
// its pods were stopped counts, too, but for the time, which is short beside it.
func sentBy(move *v1alpha1.VolumeMove, from, to string) (sent int64, took time.Duration, end time.Time) {
	for _, claim := range move.Status.Claims {
		if claim.Source == nil || claim.Target == nil || claim.Source.Cluster != from || claim.Target.Cluster != to || claim.Repository != "" {
			return 0, 0, time.Time{}
		}
		sent += claim.Sent
	}
	var began time.Time
	for _, phase := range move.Status.Phases {
		switch phase.Phase {
		case v1alpha1.MovePreCopy:
			began = phase.Since.Time
		case v1alpha1.MoveQuiesce:
			end = phase.Since.Time
		default:
		}
	}
	if began.IsZero() || end.IsZero() {
		return 0, 0, time.Time{}
	}
	return sent, end.Sub(began), end
}
