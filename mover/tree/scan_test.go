package tree

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestScanGivesEntriesInCanonicalOrder(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"b", "a/z", "a/b/c", "a!", "a/b!", "lost+found/x", "a/lost+found/y"} {
		write(t, path, root, path)
	}
	m := scan(t, root)
	require.Equal(t, []string{"", "a", "a/b", "a/b/c", "a/b!", "a/lost+found", "a/lost+found/y", "a/z", "a!", "b"}, paths(t, m))
	require.Equal(t, uint64(10), m.Summary().Entries)
	require.Equal(t, uint64(6), m.Summary().Files)
}

func TestAScanThatIsStoppedLeavesNoManifest(t *testing.T) {
	root := t.TempDir()
	write(t, "x", root, "file")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	manifest := filepath.Join(t.TempDir(), "manifest")
	_, err := Scan(ctx, Options{Root: root, Manifest: manifest, Scratch: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(filepath.Dir(manifest))
	require.NoError(t, err)
	require.Empty(t, left)
}

func scanDevice(t *testing.T, path string) *Manifest {
	t.Helper()
	o := Options{Root: path, Manifest: filepath.Join(t.TempDir(), "manifest"), Scratch: t.TempDir(), Cold: true}
	summary, err := ScanDevice(t.Context(), o)
	require.NoError(t, err)
	m, err := Open(o.Manifest)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.Equal(t, summary, m.Summary())
	return m
}

func TestABlockVolumeIsDescribedByItsBlocks(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 700000) // Some segments, the last one short.
	device := write(t, string(content), t.TempDir(), "device")
	original, alike := scanDevice(t, device), scanDevice(t, write(t, string(content), t.TempDir(), "other"))
	require.Equal(t, original.Summary().Root, alike.Summary().Root)
	require.Equal(t, uint64(len(content)), original.Summary().Bytes)

	flipByte(t, device, 5<<20)
	changed := scanDevice(t, device)
	require.NotEqual(t, original.Summary().Root, changed.Summary().Root)
	var ranges []Range
	for change, err := range Changes(original, changed) {
		require.NoError(t, err)
		for r, err := range change.Ranges() {
			require.NoError(t, err)
			ranges = append(ranges, r)
		}
	}
	require.Equal(t, []Range{{5 << 20, BlockSize}}, ranges)
}

func TestABatchThatAStoppedWorkerLeftIsNotTakenForWhole(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	left := &batch{done: make(chan struct{})}
	close(left.done)
	for range 100 {
		require.ErrorIs(t, (&collector{}).await(ctx, left), context.Canceled)
	}
}

func TestARescanReadsOnlyWhatChanged(t *testing.T) {
	root := t.TempDir()
	write(t, "one", root, "one")
	write(t, "two", root, "two")
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<20))
	write(t, large, root, "large")
	write(t, large, root, "large too")
	manifest := settledManifest(t, root)
	write(t, "TWO", root, "two")
	flipByte(t, filepath.Join(root, "large too"), 5<<20)
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.Equal(t, uint64(2), m.Summary().ReadFiles)
	require.Equal(t, uint64(3+16<<20), m.Summary().ReadBytes)
	require.Equal(t, scan(t, root).Summary().Root, m.Summary().Root)

	again := scan(t, root, func(o *Options) { o.Previous = manifest })
	d, err := Compare(m, again, 1)
	require.NoError(t, err)
	require.Zero(t, d.Count)
}

func TestAFileRewrittenWithItsSizeAndTimeSetBackIsReadAgain(t *testing.T) {
	root := t.TempDir()
	path := write(t, "before", root, "file")
	at := time.Unix(1600000000, 5)
	require.NoError(t, os.Chtimes(path, at, at))
	manifest := settledManifest(t, root)
	old, err := Open(manifest)
	require.NoError(t, err)
	defer old.Close()
	write(t, "beforE", root, "file")
	require.NoError(t, os.Chtimes(path, at, at))
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.NotEqual(t, old.Summary().Root, m.Summary().Root)
	d, err := Compare(old, m, 1)
	require.NoError(t, err)
	require.Equal(t, []Difference{{Path: "file", What: "other content"}}, d.First)
}

// A file that changed just before the earlier scan may have changed again within the same tick: it
// is read again although its change time is the same.
func TestAFileThatChangedJustBeforeTheEarlierScanIsReadAgain(t *testing.T) {
	root := t.TempDir()
	write(t, "file", root, "file")
	manifest := filepath.Join(t.TempDir(), "manifest")
	scan(t, root, func(o *Options) { o.Manifest = manifest })
	m := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.Equal(t, uint64(1), m.Summary().ReadFiles)
}

