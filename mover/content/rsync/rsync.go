// Package rsync runs rsync at both ends of a move, over the movers' connection: Source.Send at the
// sender, Target.Receive at the receiver. rsync.go has the variants and their arguments; read it
// first. The sender's rsync starts this program as its remote shell (Shell), which passes its pipes
// to the mover and waits. The command that the sender's rsync wants to run at the other end is
// never sent: the receiver runs its own rsync with arguments that are fixed here, confined to the
// volume.
package rsync

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// program returns the path of rsync.
func program() string {
	if path, err := exec.LookPath("rsync"); err == nil {
		return path
	}
	return "/usr/bin/rsync"
}

// environment returns rsync's environment: nothing of the mover's own.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "GOMAXPROCS=1"}
}

// Installed returns an error unless rsync is installed.
func Installed() error {
	if _, err := os.Stat(program()); err != nil {
		return fmt.Errorf("rsync is not installed beside the mover: %w", err)
	}
	return nil
}

// Variant is one of the ways in which rsync is run.
type Variant string

// The variants.
const (
	// Live skips large files, which package blocks copies in place: the application may write to
	// them.
	Live Variant = "live"
	// All copies all files.
	All Variant = "all"
	// Redo copies listed files whatever their sizes and times are.
	Redo Variant = "redo"
	// Prune only deletes: it makes room at a full target.
	Prune Variant = "prune"
)

// keepOptions are the options of every variant: they keep all that a copy must have.
// --modify-window=-1 compares times to the nanosecond: without it a change within one second that
// keeps the size is missed.
var keepOptions = append([]string{"-aHAXS", "--numeric-ids", "--modify-window=-1"}, xattrFilters()...)

// xattrFilters are filters of extended attributes. Attributes such as security.selinux belong to
// the machine: a mover must neither set nor remove them. Without filters rsync would do both.
func xattrFilters() (filters []string) {
	for _, kept := range tree.KeptXattrs() {
		if strings.HasSuffix(kept, ".") {
			kept += "**" // Names may have slashes.
		}
		filters = append(filters, "--filter=+x "+kept)
	}
	return append(filters, "--filter=-x **")
}

// excludeLostFound excludes the directory that file systems create in their roots.
const excludeLostFound = "--exclude=/lost+found"

// maxSizeOption limits Live to files smaller than those that package blocks copies.
var maxSizeOption = fmt.Sprintf("--max-size=%d", blocks.LargeFrom-1)

// senderArguments are the arguments of the sender's rsync, without the paths.
var senderArguments = map[Variant][]string{
	Live:  append(slices.Clone(keepOptions), "--delete", excludeLostFound, maxSizeOption),
	All:   append(slices.Clone(keepOptions), "--delete", excludeLostFound),
	Redo:  append(slices.Clone(keepOptions), "--ignore-times", "--from0"),
	Prune: append(slices.Clone(keepOptions), "--delete-before", "--existing", "--ignore-existing", excludeLostFound),
}

// receiverArguments returns the arguments of the receiver's rsync: those that the sender's rsync
// would request, and the filters of attributes. A sender sends filters only if it deletes, and the
// receiver trusts none.
func receiverArguments(variant Variant) []string {
	arguments := serverArguments[variant]
	return slices.Concat(arguments[:2], xattrFilters(), arguments[2:])
}

// serverArguments are the arguments that the sender's rsync would request for the receiver's; a
// test asks rsync whether they still are. The capabilities after "e." are those of rsync 3.2 and
// newer.
var serverArguments = map[Variant][]string{
	Live:  {"--server", "-lHogDtpAXrSe.iLsfxCIvu", maxSizeOption, "--delete", "-@-1", "--numeric-ids", ".", "."},
	All:   {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete", "-@-1", "--numeric-ids", ".", "."},
	Redo:  {"--server", "-lHogDtpAXIRSe.LsfxCIvu", "-@-1", "--numeric-ids", ".", "."},
	Prune: {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete-before", "-@-1", "--numeric-ids", "--ignore-existing", "--existing", ".", "."},
}

// ErrNoSpace means that the target has no room left.
var ErrNoSpace = errors.New("the target volume is full")

// Outcome is how a run of rsync ended at one end.
type Outcome struct {
	// Code is rsync's exit status; -1 if it was killed.
	Code int `json:"code"`
	// Complaints is what it wrote to its standard error, in one line.
	Complaints string `json:"complaints,omitempty"`
}

// Exit statuses of rsync that the mover handles differently.
const (
	someNotCopied = 23
	someVanished  = 24
)

// outcomeError makes one error of both ends' outcomes, or none. Live runs may skip files that
// changed or vanished meanwhile; the next run sees them.
func outcomeError(variant Variant, here, there Outcome) error {
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

// onlyVanished reports whether all of a sender's complaints are about files that changed while it
// read them.
func onlyVanished(complaints string) bool {
	for line := range strings.SplitSeq(complaints, "; ") {
		if !strings.Contains(line, "No such file or directory (2)") && !strings.Contains(line, "vanished") &&
			!strings.HasPrefix(line, "rsync error: some files") {
			return false
		}
	}
	return complaints != ""
}
