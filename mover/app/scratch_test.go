package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// limited starts both movers anew, which may keep so many bytes each.
func limited(t *testing.T, m *move, bytes int) {
	t.Helper()
	require.NoError(t, m.KillSender(true))
	require.NoError(t, m.KillReceiver(true))
	m.More = []string{"--scratch-limit=" + strconv.Itoa(bytes)}
	require.NoError(t, m.StartReceiver(m.ctx))
	require.NoError(t, m.StartSender(m.ctx))
}

// files makes files whose names take about 350 bytes each in a manifest.
func files(t *testing.T, dir string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		write(t, dir, fmt.Sprintf("d/%s-%d", strings.Repeat("x", 200), i), nil)
	}
}

func TestWhatMoversCannotRememberIsRefusedBeforeAnythingStops(t *testing.T) {
	source := t.TempDir()
	files(t, source, 0, 300)
	m := begin(t, source, false)
	limited(t, m, 200_000)
	prepared := m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared
	require.Len(t, prepared.Refusals, 2)
	for i, end := range []string{"source", "target"} {
		assert.Regexp(t, `^the mover at the `+end+` must remember up to \d+\.\d KiB of the files, and has room for 195\.3 KiB \(its limit; let `+
			`movers keep more with --mover-scratch of the provisioner\)$`, prepared.Refusals[i].Reason)
	}

	limited(t, m, 500_000)
	assert.Empty(t, m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals)
	m.do(movecontrol.Task{Kind: movecontrol.Pass})
	// What comes afterwards fails a pass, and no mover takes more than it may.
	files(t, source, 300, 2000)
	_, err := m.try(movecontrol.Task{Kind: movecontrol.Pass})
	require.ErrorContains(t, err, "the mover at the source may keep 488.3 KiB on the disk of its node, and what it must remember of the files takes more")
	for _, verb := range []string{"send", "receive"} {
		var kept int64
		found, err := filepath.Glob(filepath.Join(m.Scratch(verb), "*"))
		require.NoError(t, err)
		for _, path := range found {
			info, err := os.Stat(path)
			require.NoError(t, err)
			kept += info.Size()
		}
		assert.LessOrEqual(t, kept, int64(500_000))
	}
}

func TestALargeSparseFileIsMovedWithLittleRoomOnTheNodes(t *testing.T) {
	const size = 200 << 30
	source := t.TempDir()
	image, err := os.Create(filepath.Join(source, "image"))
	require.NoError(t, err)
	defer image.Close()
	require.NoError(t, image.Truncate(size))
	for _, at := range []int64{0, 77 << 30, size - 4} {
		_, err := image.WriteAt([]byte("data"), at)
		require.NoError(t, err)
	}
	m := begin(t, source, false)
	limited(t, m, 64<<10)
	assert.Empty(t, m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Refusals)
	m.do(movecontrol.Task{Kind: movecontrol.Pass})
	_, err = image.WriteAt([]byte("more"), 150<<30)
	require.NoError(t, err)
	passed := m.do(movecontrol.Task{Kind: movecontrol.Final}).Passed
	assert.Less(t, passed.BytesSent, int64(1<<20))
	m.verified(true)
	there, err := os.Open(filepath.Join(m.Target, "image"))
	require.NoError(t, err)
	defer there.Close()
	got := make([]byte, 4)
	_, err = there.ReadAt(got, 150<<30)
	require.NoError(t, err)
	assert.Equal(t, "more", string(got))
}