func TestLargeFilesThatWereReadEarlyAreNotReadAgain(t *testing.T) {
	root, scratch := t.TempDir(), t.TempDir()
	content := string(someBytes(LargeFrom + BlockSize + 5))
	write(t, content, root, "a", "old")
	write(t, "little", root, "b")
	previous := settledManifest(t, root)
	path := write(t, content[5:], root, "a", "new")
	write(t, "little and new", root, "c")
	time.Sleep(time.Duration(localMargin) + 100*time.Millisecond)

	early := filepath.Join(scratch, "early")
	large := scan(t, root, func(o *Options) { o.Manifest, o.Previous, o.OnlyLarge, o.Cold = early, previous, true, true })
	require.Equal(t, uint64(1), large.Summary().Entries, "only what may have changed is told")
	require.Equal(t, uint64(1), large.Summary().ReadFiles)
	now := func(o *Options) { o.Previous, o.Early, o.Cold = previous, early, true }
	require.Equal(t, uint64(len("little and new")), scan(t, root, now).Summary().ReadBytes)
	m, truth := scan(t, root, now), scan(t, root)
	require.Equal(t, truth.Summary().Root, m.Summary().Root)
	differences, err := Compare(truth, m, 1)
	require.NoError(t, err)
	require.Zero(t, differences.Count)

	t.Log("One that has changed since then is read.")
	info, err := os.Stat(path)
	require.NoError(t, err)
	flipByte(t, path, LargeFrom)
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	m, truth = scan(t, root, now), scan(t, root)
	require.Equal(t, truth.Summary().Root, m.Summary().Root)
	require.Equal(t, uint64(len("little and new")+len(content)-5), m.Summary().ReadBytes)

	t.Log("One that changed just before it was read early is read, too.")
	write(t, content[1:], root, "a", "new")
	scan(t, root, func(o *Options) { o.Manifest, o.Previous, o.OnlyLarge, o.Cold = early, previous, true, true })
	m = scan(t, root, now)
	require.Equal(t, uint64(len("little and new")+len(content)-1), m.Summary().ReadBytes)

	t.Log("Neither manifest can stand for the other.")
	for _, o := range []Options{{Previous: early}, {Early: previous}} {
		o.Root, o.Manifest, o.Scratch = root, filepath.Join(scratch, "manifest"), scratch
		_, err := Scan(t.Context(), o)
		require.ErrorContains(t, err, "it tells of other files")
		require.NoFileExists(t, o.Manifest)
	}
}

// A store through a mapping into a page that is already dirty changes neither the
// modification nor the change time. The scan must see it all the same.
func TestAStoreThroughAMappingAfterAScanIsSeenByTheNext(t *testing.T) {
	root := t.TempDir()
	write(t, string(make([]byte, 10*BlockSize)), root, "mapped")
	f, err := os.OpenFile(filepath.Join(root, "mapped"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	pages, err := unix.Mmap(int(f.Fd()), 0, 10*BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(pages)) }()
	pages[3*BlockSize] = 1
	// The first store is settled long before the scan, as far as times tell.
	time.Sleep(time.Duration(localMargin) + 100*time.Millisecond)
	manifest := filepath.Join(t.TempDir(), "manifest")
	first := scan(t, root, func(o *Options) { o.Manifest = manifest })
	pages[3*BlockSize] = 2
	second := scan(t, root, func(o *Options) { o.Previous = manifest })
	require.NotEqual(t, first.Summary().Root, second.Summary().Root)
	require.Equal(t, reference(t, root), second.Summary().Root)
}

func TestAVolumeThatIsNotWhatItWasIsRefused(t *testing.T) {
	fill := func(t *testing.T, root string, n int) {
		for i := range n {
			write(t, "x", root, fmt.Sprint(i))
		}
	}
	empty := func(t *testing.T, root string, n int) {
		for i := range n {
			require.NoError(t, os.Remove(filepath.Join(root, fmt.Sprint(i))))
		}
	}
	for name, row := range map[string]struct {
		change func(t *testing.T, root string, e *Expectation)
		says   string
	}{
		"the same":     {change: func(*testing.T, string, *Expectation) {}},
		"half is gone": {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 100) }},
		"nearly all gone": {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 199) },
			says: "it has 1 entries, and had 200"},
		"everything gone": {change: func(t *testing.T, root string, _ *Expectation) { empty(t, root, 200) },
			says: "it is empty, and had 200 entries"},
		"gone and allowed": {change: func(t *testing.T, root string, e *Expectation) { empty(t, root, 200); e.AllowFewer = true }},
		"another directory with as much": {change: func(t *testing.T, root string, _ *Expectation) {
			require.NoError(t, os.Rename(root, root+".away"))
			require.NoError(t, os.Mkdir(root, 0o755))
			fill(t, root, 200)
		}, says: "its root is another directory"},
		"another directory, of a copy": {change: func(t *testing.T, root string, e *Expectation) {
			e.Identity.Born.Sec, e.Copied = 1, true
			empty(t, root, 100)
		}},
		"nearly all gone since a copy": {change: func(t *testing.T, root string, e *Expectation) {
			e.Identity.Born.Sec, e.Copied = 1, true
			empty(t, root, 199)
		}, says: "it has 1 entries, and had 200"},
		"born at another time": {change: func(_ *testing.T, _ string, e *Expectation) { e.Identity.Born.Sec-- }, says: "check what is mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "volume")
			fill(t, root, 200)
			expect := scan(t, root).Summary().Expect()
			row.change(t, root, expect)
			manifest := filepath.Join(t.TempDir(), "manifest")
			_, err := Scan(t.Context(), Options{Root: root, Manifest: manifest, Scratch: t.TempDir(), Expect: expect})
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			var collapse *CollapseError
			require.ErrorAs(t, err, &collapse)
			require.ErrorContains(t, err, row.says)
			_, err = os.Stat(manifest)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}
