// Package engine runs rsync at both ends of a move, over a connection that is not
// rsync's. The sender's rsync believes that it logs in to a host; the program it
// starts for that hands its pipes to the mover and waits. What the sender's rsync
// asks to be run at the other end is never sent: the receiver runs its own rsync
// with arguments that are fixed here, confined to the volume.
package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/blocks"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// Variant is one of the ways in which rsync is run.
type Variant string

// The variants.
const (
	// Live leaves large files, which others carry in place, alone: the application may
	// write to them.
	Live Variant = "live"
	// All deals with all files.
	All Variant = "all"
	// Redo copies listed files whatever their sizes and times say.
	Redo Variant = "redo"
	// Prune deletes and copies nothing: it makes room at a full target.
	Prune Variant = "prune"
)

// keeps are the options of every variant: all that a copy must keep.
// --modify-window=-1 compares times to the nanosecond: without it a change of the
// same size within the same second is not seen.
var keeps = append([]string{"-aHAXS", "--numeric-ids", "--modify-window=-1"}, attributes()...)

// attributes are filters of extended attributes. Others belong to the machine, as
// security.selinux does: a mover may neither set nor remove them. Without filters rsync
// would do both.
func attributes() (filters []string) {
	for _, kept := range tree.KeptXattrs() {
		if strings.HasSuffix(kept, ".") {
			kept += "**" // Names may have slashes.
		}
		filters = append(filters, "--filter=+x "+kept)
	}
	return append(filters, "--filter=-x **")
}

// foreign is what file systems put into their roots by themselves.
const foreign = "--exclude=/lost+found"

// maxSize is from which size on Live leaves files to package blocks.
var maxSize = fmt.Sprintf("--max-size=%d", blocks.LargeFrom-1)

// client are the arguments of the sender's rsync, without those that name places.
var client = map[Variant][]string{
	Live:  append(slices.Clone(keeps), "--delete", foreign, maxSize),
	All:   append(slices.Clone(keeps), "--delete", foreign),
	Redo:  append(slices.Clone(keeps), "--ignore-times", "--from0"),
	Prune: append(slices.Clone(keeps), "--delete-before", "--existing", "--ignore-existing", foreign),
}

// server are the arguments of the receiver's rsync: those that the sender's would give
// it, and the filters of attributes. A sender sends filters only where it deletes, and the
// receiver trusts none.
func server(variant Variant) []string {
	asked := asks[variant]
	return slices.Concat(asked[:2], attributes(), asked[2:])
}

// asks are the arguments that the sender's rsync would give to the receiver's; a test
// asks rsync whether they still are. The capabilities after "e." are those of rsync 3.2
// and newer.
var asks = map[Variant][]string{
	Live:  {"--server", "-lHogDtpAXrSe.iLsfxCIvu", maxSize, "--delete", "-@-1", "--numeric-ids", ".", "."},
	All:   {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete", "-@-1", "--numeric-ids", ".", "."},
	Redo:  {"--server", "-lHogDtpAXIRSe.LsfxCIvu", "-@-1", "--numeric-ids", ".", "."},
	Prune: {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete-before", "-@-1", "--numeric-ids", "--ignore-existing", "--existing", ".", "."},
}
