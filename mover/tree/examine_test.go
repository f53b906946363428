package tree

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
)

func TestAColdScanReadsTheDiskAndNotTheMemory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "volume")
	require.NoError(t, os.Mkdir(root, 0o755))
	mounted, err := disk.Mount(t.Context(), root, 32<<20)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, mounted.Unmount()) })
	content := make([]byte, LargeFrom+5*BlockSize)
	_, err = rand.Read(content)
	require.NoError(t, err)
	write(t, string(content[:3*BlockSize]), root, "small")
	write(t, string(content[3*BlockSize:]), root, "large")
	cold := func(o *Options) { o.Cold = true }

	for _, row := range []struct {
		file string
		at   int64
	}{{"small", BlockSize + 77}, {"large", LargeFrom + BlockSize}} {
		path := filepath.Join(root, row.file)
		good := scan(t, root)
		inMemory, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, mounted.Flip(inMemory[row.at:row.at+64]))

		require.Equal(t, good.Summary().Root, scan(t, root).Summary().Root, "the file's pages are in memory, where nothing has changed")
		spoilt := scan(t, root, cold)
		differences, err := Compare(good, spoilt, 1)
		require.NoError(t, err)
		require.Equal(t, Differences{Count: 1, First: []Difference{{Path: row.file, What: "other content"}}}, differences)
	}
}

func TestAColdScanOfLargeFilesFindsWhatAWarmOneDoes(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	content := make([]byte, 3*segment+DirectAlignment+7)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	// Files end at, before and behind the borders of what is read at once, and have holes.
	for name, n := range map[string]int{
		"whole": 2 * segment, "less": 2*segment - 1, "more": 2*segment + 1, "block": segment + BlockSize, "page": segment + DirectAlignment,
		"little": segment + 3, "buffers": segment + bufferSize, "all": len(content),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content[:n], 0o600))
	}
	sparse, err := os.Create(filepath.Join(folder, "sparse"))
	require.NoError(t, err)
	for _, at := range []int64{5, 2*segment - 9, 4*segment + 100} {
		_, err = sparse.WriteAt(content[:200], at)
		require.NoError(t, err)
	}
	require.NoError(t, sparse.Truncate(6*segment+11))
	require.NoError(t, sparse.Close())
	var roots []Hash
	for _, cold := range []bool{false, true} {
		summary, err := Scan(context.Background(), Options{Root: folder, Manifest: filepath.Join(other, "manifest"), Scratch: other, Cold: cold})
		require.NoError(t, err)
		roots = append(roots, summary.Root)
	}
	assert.Equal(t, roots[0], roots[1])
}

func TestAFileIsReadThroughTheCacheWhereItsDiskTakesNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, BlockSize+9), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	f := &openedFile{fd: int(file.Fd())}
	f.bypassCache()
	if !f.direct.Load() {
		t.Skip("this file system is read through the page cache only")
	}
	// An unaligned offset fails as any offset does on a disk with larger blocks.
	p := &part{file: f, start: 1, end: BlockSize + 9, done: make(chan struct{})}
	p.hash(&hasher{})
	require.NoError(t, p.err)
	assert.EqualValues(t, BlockSize+8, p.read)
	assert.False(t, f.direct.Load())
}

func TestAColdScanOfSmallFilesFindsWhatAWarmOneDoes(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	content := someBytes(maxSmallFile + 2)
	for i := range 150 {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("of-%03d", i)), content[i:i*9], 0o600))
	}
	for _, n := range []int{1, DirectAlignment - 1, DirectAlignment, DirectAlignment + 1, BlockSize, maxSmallFile - 1, maxSmallFile,
		maxSmallFile + 1} {
		for i := range 5 {
			require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%d", n, i)), content[:n], 0o600))
		}
	}
	require.NoError(t, os.Truncate(filepath.Join(folder, "of-100"), 20000))
	var manifests []*Manifest
	for _, cold := range []bool{false, true} {
		path := filepath.Join(other, fmt.Sprintf("manifest-%t", cold))
		_, err := Scan(context.Background(), Options{Root: folder, Manifest: path, Scratch: other, Cold: cold})
		require.NoError(t, err)
		m, err := Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		manifests = append(manifests, m)
	}
	differences, err := Compare(manifests[0], manifests[1], 10)
	require.NoError(t, err)
	assert.Empty(t, differences.First)
	warm, cold := manifests[0].Summary(), manifests[1].Summary()
	assert.Equal(t, warm.Root, cold.Root)
	assert.Equal(t, warm.ReadBytes, cold.ReadBytes)
	assert.Equal(t, warm.ReadFiles, cold.ReadFiles)
}

