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
)

// sorter sorts any number of records with bounded memory: what does not fit is
// written to a scratch file in sorted runs, which are merged at the end.
type sorter struct {
	scratch string
	limit   int
	records [][]byte
	held    int
	file    *os.File
	out     *bufio.Writer
	at      int64
	runs    []run
}

// run is a sorted part of the scratch file.
type run struct{ start, end int64 }

// overhead is about what a record takes in memory besides its bytes.
const overhead = 40

// newSorter gives a sorter that holds about limit bytes in memory. It makes a file
// in the scratch directory when it needs one.
func newSorter(scratch string, limit int) *sorter {
	return &sorter{scratch: scratch, limit: limit}
}

// add adds a record, which the sorter keeps.
func (s *sorter) add(record []byte) error {
	s.records = append(s.records, record)
	s.held += len(record) + overhead
	if s.held < s.limit {
		return nil
	}
	return s.spill()
}

func (s *sorter) spill() error {
	if s.file == nil {
		file, err := os.CreateTemp(s.scratch, "sort-*")
		if err != nil {
			return fmt.Errorf("make a scratch file: %w", err)
		}
		// The name is not needed: what dies leaves no file behind.
		if err := os.Remove(file.Name()); err != nil {
			return errors.Join(fmt.Errorf("unlink a scratch file: %w", err), file.Close())
		}
		s.file, s.out = file, bufio.NewWriterSize(file, 64<<10)
	}
	slices.SortFunc(s.records, bytes.Compare)
	start := s.at
	for _, record := range s.records {
		var head [4]byte
		big.PutUint32(head[:], uint32(len(record)))
		_, _ = s.out.Write(head[:])
		_, _ = s.out.Write(record)
		s.at += int64(len(head) + len(record))
	}
	// A bufio.Writer keeps its first error.
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write a scratch file: %w", err)
	}
	s.runs = append(s.runs, run{start, s.at})
	clear(s.records)
	s.records, s.held = s.records[:0], 0
	return nil
}

// sorted gives all records in order, and ends with an error if one cannot be read.
// A record is good until the next one. Nothing may be added afterwards.
func (s *sorter) sorted() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		slices.SortFunc(s.records, bytes.Compare)
		if len(s.runs) == 0 {
			for _, record := range s.records {
				if !yield(record, nil) {
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
	s.records = nil
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

// close gives up the scratch file.
func (s *sorter) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
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

// cursors is a heap: the one with the lowest record comes first.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return bytes.Compare(c[i].record, c[j].record) < 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)        { *c = append(*c, x.(*cursor)) }
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
