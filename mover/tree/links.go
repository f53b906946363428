package tree

import (
	"errors"
	"fmt"
	"io"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

// pathHash identifies a path where only equality matters.
type pathHash [16]byte

func hashPath(path string) (h pathHash) {
	full := hashOf([]byte(path))
	copy(h[:], full[:])
	return h
}

// link says that an entry has the same inode as an earlier one, the leader of the group.
type link struct {
	ordinal, leader uint64
	leaderPath      pathHash
}

const (
	// linkLength is the length of a link in a manifest: ordinal, leader, hash of its path.
	linkLength = 8 + 8 + 16
	// candidateLength is the length of an entry with several names during the search for groups:
	// inode, ordinal, hash of the path, size, allocated bytes.
	candidateLength = 8 + 8 + 16 + 8 + 8
	// sortMemory is the memory of each of the two sorts of links.
	sortMemory = 4 << 20
)

// linker finds the entries that are names of one inode, without a table of inodes.
type linker struct {
	candidates *sorter
	scratch    string
	budget     *sandbox.ScratchBudget
}

func newLinker(o *Options) *linker {
	return &linker{candidates: newSorter(o.Scratch, o.Budget, sortMemory), scratch: o.Scratch, budget: o.Budget}
}

// add adds an entry; one with a single name is ignored.
func (l *linker) add(e *Entry) error {
	if e.Links < 2 || e.Type == Directory {
		return nil
	}
	b := make([]byte, 0, candidateLength)
	b = big.AppendUint64(b, e.Inode)
	b = big.AppendUint64(b, e.Ordinal)
	hash := hashPath(e.Path)
	b = append(b, hash[:]...)
	b = big.AppendUint64(b, e.Size)
	b = big.AppendUint64(b, e.Allocated)
	return l.candidates.add(b)
}

// finish writes the links by rising ordinals, and subtracts from the sums what was counted for each
// name but exists once.
func (l *linker) finish(w *writer, s *Summary) error {
	defer l.candidates.close()
	links := newSorter(l.scratch, l.budget, sortMemory)
	defer links.close()
	var inode uint64
	var leader link
	first := true
	for c, err := range l.candidates.sorted() {
		if err != nil {
			return err
		}
		ordinal := big.Uint64(c[8:])
		if first || big.Uint64(c) != inode {
			first, inode = false, big.Uint64(c)
			leader = link{leader: ordinal, leaderPath: pathHash(c[16:32])}
			continue
		}
		b := make([]byte, 0, linkLength)
		b = big.AppendUint64(b, ordinal)
		b = big.AppendUint64(b, leader.leader)
		b = append(b, leader.leaderPath[:]...)
		if err := links.add(b); err != nil {
			return err
		}
		s.Inodes--
		s.Bytes -= big.Uint64(c[32:])
		s.Allocated -= big.Uint64(c[40:])
	}
	for b, err := range links.sorted() {
		if err != nil {
			return err
		}
		if err := w.link(decodeLink(b)); err != nil {
			return err
		}
	}
	return nil
}

func decodeLink(b []byte) link {
	return link{ordinal: big.Uint64(b), leader: big.Uint64(b[8:]), leaderPath: pathHash(b[16:linkLength])}
}

// linkReader reads the links of a manifest beside its entries.
type linkReader struct {
	records *recordReader
	end     int64
	// left is how many links are still to come, as the summary says.
	left  uint64
	ahead link
	done  bool
}

func (m *Manifest) links() (*linkReader, error) {
	r := &linkReader{records: m.reader(m.firstLink), end: m.end, left: m.summary.LinkMembers}
	return r, r.advance()
}

func (r *linkReader) advance() error {
	if r.records.at >= r.end {
		r.done = true
		if r.left > 0 {
			return fmt.Errorf("read a manifest: %d hard links are missing", r.left)
		}
		return nil
	}
	kind, payload, err := r.records.record()
	if err != nil {
		return fmt.Errorf("read links: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	if kind != recordLinks || len(payload) != linkLength {
		return errors.New("read a manifest: links are not where they should be")
	}
	if r.left == 0 {
		return errors.New("read a manifest: it has more hard links than it says")
	}
	r.left--
	r.ahead = decodeLink(payload)
	return nil
}

// of returns the hash of the path that the entry is a hard link of; the zero value means none. It
// must be called by rising ordinals.
func (r *linkReader) of(e *Entry) (pathHash, error) {
	for !r.done && r.ahead.ordinal < e.Ordinal {
		if err := r.advance(); err != nil {
			return pathHash{}, err
		}
	}
	if r.done || r.ahead.ordinal != e.Ordinal {
		return pathHash{}, nil
	}
	return r.ahead.leaderPath, nil
}