// openPast opens a file past the page cache, where that can be.
func openPast(t *testing.T, content []byte) *openedFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	f := &openedFile{fd: int(file.Fd())}
	f.bypassCache()
	if !f.direct.Load() {
		t.Skip("the file system of this machine's temporary files always reads through the page cache")
	}
	return f
}

func TestFilesAreReadTogether(t *testing.T) {
	a, err := newAIO()
	require.NoError(t, err)
	defer func() { a.close() }()
	content := someBytes(maxSmallFile)
	var files []*openedFile
	for n := 1; n <= maxSmallFiles/2; n++ {
		files = append(files, openPast(t, content[:n*1000]))
	}
	for range 2 {
		for n, f := range files {
			size := uint64(n+1) * 1000
			require.True(t, a.hasRoom(size))
			require.Equal(t, n, a.add(f.fd, size))
		}
		contents := a.read()
		for n := range files {
			assert.Equal(t, content[:(n+1)*1000], contents[n])
		}
	}

	t.Log("A file that cannot be read is told beside those that can.")
	a.add(files[0].fd, 1000)
	a.add(-1, 1000)
	contents := a.read()
	assert.Nil(t, contents[1])
	// Files behind one that the kernel does not accept are read alone.
	assert.True(t, contents[0] == nil || string(contents[0]) == string(content[:1000]))

	t.Log("There is room for as many as the buffer holds.")
	n := 0
	for ; a.hasRoom(maxSmallFile); n++ {
		a.add(files[0].fd, maxSmallFile)
	}
	assert.Equal(t, smallFilesBuffer/maxSmallFile, n)
	a.read()

	a.close()
	a.add(files[0].fd, 1000)
	assert.Equal(t, [maxSmallFiles][]byte{}, a.read())
}

func TestAFileThatCannotBeReadWithOthersIsReadAlone(t *testing.T) {
	content := someBytes(5000)
	f := openPast(t, content)
	s, err := statAt(f.fd, "")
	require.NoError(t, err)
	entry := func(size uint64) *Entry {
		return &Entry{Path: "file", Type: File, Size: size, Ctime: timeOf(s.Ctime)}
	}
	l := &worker{options: &Options{}}
	seen := &observation{entry: entry(5000)}
	require.NoError(t, l.finishTogether(seen, f, nil))
	assert.Equal(t, contentOf(appendHashes(nil, content)), seen.entry.Content)
	assert.False(t, seen.unsettled)
	assert.False(t, f.direct.Load())

	t.Log("One that shrank or grew meanwhile is read again by the next scan.")
	for _, size := range []uint64{4000, 6000} {
		seen := &observation{entry: entry(size)}
		require.NoError(t, l.finishTogether(seen, f, content[:min(size, 5000)]))
		assert.True(t, seen.unsettled)
	}
}

// An object that replaces a file before it is opened is not read, does not block the scan, and does
// not end it.
func TestAFileThatBecomesSomethingElseBeforeItIsReadIsLeftToTheNextScan(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"a named pipe":     func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a socket":         func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"a directory":      func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link":  func(path string) error { return os.Symlink("other", path) },
		"another file":     func(path string) error { return os.WriteFile(path, []byte("another"), 0o600) },
		"nothing any more": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := write(t, "content", root, "file")
			write(t, "other", root, "other")
			fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			d := newDir(fd, "")
			defer d.release()
			s, err := statAt(fd, "file")
			require.NoError(t, err)
			e := &Entry{Path: "file", Type: File}
			s.fill(e)
			// It keeps its inode, so that nothing new gets the number.
			require.NoError(t, os.Rename(path, filepath.Join(root, "kept")))
			require.NoError(t, replace(path))
			l := &worker{options: &Options{}, found: &findings{}}
			err = l.readFile(d, "file", &observation{entry: e})
			require.Truef(t, gone(err), "%v", err)
			large := *e
			large.Size = LargeFrom
			err = (&collector{options: &Options{}}).readLarge(t.Context(), d, "file", &observation{entry: &large})
			require.Truef(t, gone(err), "%v", err)
		})
	}
}
