package engine

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoSpace means that the target has no room left.
var ErrNoSpace = errors.New("the target volume is full")

// Outcome is how a run of rsync ended at one end.
type Outcome struct {
	// Code is rsync's exit status; -1 if it was killed.
	Code int `json:"code"`
	// Complaints are what it said to its standard error, in one line.
	Complaints string `json:"complaints,omitempty"`
}

// Exit statuses of rsync that the mover tells apart.
const (
	someNotCopied = 23
	someVanished  = 24
)

// judge makes one error of both ends' outcomes, or none. Live runs may leave files
// behind that changed or vanished meanwhile; the next run sees them.
func judge(variant Variant, here, there Outcome) error {
	complaints := here.Complaints
	if complaints == "" {
		complaints = there.Complaints
	}
	both := here.Complaints + " " + there.Complaints
	if strings.Contains(both, "No space left on device") || strings.Contains(both, "Disk quota exceeded") {
		return fmt.Errorf("%w: %s", ErrNoSpace, complaints)
	}
	code := here.Code
	if code == 0 {
		code = there.Code
	}
	switch {
	case code == 0, code == someVanished && variant != All:
		return nil
	case code == someNotCopied && (variant == Live || variant == Redo) && onlyVanished(here.Complaints) && there.Complaints == "":
		return nil
	case complaints == "":
		complaints = "it gave no reason"
	}
	return fmt.Errorf("rsync ended with status %d: %s", code, complaints)
}

// onlyVanished says whether a sender's complaints are all about files that changed
// under it.
func onlyVanished(complaints string) bool {
	for line := range strings.SplitSeq(complaints, "; ") {
		if !strings.Contains(line, "No such file or directory (2)") && !strings.Contains(line, "vanished") &&
			!strings.HasPrefix(line, "rsync error: some files") {
			return false
		}
	}
	return complaints != ""
}
