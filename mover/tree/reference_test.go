package tree

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// reference computes a root from docs/move-verification.md alone, with the tree in
// memory and by paths, sharing no code with the scan.
func reference(t *testing.T, root string) Hash {
	t.Helper()
	paths := []string{""}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if rel == "lost+found" {
			return filepath.SkipDir
		}
		if rel != "." {
			paths = append(paths, rel)
		}
		return nil
	}))
	slices.SortFunc(paths, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	entries, links := derive("entries"), derive("links")
	var ordinals, members uint64
	first := map[uint64]uint64{}
	for _, path := range paths {
		full := filepath.Join(root, path)
		var s syscall.Stat_t
		require.NoError(t, syscall.Lstat(full, &s))
		canonical := referenceEntry(t, full, path, &s)
		put(entries, uint32(len(canonical)), canonical)
		if s.Mode&syscall.S_IFMT != syscall.S_IFDIR && s.Nlink > 1 {
			if leader, ok := first[s.Ino]; ok {
				put(links, ordinals, leader)
				members++
			} else {
				first[s.Ino] = ordinals
			}
		}
		ordinals++
	}
	all := derive("root")
	put(all, ordinals, entries.Sum(nil), members, links.Sum(nil))
	return Hash(all.Sum(nil))
}

func derive(what string) *blake3.Hasher { return blake3.NewDeriveKey("lodestone.dev/tree/v1 " + what) }

// put writes values as the definition does: numbers big-endian, texts after their
// length, byte slices as they are.
func put(to interface{ Write([]byte) (int, error) }, values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			_, _ = to.Write(v)
		case string:
			put(to, uint32(len(v)), []byte(v))
		default:
			_ = binary.Write(writerOf{to}, binary.BigEndian, v)
		}
	}
}

type writerOf struct {
	to interface{ Write([]byte) (int, error) }
}

func (w writerOf) Write(b []byte) (int, error) { return w.to.Write(b) }

func referenceEntry(t *testing.T, full, path string, s *syscall.Stat_t) []byte {
	t.Helper()
	letters := map[uint32]byte{
		syscall.S_IFDIR: 'd', syscall.S_IFREG: 'f', syscall.S_IFLNK: 'l', syscall.S_IFIFO: 'p',
		syscall.S_IFSOCK: 's', syscall.S_IFCHR: 'c', syscall.S_IFBLK: 'b',
	}
	kind := letters[s.Mode&syscall.S_IFMT]
	b := &bytes.Buffer{}
	put(b, kind, path, s.Mode&0o7777, s.Uid, s.Gid, s.Mtim.Sec, uint32(s.Mtim.Nsec))
	switch kind {
	case 'f':
		content, err := os.ReadFile(full)
		require.NoError(t, err)
		blocks := derive("content")
		for block := range slices.Chunk(content, 32768) {
			hash := blake3.Sum256(block)
			put(blocks, hash[:])
		}
		put(b, uint64(len(content)), blocks.Sum(nil))
	case 'l':
		target, err := os.Readlink(full)
		require.NoError(t, err)
		put(b, target)
	case 'c', 'b':
		put(b, unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	list := make([]byte, 1<<16)
	n, err := unix.Llistxattr(full, list)
	require.NoError(t, err)
	var kept []string
	for _, name := range strings.Split(string(list[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.") || name == "security.capability" ||
			strings.HasPrefix(name, "system.posix_acl_") {
			kept = append(kept, name)
		}
	}
	slices.Sort(kept)
	put(b, uint32(len(kept)))
	for _, name := range kept {
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(full, name, value)
		require.NoError(t, err)
		hash := blake3.Sum256(value[:n])
		put(b, name, uint64(n), hash[:])
	}
	return b.Bytes()
}
