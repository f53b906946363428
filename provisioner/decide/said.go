package decide

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// askAfter is how long a backing claim may wait before its events are read.
	askAfter = 10 * time.Second
	// maxWords bounds, in bytes, what is quoted of an event.
	maxWords = 512
)

// Said is what the events of a backing claim that waits said last against it. It is
// another program's word, in a remote cluster anybody's: it is quoted to the user
// and nothing is concluded from it.
type Said struct {
	// Backing is the claim it was said of.
	Backing types.UID
	// Reason and Message are empty for nothing.
	Reason, Message string
	// Again is when to ask again. No watch tells: each would be one more for every
	// claim that waits.
	Again time.Time
}

// asked turns the step of a claim that waits for its backing claim since some time
// into one that reads its events, when it is time for that; otherwise the step ends
// when it will be.
func asked(o Observation, b Backing, since time.Time, step Step) Step {
	if b.Claim.Status.Phase == corev1.ClaimBound {
		// Only its volume is not seen yet.
		return step
	}
	left := askAfter - o.Now.Sub(since)
	if said := saidOf(o, b.Claim); said != nil {
		left = said.Again.Sub(o.Now)
	}
	if left <= 0 {
		return Step{Verb: Ask, Cluster: b.Cluster, Backing: b, Trouble: step.Trouble, Shows: step.Shows, Tell: step.Tell}
	}
	if step.After == 0 || left < step.After {
		step.After = left + time.Millisecond
	}
	return step
}

func saidOf(o Observation, b *corev1.PersistentVolumeClaim) *Said {
	if o.Said == nil || o.Said.Backing != b.UID {
		return nil
	}
	return o.Said
}

// words quotes what was said last against a backing claim; empty for nothing.
func words(o Observation, b Backing) string {
	said := saidOf(o, b.Claim)
	if said == nil || said.Reason == "" && said.Message == "" {
		return ""
	}
	reason := "an event there"
	if isWord(said.Reason) {
		reason = said.Reason
	}
	message := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, said.Message)
	// Nothing in it can end the quotation, or be invisible.
	return fmt.Sprintf("%s says %s", reason, strconv.Quote(cut(message, maxWords)))
}

// isWord says whether a text is what Kubernetes takes as the reason of an event.
func isWord(s string) bool {
	for _, r := range s {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
