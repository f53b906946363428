package tree

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
)

// Kind is the reason why no copy can keep an entry.
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

// maxPath is the longest path that the copy engine accepts, in bytes: Linux allows 4,096 with the
// NUL at the end, and the engine uses paths from the volume's root.
const maxPath = 4095

// maxFileSize is the largest size of a file. Its holes are not read, but each block is part of the
// root hash: a scan of such a file takes minutes, and ends.
const maxFileSize = 256 << 40

// Finding is something that no copy can keep: how often, and where first.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Count uint64 `json:"count"`
	// Path is the first such path in canonical order, shortened if it is very long, and quoted if
	// it is not plain text.
	Path string `json:"path"`
}

// String returns the finding in words.
func (f Finding) String() string { return f.Path + ": " + f.words() }

func (f Finding) words() string {
	text := reasons[f.Kind]
	if f.Count > 1 {
		text += fmt.Sprintf(" (and %d more like it)", f.Count-1)
	}
	return text
}

// Ability is something that a tree may need of the target's file system and of the program that
// writes there.
type Ability string

// The abilities.
const (
	HardLinks      Ability = "HardLinks"
	Symlinks       Ability = "Symlinks"
	Fifos          Ability = "Fifos"
	Sockets        Ability = "Sockets"
	Devices        Ability = "Devices"
	Owners         Ability = "Owners"
	SpecialBits    Ability = "SpecialBits"
	UserXattrs     Ability = "UserXattrs"
	TrustedXattrs  Ability = "TrustedXattrs"
	Capabilities   Ability = "Capabilities"
	ACLs           Ability = "ACLs"
	NonUTF8Names   Ability = "NonUTF8Names"
	UnusualNames   Ability = "UnusualNames"
	LongNames      Ability = "LongNames"
	CaseSensitive  Ability = "CaseSensitiveNames"
	Nanoseconds    Ability = "Nanoseconds"
	TimeBefore1970 Ability = "TimeBefore1970"
	TimeAfter2038  Ability = "TimeAfter2038"
	// Holes are never required: without them files only take more room.
	Holes Ability = "Holes"
)

// Need is an ability that some entries need.
type Need struct {
	Ability Ability `json:"ability"`
	Count   uint64  `json:"count"`
	// Path is the first that needs it.
	Path string `json:"path"`
}

// findings collects findings and needs of one scan, from several goroutines.
type findings struct {
	mutex    sync.Mutex
	findings map[Kind]*occurrences
	needs    map[Ability]*occurrences
}

// occurrences is a count and the first path.
type occurrences struct {
	count uint64
	path  string
}

func (s *occurrences) add(path string) {
	if s.count == 0 || comparePaths(path, s.path) < 0 {
		s.path = strings.Clone(path)
	}
	s.count++
}

// add records a finding.
func (f *findings) add(kind Kind, path string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	addOccurrence(&f.findings, kind, path)
}

func addOccurrence[K comparable](to *map[K]*occurrences, key K, path string) {
	if *to == nil {
		*to = map[K]*occurrences{}
	}
	if (*to)[key] == nil {
		(*to)[key] = &occurrences{}
	}
	(*to)[key].add(path)
}

