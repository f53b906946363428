package blocks

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// writes makes a receiver write parts of a file at their offsets.
func writes(t *testing.T, folder string, size int64, parts map[int64][]byte, order []int64) {
	t.Helper()
	r, err := NewReceiver(folder)
	require.NoError(t, err)
	defer r.Close()
	head, err := encode(messageFile, header{Path: []byte("file"), Size: size, Names: 1, Mode: 0o640, UID: uint32(os.Getuid()),
		GID: uint32(os.Getgid()), Sec: 7})
	require.NoError(t, err)
	require.NoError(t, r.Apply(head))
	for _, offset := range order {
		for rest := parts[offset]; len(rest) > 0; {
			n := min(len(rest), maxChunk)
			require.NoError(t, r.Apply(append(binary.BigEndian.AppendUint64([]byte{messageBytes}, uint64(offset)), rest[:n]...)))
			rest, offset = rest[n:], offset+int64(n)
		}
	}
	require.NoError(t, r.Apply([]byte{messageDone}))
	assert.True(t, r.Complete())
}

func random(seed uint64, n int) []byte {
	source, b := rand.New(rand.NewPCG(seed, 9)), make([]byte, n)
	for i := range b {
		b[i] = byte(source.Uint32())
	}
	return b
}

func TestPartsOfAFileAreWrittenWhereverTheyLie(t *testing.T) {
	folder := t.TempDir()
	const size = 9<<20 + 123
	whole := random(1, size)
	path := filepath.Join(folder, "file")
	writes(t, folder, size, map[int64][]byte{0: whole}, []int64{0})
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(whole, got), "a new file")

	// Pieces are written in place, over what the cache has; some are shorter, and some are not
	// aligned.
	changed, parts := append([]byte(nil), whole...), map[int64][]byte{}
	order := []int64{100, 64 << 10, 1 << 20, 3<<20 + 512, 6 << 20, size - 77}
	for i, n := range []int{5000, 64 << 10, 1<<20 + 4096, 2 << 20, 2<<20 - 1, 77} {
		parts[order[i]] = random(uint64(10+i), n)
		copy(changed[order[i]:], parts[order[i]])
	}
	writes(t, folder, size, parts, order)
	got, err = os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(changed, got), "in place")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.EqualValues(t, 7, info.ModTime().Unix(), "its time comes after all of its content")

	// The file is shorter, with a hole where nothing is sent.
	require.NoError(t, os.Remove(path))
	writes(t, folder, 8<<20, map[int64][]byte{4 << 20: whole[:2<<20]}, []int64{4 << 20})
	got, err = os.ReadFile(path)
	require.NoError(t, err)
	want := make([]byte, 8<<20)
	copy(want[4<<20:], whole[:2<<20])
	require.True(t, bytes.Equal(want, got), "with a hole")
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(path, &stat))
	assert.Less(t, stat.Blocks*512, int64(4<<20), "what was not sent takes no room")
}

// resident is how many pages of a mapping are in memory.
func resident(t *testing.T, memory []byte) (n int) {
	t.Helper()
	pages := make([]byte, (len(memory)+aligned-1)/aligned)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)),
		uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	for _, page := range pages {
		n += int(page & 1)
	}
	return n
}

func TestWhatPassesTheCacheDoesNotStayInIt(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	probe, err := os.Open(path)
	require.NoError(t, err)
	defer probe.Close()
	parent, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(parent)
	d := newDirect(parent, "file", int(probe.Fd()))
	if d == nil {
		t.Skip("this file system takes no direct writes")
	}
	d.close()
	writes(t, folder, 8<<20, map[int64][]byte{0: random(2, 8<<20)}, []int64{0})
	memory, err := unix.Mmap(int(probe.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(memory) }()
	assert.Zero(t, resident(t, memory))
}

func TestContentGoesThroughTheCacheWhereTheDiskTakesNothingElse(t *testing.T) {
	folder := t.TempDir()
	file, err := os.Create(filepath.Join(folder, "file"))
	require.NoError(t, err)
	defer file.Close()
	parent, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(parent)
	d := newDirect(parent, "file", int(file.Fd()))
	if d == nil {
		t.Skip("this file system takes no direct writes")
	}
	defer d.close()
	// An unaligned offset fails as any offset does on a disk with larger blocks.
	want := random(3, piece+5)
	d.filling, d.filled, d.at = new([piece]byte), piece, 1
	copy(d.filling[:], want[1:])
	d.writePiece()
	require.NoError(t, d.write(0, want[:1]))
	require.NoError(t, d.write(piece+1, want[piece+1:]))
	require.NoError(t, d.end())
	assert.True(t, d.refused.Load())
	got, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
}
