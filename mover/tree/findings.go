package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// pathAtMost is the longest path that the copy engine takes, in bytes: Linux allows
// 4,096 with the NUL at the end, and the engine sees paths from the volume's root.
const pathAtMost = 4095

// sizeAtMost is how large a file may be. Its holes are not read, but each block is part
// of the root: a scan of such a file takes minutes, and ends.
const sizeAtMost = 256 << 40

// Kind is why an entry cannot be kept by any copy.
type Kind string

// The kinds of findings.
const (
	PathTooLong  Kind = "PathTooLong"
	FileTooLarge Kind = "FileTooLarge"
	MountBelow   Kind = "MountBelow"
	Immutable    Kind = "Immutable"
	AppendOnly   Kind = "AppendOnly"
	Verity       Kind = "Verity"
)

// reasons say what each kind means and what to do.
var reasons = map[Kind]string{
	PathTooLong:  "its path has more than 4,095 bytes; shorten it",
	FileTooLarge: "it is larger than 256 TiB, its holes included; truncate it",
	MountBelow:   "another file system is mounted there; unmount it, for it is not part of the volume",
	Immutable:    "it is immutable, which a copy would lose; remove the flag with chattr -i",
	AppendOnly:   "it is append-only, which a copy would lose; remove the flag with chattr -a",
	Verity:       "it is sealed with fs-verity, which a copy would lose; replace it with an unsealed copy",
}

// Finding is something that no copy can keep: how often, and where first.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Count uint64 `json:"count"`
	// Path is the first such path in canonical order, shortened if it is very long. It
	// is quoted where it is not plain text.
	Path string `json:"path"`
}

// String says it in words.
func (f Finding) String() string { return f.Path + ": " + f.words() }

func (f Finding) words() string {
	text := reasons[f.Kind]
	if f.Count > 1 {
		text += fmt.Sprintf(" (and %d more like it)", f.Count-1)
	}
	return text
}

// findings gathers findings and needs of one scan, from several goroutines.
type findings struct {
	mutex    sync.Mutex
	findings map[Kind]*seenAt
	needs    map[Ability]*seenAt
}

// seenAt counts something and keeps the path that comes first.
type seenAt struct {
	count uint64
	path  string
}

func (s *seenAt) see(path string) {
	if s.count == 0 || comparePaths(path, s.path) < 0 {
		s.path = strings.Clone(path)
	}
	s.count++
}

// add takes note of a finding.
func (f *findings) add(kind Kind, path string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	note(&f.findings, kind, path)
}

func note[K comparable](to *map[K]*seenAt, key K, path string) {
	if *to == nil {
		*to = map[K]*seenAt{}
	}
	if (*to)[key] == nil {
		(*to)[key] = &seenAt{}
	}
	(*to)[key].see(path)
}

// examine looks for what cannot be kept about an entry.
func (f *findings) examine(e *Entry, attributes uint64) {
	if len(e.Path) > pathAtMost {
		f.add(PathTooLong, e.Path)
	}
	if e.Type == File && e.Size > sizeAtMost {
		f.add(FileTooLarge, e.Path)
	}
	const lost = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND | unix.STATX_ATTR_VERITY
	if attributes&lost == 0 {
		return
	}
	if attributes&unix.STATX_ATTR_IMMUTABLE != 0 {
		f.add(Immutable, e.Path)
	}
	if attributes&unix.STATX_ATTR_APPEND != 0 {
		f.add(AppendOnly, e.Path)
	}
	if attributes&unix.STATX_ATTR_VERITY != 0 {
		f.add(Verity, e.Path)
	}
}

// list gives all findings and needs in a stable order.
func (f *findings) list() (needs []Need, list []Finding) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for kind, seen := range f.findings {
		list = append(list, Finding{Kind: kind, Count: seen.count, Path: printable(seen.path)})
	}
	for ability, seen := range f.needs {
		needs = append(needs, Need{Ability: ability, Count: seen.count, Path: printable(seen.path)})
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.SortFunc(needs, func(a, b Need) int { return cmp.Compare(a.Ability, b.Ability) })
	return needs, list
}

// printable is a path as a message shows it: quoted where it is not plain text, and
// never very long.
func printable(path string) string {
	const most = 200
	if path == "" {
		return "the root directory"
	}
	cut := path
	if len(cut) > most {
		cut = cut[:most/2] + "..." + cut[len(cut)-most/2:]
	}
	if quoted := fmt.Sprintf("%q", cut); quoted != `"`+cut+`"` || strings.ContainsAny(cut, " ") {
		return quoted
	}
	return cut
}
