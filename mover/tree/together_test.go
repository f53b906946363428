package tree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// someBytes are bytes that repeat nowhere near.
func someBytes(n int) []byte {
	content := make([]byte, n)
	for i := range content {
		content[i] = byte(i*i>>7 + i)
	}
	return content
}

func TestAColdScanOfSmallFilesFindsWhatAWarmOneDoes(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	content := someBytes(togetherFile + 2)
	for i := range 150 {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("of-%03d", i)), content[i:i*9], 0o600))
	}
	for _, n := range []int{1, aligned - 1, aligned, aligned + 1, BlockSize, togetherFile - 1, togetherFile, togetherFile + 1} {
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
	f.bypass()
	if !f.direct.Load() {
		t.Skip("the file system of this machine's temporary files always reads through the page cache")
	}
	return f
}

func TestFilesAreReadTogether(t *testing.T) {
	a, err := newAIO()
	require.NoError(t, err)
	defer func() { a.close() }()
	content := someBytes(togetherFile)
	var files []*openedFile
	for n := 1; n <= togetherAtMost/2; n++ {
		files = append(files, openPast(t, content[:n*1000]))
	}
	for range 2 {
		for n, f := range files {
			size := uint64(n+1) * 1000
			require.True(t, a.has(size))
			require.Equal(t, n, a.ask(f.fd, size))
		}
		contents := a.read()
		for n := range files {
			assert.Equal(t, content[:(n+1)*1000], contents[n])
		}
	}

	t.Log("A file that cannot be read is told beside those that can.")
	a.ask(files[0].fd, 1000)
	a.ask(-1, 1000)
	contents := a.read()
	assert.Nil(t, contents[1])
	// Those behind one that the kernel does not take are read alone.
	assert.True(t, contents[0] == nil || string(contents[0]) == string(content[:1000]))

	t.Log("There is room for as many as the buffer holds.")
	n := 0
	for ; a.has(togetherFile); n++ {
		a.ask(files[0].fd, togetherFile)
	}
	assert.Equal(t, togetherBytes/togetherFile, n)
	a.read()

	a.close()
	a.ask(files[0].fd, 1000)
	assert.Equal(t, [togetherAtMost][]byte{}, a.read())
}

func TestAFileThatCannotBeReadWithOthersIsReadAlone(t *testing.T) {
	content := someBytes(5000)
	f := openPast(t, content)
	s, err := statAt(f.fd, "")
	require.NoError(t, err)
	entry := func(size uint64) *Entry {
		return &Entry{Path: "file", Type: File, Size: size, Ctime: timeOf(s.Ctime)}
	}
	l := &looker{options: &Options{}}
	seen := &sight{entry: entry(5000)}
	require.NoError(t, l.settleOne(seen, f, nil))
	assert.Equal(t, contentOf(appendHashes(nil, content)), seen.entry.Content)
	assert.False(t, seen.unsettled)
	assert.False(t, f.direct.Load())

	t.Log("One that shrank or grew meanwhile is read again by the next scan.")
	for _, size := range []uint64{4000, 6000} {
		seen := &sight{entry: entry(size)}
		require.NoError(t, l.settleOne(seen, f, content[:min(size, 5000)]))
		assert.True(t, seen.unsettled)
	}
}
