package tree

import (
	"iter"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/scratch"
)

const (
	// namesMemory is what the names of one directory may take before they are sorted
	// on disk. It falls with the depth of open directories, which all hold names.
	namesMemory = 8 << 20
	// namesLeast is what each may take however many are open.
	namesLeast = 64 << 10
)

// nameSorter sorts names of directories. Several may be open, one in another; held
// is what they hold together.
type nameSorter struct {
	scratch string
	budget  *scratch.Budget
	held    int
}

// name is one name in a directory, with the type the directory tells (DT_*).
type name struct {
	name string
	kind byte
}

// sorted reads a directory whole and gives its names in canonical order.
func (n *nameSorter) sorted(d *dir) iter.Seq2[name, error] {
	return func(yield func(name, error) bool) {
		s := newSorter(n.scratch, n.budget, max(namesMemory-n.held, namesLeast))
		defer s.close()
		for entry, err := range names(d) {
			if err == nil {
				err = s.add([]byte(entry))
			}
			if err != nil {
				yield(name{}, err)
				return
			}
		}
		held := s.held()
		n.held += held
		defer func() { n.held -= held }()
		for record, err := range s.sorted() {
			if err != nil {
				yield(name{}, err)
				return
			}
			// The type follows the name after a NUL, which no name holds and which sorts
			// before every other byte.
			text := string(record)
			end := strings.IndexByte(text, 0)
			if !yield(name{name: text[:end], kind: text[len(text)-1]}, nil) {
				return
			}
		}
	}
}
