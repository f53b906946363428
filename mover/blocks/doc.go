// Package blocks carries large files: only the parts that differ, written in place,
// so that it costs what changed and not what there is. It deals with names, sizes,
// contents, owners, modes and modification times; attributes are left to rsync, which
// then finds size and time equal and reads no content. What is as it should be is not
// touched in the last pass: a new change time has a file read again.
//
// The receiver opens each name below the volume's root with openat2, which follows
// no symbolic link, leaves no mount and does not climb: whatever a sender asks for,
// nothing outside the volume is touched.
package blocks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// LargeFrom is from how many bytes on a file is carried by this package.
const LargeFrom = tree.LargeFrom

// chunk is how much content one message carries at most.
const chunk = 256 << 10

// hole is the unit in which zeros become holes.
const hole = 32 << 10

// The kinds of messages; each is the first byte of a payload.
const (
	messageFile  = 'F' // header follows, as JSON: the file that the next messages are about
	messageBytes = 'B' // offset, content
	messageZeros = 'Z' // offset, length
	messageDone  = 'C' // the file has its size and its time
	messageLink  = 'L' // header: Path becomes another name of Target
)

// header says which file the next messages are about. Paths are bytes.
type header struct {
	Path   []byte `json:"path"`
	Target []byte `json:"target,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Names is how many names the source's file has.
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

// at encodes a message about a place in a file.
func at(kind byte, offset int64, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{kind}, uint64(offset)), rest...)
}
