package tree

import "github.com/lodestone-storage/lodestone/mover/sandbox"

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
