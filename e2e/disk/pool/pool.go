// Package pool keeps volumes and snapshots as files in a directory: for each an
// image, a sparse file of the volume's size, and a record of what it is. The
// record is what makes a volume exist; it is written last and removed first, so
// a process that is killed at any point leaves either the whole volume or an
// image without record, which Open removes.
//
// Room is counted in bytes promised, not in blocks used, and for each node apart.
package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// What can be wrong with a request.
var (
	ErrFull     = errors.New("no room is left")
	ErrConflict = errors.New("another one of this name exists")
	ErrNotFound = errors.New("it does not exist")
	ErrInvalid  = errors.New("the request is not valid")
	ErrInUse    = errors.New("another node has it")
	ErrGrouped  = errors.New("it is part of a group")
)

// Mebibyte is the unit of all sizes: what is asked for is rounded up to it.
const Mebibyte = 1 << 20

// Volume is the record of a volume.
type Volume struct {
	ID string `json:"id"`
	// Name is what the caller gave; there is one volume of a name.
	Name string `json:"name"`
	// Node is where the volume can be reached; empty: everywhere.
	Node  string `json:"node,omitempty"`
	Bytes int64  `json:"bytes"`
	// Source is the ID of the volume or snapshot that it is a copy of.
	Source     string            `json:"source,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Mutable are parameters that can be changed later.
	Mutable map[string]string `json:"mutable,omitempty"`
	// Attached are the nodes that it is attached to.
	Attached []string `json:"attached,omitempty"`
}

// Snapshot is the record of a snapshot.
type Snapshot struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	VolumeID string `json:"volumeID"`
	Node     string `json:"node,omitempty"`
	Bytes    int64  `json:"bytes"`
	// Created is in nanoseconds since 1970.
	Created int64 `json:"created"`
	// Group is the ID of the group that it was taken with; empty: it was taken alone.
	Group string `json:"group,omitempty"`
}

// Pool is a directory of volumes. Its methods may be called concurrently; one
// process at a time may have a directory open.
type Pool struct {
	directory string
	perNode   int64
	flush     func()
	// Folders, if not empty, is a directory with a folder for each volume and snapshot, named by its ID, in which programs keep what
	// would be on the volume: it is copied and removed with that, and copies may be on any node, as of storage that a network reaches. Set it
	// before anything else is called.
	Folders string

	mu        sync.Mutex // guards what follows, and the files
	volumes   map[string]Volume
	snapshots map[string]Snapshot
}

// Open opens a directory, which it makes if need be. Volumes of one node may have
// perNode bytes together. flush, if not nil, is called before an image is copied:
// it writes what file systems on images still hold in memory.
func Open(directory string, perNode int64, flush func()) (*Pool, error) {
	p := &Pool{directory: directory, perNode: perNode, flush: flush, volumes: map[string]Volume{}, snapshots: map[string]Snapshot{}}
	if err := load(p.in("volumes"), p.volumes); err != nil {
		return nil, fmt.Errorf("load the volumes: %w", err)
	}
	if err := load(p.in("snapshots"), p.snapshots); err != nil {
		return nil, fmt.Errorf("load the snapshots: %w", err)
	}
	return p, nil
}

// copyFolder copies what programs keep for a volume or a snapshot.
func (p *Pool) copyFolder(to, from string) error {
	if p.Folders == "" {
		return nil
	}
	to, from = filepath.Join(p.Folders, to), filepath.Join(p.Folders, from)
	for _, folder := range []string{to, from} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("make folder %s: %w", folder, err)
		}
	}
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy folder %s: %w: %s", from, err, out)
	}
	return nil
}

// removeFolder removes that.
func (p *Pool) removeFolder(id string) error {
	if p.Folders == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(p.Folders, id))
}

func (p *Pool) in(elements ...string) string {
	return filepath.Join(append([]string{p.directory}, elements...)...)
}

// Image returns the path of a volume's image.
func (p *Pool) Image(id string) string { return p.in("volumes", id+imageSuffix) }

// Free returns how many bytes the volumes of a node may still have, at least 0.
func (p *Pool) Free(node string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free(node)
}

func (p *Pool) free(node string) int64 {
	left := p.perNode
	for _, v := range p.volumes {
		if v.Node == node {
			left -= v.Bytes
		}
	}
	for _, s := range p.snapshots {
		if s.Node == node {
			left -= s.Bytes
		}
	}
	return max(left, 0)
}

// RoundUp rounds a size in bytes up to whole mebibytes, at least one.
func RoundUp(bytes int64) int64 {
	if bytes <= 0 {
		return Mebibyte
	}
	return (bytes-1)/Mebibyte*Mebibyte + Mebibyte
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkName(name string) error {
	if !goodName.MatchString(name) {
		return fmt.Errorf("%w: %q is no name for a file", ErrInvalid, name)
	}
	return nil
}

// remove removes a record and then its image; those that are gone are no error.
func remove(base string) error {
	for _, path := range []string{base + recordSuffix, base + imageSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

const (
	recordSuffix = ".json"
	imageSuffix  = ".img"
	newSuffix    = ".new"
)

// load reads the records of a directory and removes what a killed process left.
func load[T any](directory string, into map[string]T) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return err
		}
		var record T
		if err := json.Unmarshal(content, &record); err != nil {
			return fmt.Errorf("decode %s: %w", entry.Name(), err)
		}
		into[id] = record
	}
	for _, entry := range entries {
		id, isImage := strings.CutSuffix(entry.Name(), imageSuffix)
		_, known := into[id]
		if strings.HasSuffix(entry.Name(), newSuffix) || (isImage && !known) {
			if err := os.Remove(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRecord writes a record in one step.
func writeRecord(base string, record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	temporary := base + recordSuffix + newSuffix
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := os.Rename(temporary, base+recordSuffix); err != nil {
		return fmt.Errorf("name the record: %w", err)
	}
	return nil
}

// makeImage makes a sparse file of a size; an older one of that path is replaced.
func makeImage(path string, bytes int64) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(bytes); err != nil {
		return fmt.Errorf("size the image: %w", err)
	}
	return nil
}

// copyImage makes a sparse file of a size that begins with what is in another.
func copyImage(to, from string, bytes int64) (err error) {
	if err := makeImage(to, bytes); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	for at := int64(0); ; {
		start, end, err := nextData(source, at)
		if err != nil || start < 0 {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(target, start), io.NewSectionReader(source, start, end-start)); err != nil {
			return fmt.Errorf("copy the image: %w", err)
		}
		at = end
	}
}

// nextData returns where the first data at or after a place begins and ends;
// start is negative if there is none.
func nextData(file *os.File, at int64) (start, end int64, err error) {
	start, err = unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return -1, -1, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look for data: %w", err)
	}
	if end, err = unix.Seek(int(file.Fd()), start, unix.SEEK_HOLE); err != nil {
		return 0, 0, fmt.Errorf("look for the end of data: %w", err)
	}
	return start, end, nil
}
