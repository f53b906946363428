// Package blocks copies large files: it sends only the parts that differ and writes them in place,
// so that the cost depends on the change and not on the size. Sender reads a list of changes and
// makes messages, Receiver applies them; this file has their format. Where only some blocks of a file
// differ, the sender asks for the hashes of their pages first, and sends the pages that differ. It handles names, sizes,
// contents, owners, modes and modification times; extended attributes are left to rsync, which then
// finds size and time equal and reads no content. The last pass changes nothing on files that are
// as they should be: a file with a new change time is read again.
//
// The receiver opens each name below the volume's root with openat2, which follows no symbolic
// link, leaves no mount and does not climb: whatever a sender asks for, nothing outside the volume
// is changed.
package blocks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// LargeFrom is the size in bytes from which on this package copies a file.
const LargeFrom = tree.LargeFrom

// maxChunk is the most content in one message, in bytes.
const maxChunk = 256 << 10

// A page is what databases write at random. pageHash is how many bytes of its BLAKE3 hash the receiver
// answers with: a page that is taken for equal by mistake would be found by Verify.
const (
	pageSize = 4 << 10
	pageHash = 16
)

// rewritten is the length from which on a part that differs is sent without asking: most of its pages
// differ. maxPages is the most pages of one question; the answer has to fit in a message.
const (
	rewritten = 1 << 20
	maxPages  = 8 << 10
)

// holeUnit is the unit, in bytes, in which zeros become holes.
const holeUnit = 32 << 10

// The kinds of messages; each is the first byte of a payload.
const (
	messageFile  = 'F' // header follows, as JSON: the file that the next messages are about
	messageBytes = 'B' // offset, content
	messageZeros = 'Z' // offset, length
	messageAsk   = 'A' // offset and length of 4 bytes, of each part; the answer has a hash of each page in them
	messageDone  = 'C' // the file is complete: set its size and time
	messageLink  = 'L' // header: Path becomes another name of Target
)

// header says which file the next messages are about. Paths are bytes.
type header struct {
	Path   []byte `json:"path"`
	Target []byte `json:"target,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Names is how many names the file has at the source.
	Names uint32 `json:"names,omitempty"`
	// Mode has the lower 12 bits.
	Mode uint32 `json:"mode,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
	Sec  int64  `json:"sec,omitempty"`
	Nsec uint32 `json:"nsec,omitempty"`
}

func encode(kind byte, h header) ([]byte, error) {
	encoded, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode a file's header: %w", err)
	}
	return append([]byte{kind}, encoded...), nil
}

// pagesOf is how many pages so many bytes have.
func pagesOf(length uint64) int { return int((length + pageSize - 1) / pageSize) }

func appendHash(hashes, page []byte) []byte {
	hash := blake3.Sum256(page)
	return append(hashes, hash[:pageHash]...)
}

// positioned encodes a message about an offset in a file.
func positioned(kind byte, offset int64, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{kind}, uint64(offset)), rest...)
}