// examine records what no copy can keep of an entry.
func (f *findings) examine(e *Entry, attributes uint64) {
	if len(e.Path) > maxPath {
		f.add(PathTooLong, e.Path)
	}
	if e.Type == File && e.Size > maxFileSize {
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

// list returns all findings and needs in a stable order.
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

// printable returns a path for a message: quoted if it is not plain text, and never very long.
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

// addNeeds records what an entry needs of who writes the target; nil: root. It is called by one goroutine, in canonical order.
func (f *findings) addNeeds(e *Entry, by *Writer) {
	at := func(a Ability) { addOccurrence(&f.needs, a, e.Path) }
	if e.Links > 1 && e.Type != Directory {
		at(HardLinks)
	}
	switch e.Type {
	case Symlink:
		at(Symlinks)
	case Fifo:
		at(Fifos)
	case Socket:
		at(Sockets)
	case CharDevice, BlockDevice:
		at(Devices)
	case Directory, File:
	}
	// RootRefusals is about the root directory.
	if by == nil && (e.UID != 0 || e.GID != 0) || by != nil && e.Path != "" && !by.owns(e.UID, e.GID) {
		at(Owners)
	}
	if e.Mode&0o7000 != 0 {
		at(SpecialBits)
	}
	if e.Mtime.Nsec != 0 {
		at(Nanoseconds)
	}
	if e.Mtime.Sec < 0 {
		at(TimeBefore1970)
	}
	if e.Mtime.Sec > 1<<31-1 {
		at(TimeAfter2038)
	}
	for _, x := range e.Xattrs {
		switch {
		case strings.HasPrefix(x.Name, userPrefix):
			at(UserXattrs)
		case strings.HasPrefix(x.Name, trustedPrefix):
			at(TrustedXattrs)
		case x.Name == capabilityXattr:
			at(Capabilities)
		default:
			at(ACLs)
		}
	}
	f.addNameNeeds(e)
}

// usualNameLength is the length of names that every file system accepts.
const usualNameLength = 143

// addNameNeeds records what the last name of a path needs.
func (f *findings) addNameNeeds(e *Entry) {
	last := e.Path[strings.LastIndexByte(e.Path, '/')+1:]
	plain, upper := true, false
	for i := range len(last) {
		switch b := last[i]; {
		case b < ' ' || b >= 0x7f || strings.IndexByte(`\:*?"<>|`, b) >= 0:
			plain = false
		case b >= 'A' && b <= 'Z':
			upper = true
		}
	}
	if upper {
		addOccurrence(&f.needs, CaseSensitive, e.Path)
	}
	if len(last) > usualNameLength {
		addOccurrence(&f.needs, LongNames, e.Path)
	}
	if last != "" && (last[len(last)-1] == ' ' || last[len(last)-1] == '.') {
		plain = false
	}
	if plain {
		return
	}
	addOccurrence(&f.needs, UnusualNames, e.Path)
	if !utf8.ValidString(last) {
		addOccurrence(&f.needs, NonUTF8Names, e.Path)
	}
}

// Abilities are what a target can store, tested by the program that will write there with the
// capabilities that it has.
type Abilities struct {
	// Lacks has the abilities that are missing, with the error of the test.
	Lacks map[Ability]string `json:"lacks,omitempty"`
	// Bytes and Inodes are free for a program that may use root's reserve. Inodes is 0 if the file
	// system has no such limit.
	Bytes  uint64 `json:"bytes"`
	Inodes uint64 `json:"inodes"`
	// Writer is the program that tested this; nil: it is root. Root is to whom the root directory belongs.
	Writer *Writer   `json:"writer,omitempty"`
	Root   Ownership `json:"root"`
	// Unwritable says that it may make nothing in the root directory, so that nothing was tested.
	Unwritable bool `json:"unwritable,omitempty"`
}

// probeName is the prefix of the name of the directory in which abilities are tested.
const probeName = ".lodestone-probe-"

// Probe tests in a new directory inside the target, which it removes again, what the file system
// and this program can store. An error means that nothing could be tested.
func Probe(target string) (a Abilities, err error) {
	if a.Writer, err = Self(); err != nil {
		return Abilities{}, err
	}
	if a.Root, err = OwnershipOf(target); err != nil {
		return Abilities{}, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(target, &s); err != nil {
		return Abilities{}, fmt.Errorf("ask how much space the target has: %w", err)
	}
	a.Bytes = s.Bfree * uint64(s.Frsize)
	if s.Files > 0 {
		a.Inodes = s.Ffree
	}
	if err := removeOldProbes(target); err != nil {
		return Abilities{}, err
	}
	dir, err := os.MkdirTemp(target, probeName+"*")
	if a.Writer != nil && errors.Is(err, unix.EACCES) {
		a.Unwritable = true
		return a, nil
	}
	if err != nil {
		return Abilities{}, fmt.Errorf("make a directory to try what the target can keep: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	a.Lacks = map[Ability]string{}
	for ability, try := range trials {
		place := filepath.Join(dir, string(ability))
		if err := os.WriteFile(place, nil, 0o600); err != nil {
			return Abilities{}, fmt.Errorf("make a file at the target: %w", err)
		}
		if err := try(place); err != nil {
			a.Lacks[ability] = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
	}
	return a, nil
}

// removeOldProbes removes the directories of probes that were killed.
func removeOldProbes(target string) error {
	entries, err := os.ReadDir(target)
	if err != nil {
		return fmt.Errorf("read the target's root: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), probeName) && e.IsDir() {
			if err := os.RemoveAll(filepath.Join(target, e.Name())); err != nil {
				return fmt.Errorf("remove what an earlier try left: %w", err)
			}
		}
	}
	return nil
}

// trials test one ability each with a file beside an empty one, and return why it is missing.
var trials = map[Ability]func(file string) error{
	HardLinks: func(file string) error { return os.Link(file, file+".link") },
	Symlinks:  func(file string) error { return os.Symlink("somewhere", file+".symlink") },
	Fifos:     func(file string) error { return withAction("make a named pipe", unix.Mkfifo(file+".fifo", 0o600)) },
	Sockets: func(file string) error {
		return withAction("make a socket", unix.Mknod(file+".socket", unix.S_IFSOCK|0o600, 0))
	},
	Devices: func(file string) error {
		return withAction("make a device", unix.Mknod(file+".device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	},
	Owners: func(file string) error { return os.Chown(file, 54321, 65432) },
	SpecialBits: func(file string) error {
		if err := unix.Chmod(file, 0o6755); err != nil {
			return withAction("set setuid and setgid", err)
		}
		return keeps(file, func(s *unix.Stat_t) bool { return s.Mode&0o7777 == 0o6755 }, "setuid and setgid are dropped")
	},
	UserXattrs:    func(file string) error { return keepsXattr(file, userPrefix+"try", []byte("value")) },
	TrustedXattrs: func(file string) error { return keepsXattr(file, trustedPrefix+"try", []byte("value")) },
	Capabilities:  func(file string) error { return keepsXattr(file, capabilityXattr, probeCapability) },
	ACLs:          func(file string) error { return keepsXattr(file, accessACL, probeACL) },
	NonUTF8Names:  func(file string) error { return os.WriteFile(file+"-\xff\xfe", nil, 0o600) },
	UnusualNames:  func(file string) error { return os.WriteFile(file+"\n\\:*?\"<>| .", nil, 0o600) },
	LongNames: func(file string) error {
		return os.WriteFile(filepath.Join(filepath.Dir(file), strings.Repeat("n", 255)), nil, 0o600)
	},
	Holes: func(file string) error {
		const size = 1 << 20
		if err := os.Truncate(file, size); err != nil {
			return err
		}
		return keeps(file, func(s *unix.Stat_t) bool { return s.Blocks*512 < size }, "holes are filled")
	},
	CaseSensitive: func(file string) error {
		_, err := os.Lstat(filepath.Join(filepath.Dir(file), strings.ToLower(filepath.Base(file))))
		if err == nil {
			return errors.New("names that differ only in upper and lower case are the same")
		}
		return nil
	},
	Nanoseconds:    func(file string) error { return keepsTime(file, time.Unix(1500000000, 123456789)) },
	TimeBefore1970: func(file string) error { return keepsTime(file, time.Unix(-1500000000, 0)) },
	TimeAfter2038:  func(file string) error { return keepsTime(file, time.Unix(1<<31+1e6, 0)) },
}

// Values that Linux accepts: one capability, and an ACL with a named user.
var (
	probeCapability = append([]byte{1, 0, 0, 2, 0, 4}, make([]byte, 14)...)
	probeACL        = []byte{
		2, 0, 0, 0,
		1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the owner
		2, 0, 5, 0, 0x31, 0xd4, 0, 0, // user 54321
		4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, // the group
		16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // the mask
		32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // others
	}
)

// withAction adds to an error what was being done.
func withAction(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func keeps(file string, as func(*unix.Stat_t) bool, otherwise string) error {
	var s unix.Stat_t
	if err := unix.Lstat(file, &s); err != nil {
		return fmt.Errorf("look at a file: %w", err)
	}
	if !as(&s) {
		return errors.New(otherwise)
	}
	return nil
}

func keepsXattr(file, name string, value []byte) error {
	if err := unix.Lsetxattr(file, name, value, 0); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	got := make([]byte, 1024)
	n, err := unix.Lgetxattr(file, name, got)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !bytes.Equal(got[:n], value) {
		return fmt.Errorf("%s becomes another value", name)
	}
	return nil
}

func keepsTime(file string, at time.Time) error {
	t := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, file, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set a time: %w", err)
	}
	return keeps(file, func(s *unix.Stat_t) bool { return s.Mtim == t }, "a time becomes another one")
}

// abilityWords are sentences on what the target cannot store.
var abilityWords = map[Ability]string{
	HardLinks:      "hard links",
	Symlinks:       "symbolic links",
	Fifos:          "named pipes",
	Sockets:        "sockets",
	Devices:        "devices",
	Owners:         "owners",
	SpecialBits:    "setuid, setgid or sticky bits",
	UserXattrs:     "extended attributes user.*",
	TrustedXattrs:  "extended attributes trusted.*",
	Capabilities:   "file capabilities",
	ACLs:           "POSIX ACLs",
	NonUTF8Names:   "names that are not UTF-8",
	UnusualNames:   "names with unusual characters",
	LongNames:      "long names",
	CaseSensitive:  "upper and lower case in names",
	Nanoseconds:    "times with nanoseconds",
	TimeBefore1970: "times before 1970",
	TimeAfter2038:  "times after 2038",
}

// Refusal is a reason why a volume cannot be moved. Path is the first path that it is about, as a
// message shows it; empty if it is about the whole volume.
type Refusal struct{ Path, Reason string }

// Refusals returns why a volume cannot be moved to a target: what no copy can keep, what the target
// cannot store, too little space. None means that nothing forbids the move. What is at the target
// already is expected to be reused: there is its summary, if there is one.
func Refusals(source Summary, target Abilities, there *Summary) (refusals []Refusal) {
	for _, f := range source.Findings {
		refusals = append(refusals, Refusal{f.Path, f.words()})
	}
	for _, need := range source.Needs {
		reason, lacking := target.Lacks[need.Ability]
		if !lacking {
			continue
		}
		if need.Ability == Owners && target.Writer != nil {
			refusals = append(refusals, Refusal{need.Path, target.Writer.cannotOwn(need)})
			continue
		}
		refusals = append(refusals, Refusal{need.Path, fmt.Sprintf("the target cannot keep %s (%s); entries that need it: %d",
			cmp.Or(abilityWords[need.Ability], string(need.Ability)), reason, need.Count)})
	}
	return slices.Concat(refusals, tooSmall(source, target, there))
}

// tooSmall compares the size of the volume with the room at the target. A volume that takes more
// room there than here, for example because of larger blocks, is not foreseen: a pass then fails,
// and passes run before any pods are stopped.
func tooSmall(source Summary, target Abilities, there *Summary) (refusals []Refusal) {
	has, inodes := target.Bytes, target.Inodes
	if there != nil {
		has += there.Allocated
		inodes += there.Inodes
	}
	needs, filled := source.Allocated, ""
	if _, lacking := target.Lacks[Holes]; lacking && source.Bytes > needs {
		needs, filled = source.Bytes, " and fills holes"
	}
	if needs > has {
		refusals = append(refusals, Refusal{Reason: fmt.Sprintf("the target is too small: the volume takes about %s, the target has %s free%s",
			sandbox.FormatBytes(needs), sandbox.FormatBytes(has), filled)})
	}
	if target.Inodes > 0 && source.Inodes > inodes {
		refusals = append(refusals, Refusal{Reason: fmt.Sprintf("the target has too few inodes: the volume takes %d, the target has %d free",
			source.Inodes, inodes)})
	}
	return refusals
}
