package tree

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

const (
	// namesMemory is how much memory the names of one directory may take before they are sorted on
	// disk. It falls with the number of nested open directories, which all have names in memory.
	namesMemory = 8 << 20
	// minNamesMemory is how much each may take however many are open.
	minNamesMemory = 64 << 10
)

// nameSorter sorts names of directories. Several may be open, one in another; held is the memory
// that they take together.
type nameSorter struct {
	scratch string
	budget  *sandbox.ScratchBudget
	memory  int
}

// name is one name in a directory, with the type that the directory records (DT_*).
type name struct {
	name string
	kind byte
}

// sorted reads a whole directory and returns its names in canonical order.
func (n *nameSorter) sorted(d *dir) iter.Seq2[name, error] {
	return func(yield func(name, error) bool) {
		s := newSorter(n.scratch, n.budget, max(namesMemory-n.memory, minNamesMemory))
		defer s.close()
		for entry, err := range names(d) {
			if err == nil {
				err = s.add(entry)
			}
			if err != nil {
				yield(name{}, err)
				return
			}
		}
		held := s.memory()
		n.memory += held
		defer func() { n.memory -= held }()
		for record, err := range s.sorted() {
			if err != nil {
				yield(name{}, err)
				return
			}
			// The type follows the name after a NUL, which no name contains and which sorts before
			// every other byte.
			text := string(record)
			end := strings.IndexByte(text, 0)
			if !yield(name{name: text[:end], kind: text[len(text)-1]}, nil) {
				return
			}
		}
	}
}

// sorter sorts any number of records with limited memory: what does not fit is written to a scratch
// file in sorted runs, which are merged at the end.
type sorter struct {
	scratch string
	budget  *sandbox.ScratchBudget
	limit   int
	// arena has the bytes of the records in memory, one after another; both are reused after the
	// records were spilled.
	arena   []byte
	records []span
	file    *os.File
	out     *bufio.Writer
	written int64
	runs    []run
}

// run is a sorted part of the scratch file.
type run struct{ start, end int64 }

// span is the position of a record in the arena.
type span struct{ start, end uint32 }

// overhead is the memory of a record besides its bytes.
const overhead = 8

// newSorter returns a sorter that uses about limit bytes of memory. It creates a file in the
// scratch directory when it needs one.
func newSorter(folder string, budget *sandbox.ScratchBudget, limit int) *sorter {
	return &sorter{scratch: folder, budget: budget, limit: limit}
}

// add adds a copy of a record.
func (s *sorter) add(record []byte) error {
	start := len(s.arena)
	s.arena = append(s.arena, record...)
	s.records = append(s.records, span{uint32(start), uint32(len(s.arena))})
	if s.memory() < s.limit {
		return nil
	}
	return s.spill()
}

// memory returns how much memory the records take.
func (s *sorter) memory() int { return len(s.arena) + overhead*len(s.records) }

func (s *sorter) at(p span) []byte { return s.arena[p.start:p.end] }

// sort sorts the records in memory.
func (s *sorter) sort() {
	slices.SortFunc(s.records, func(a, b span) int { return bytes.Compare(s.at(a), s.at(b)) })
}

func (s *sorter) spill() error {
	if s.file == nil {
		file, err := os.CreateTemp(s.scratch, "sort-*")
		if err != nil {
			return fmt.Errorf("make a scratch file: %w", err)
		}
		// The file needs no name: it vanishes with the process.
		if err := os.Remove(file.Name()); err != nil {
			return errors.Join(fmt.Errorf("unlink a scratch file: %w", err), file.Close())
		}
		s.file, s.out = file, bufio.NewWriterSize(file, 64<<10)
	}
	s.sort()
	start := s.written
	for _, p := range s.records {
		record := s.at(p)
		var head [4]byte
		length := len(head) + len(record)
		if err := s.budget.Reserve(uint64(length)); err != nil {
			return err
		}
		big.PutUint32(head[:], uint32(len(record)))
		_, _ = s.out.Write(head[:])
		_, _ = s.out.Write(record)
		s.written += int64(length)
	}
	// A bufio.Writer keeps its first error.
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write a scratch file: %w", err)
	}
	s.runs = append(s.runs, run{start, s.written})
	s.records, s.arena = s.records[:0], s.arena[:0]
	return nil
}

// sorted returns all records in order, and ends with an error if one cannot be read. A record is
// valid until the next one. Nothing may be added afterwards.
func (s *sorter) sorted() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if len(s.runs) == 0 {
			s.sort()
			for _, p := range s.records {
				if !yield(s.at(p), nil) {
					return
				}
			}
			return
		}
		if err := s.merge(yield); err != nil {
			yield(nil, fmt.Errorf("read a scratch file: %w", err))
		}
	}
}

func (s *sorter) merge(yield func([]byte, error) bool) error {
	if len(s.records) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.records, s.arena = nil, nil
	var cursors cursors
	for _, r := range s.runs {
		c := &cursor{in: bufio.NewReaderSize(io.NewSectionReader(s.file, r.start, r.end-r.start), 8<<10)}
		if err := c.next(); err != nil {
			return err
		}
		cursors = append(cursors, c)
	}
	heap.Init(&cursors)
	for len(cursors) > 0 {
		first := cursors[0]
		if !yield(first.record, nil) {
			return nil
		}
		switch err := first.next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&cursors)
		case err != nil:
			return err
		default:
			heap.Fix(&cursors, 0)
		}
	}
	return nil
}

// close closes the scratch file.
func (s *sorter) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
		s.budget.Release(uint64(s.written))
	}
}

// cursor reads one run.
type cursor struct {
	in     *bufio.Reader
	record []byte
}

func (c *cursor) next() error {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	n := int(big.Uint32(head[:]))
	if cap(c.record) < n {
		c.record = make([]byte, n)
	}
	c.record = c.record[:n]
	if _, err := io.ReadFull(c.in, c.record); err != nil {
		return fmt.Errorf("a run ends early: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// cursors is a heap: the cursor with the lowest record comes first.
type cursors []*cursor

func (c cursors) Len() int { return len(c) }

func (c cursors) Less(i, j int) bool { return bytes.Compare(c[i].record, c[j].record) < 0 }

func (c cursors) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
