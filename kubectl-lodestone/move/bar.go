package move

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// sums are the numbers of all claims of a move.
type sums struct{ bytes, total, files, filesTotal, rate int64 }

func sumOf(status v1alpha1.VolumeMoveStatus) (s sums) {
	for _, claim := range status.Claims {
		s.bytes += claim.Bytes
		s.total += claim.BytesTotal
		s.files += claim.Files
		s.filesTotal += claim.FilesTotal
		s.rate += claim.Rate
	}
	return s
}

// line says in one line how far a move is.
func line(move *v1alpha1.VolumeMove) string {
	status := move.Status
	phase := string(status.Phase)
	if phase == "" {
		if status.Message != "" {
			return status.Message
		}
		return "waiting for the provisioner to take the move up"
	}
	pass := int32(0)
	for _, claim := range status.Claims {
		pass = max(pass, claim.Pass)
	}
	s := sumOf(status)
	switch {
	case status.Phase == v1alpha1.MovePreCopy && pass > 0:
		phase = fmt.Sprintf("%s, pass %d", phase, pass)
		fallthrough
	case status.Phase == v1alpha1.MoveFinalSync || status.Phase == v1alpha1.MoveVerifying:
		if s.total > 0 {
			return fmt.Sprintf("%-15s %s%s", phase, amount(s), way(status))
		}
	}
	if status.Message != "" {
		return fmt.Sprintf("%-15s %s", phase, status.Message)
	}
	return phase
}

// amount shows a bar, what is done of what, how fast, and the time left.
func amount(s sums) string {
	done := min(max(float64(s.bytes)/float64(s.total), 0), 1)
	const width = 24
	full := int(done * width)
	text := fmt.Sprintf("[%s%s] %3.0f %%  %s of %s", strings.Repeat("#", full), strings.Repeat(".", width-full), done*100, size(s.bytes), size(s.total))
	if s.rate > 0 {
		text += fmt.Sprintf("  %s/s", size(s.rate))
		if left := time.Duration(float64(s.total-s.bytes) / float64(s.rate) * float64(time.Second)); left > 0 {
			text += fmt.Sprintf("  %s left", left.Round(time.Second))
		}
	}
	return text
}

// size writes a number of bytes for people.
func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, names := float64(bytes)/unit, []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %s", value, names[0])
}

// end is how a move stands for who waits for it.
type end int

const (
	going end = iota
	moved
	refused
	failed
	checked
)

// ended says whether there is something to wait for, and if not why, in a sentence.
func ended(move *v1alpha1.VolumeMove) (end, string) {
	status := move.Status
	accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.MoveAccepted)
	switch {
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.MoveCommitted) &&
		oneOf(status.Phase, v1alpha1.MoveRetain, v1alpha1.MoveFinalize, v1alpha1.MoveDone):
		return moved, ""
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		return refused, accepted.Message
	case status.Phase == v1alpha1.MoveChecked:
		return checked, status.Message
	case oneOf(status.Phase, v1alpha1.MoveFailed, v1alpha1.MoveAborted):
		return failed, status.Message
	}
	return going, ""
}

// isThere says whether a move was refused because there is nothing to move.
func isThere(move *v1alpha1.VolumeMove) bool {
	accepted := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.MoveAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.Reason == v1alpha1.MoveAlreadyThere
}

// report says what a move that is done has come to.
func report(move *v1alpha1.VolumeMove) string {
	status := move.Status
	text := strings.Join(move.Spec.Claims, ", ")
	if status.Target != nil {
		text += " now in cluster " + status.Target.Cluster
	}
	if status.Downtime != nil {
		text += fmt.Sprintf("; pods could not use it for %s", status.Downtime.Round(10*time.Millisecond))
	}
	if status.Phase == v1alpha1.MoveRetain && move.Spec.KeepSourceFor != nil {
		text += fmt.Sprintf("; the copy at the source is kept for %s (kubectl lodestone move finalize %s -n %s removes it now)",
			move.Spec.KeepSourceFor.Duration, move.Name, move.Namespace)
	}
	return text
}
