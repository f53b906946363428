package app_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// device makes a file of a content that stands for a block device.
func device(t *testing.T, content []byte) string {
	t.Helper()
	return write(t, t.TempDir(), "device", content)
}

// loop makes a block device of a file.
func loop(t *testing.T, file string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device can be made here: %v: %s", err, output)
	}
	path := strings.TrimSpace(string(output))
	t.Cleanup(func() { require.NoError(t, exec.Command("losetup", "--detach", path).Run()) })
	return path
}

// beginBlock starts movers between two block volumes, and does Prepare.
func beginBlock(t *testing.T, source, target string) *move {
	t.Helper()
	m := setUp(t, t.TempDir(), false)
	m.Stop()
	started, err := harness.Start(m.ctx, harness.Setup{Program: m.Program, Folder: t.TempDir(), Source: source, Target: target})
	require.NoError(t, err)
	t.Cleanup(func() {
		started.Stop()
		if t.Failed() {
			t.Log(started.Log())
		}
	})
	m.Move, m.expect = started, nil
	return m
}

// blocky is content with zeros in the middle and an odd end.
func blocky(t *testing.T) []byte {
	t.Helper()
	return append(append(random(t, 6<<20), make([]byte, 4<<20)...), random(t, 1<<20+4096)...)
}

func put(t *testing.T, path string, at int64, content []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(content, at)
	require.NoError(t, err)
	require.NoError(t, file.Sync())
	require.NoError(t, file.Close())
}

func TestABlockVolumeIsMovedByItsBlocks(t *testing.T) {
	for name, really := range map[string]bool{"files": false, "loop devices": true} {
		t.Run(name, func(t *testing.T) {
			content := blocky(t)
			source, target := device(t, content), device(t, random(t, 12<<20))
			if really {
				source, target = loop(t, source), loop(t, target)
			}
			m := beginBlock(t, source, target)
			prepared := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared
			require.Empty(t, prepared.Refusals)
			assert.EqualValues(t, len(content), prepared.Bytes)
			m.expect = prepared.Source
			first := m.do(moverapi.Task{Kind: moverapi.Pass}).Passed
			assert.Less(t, first.BytesSent, int64(8<<20), "zeros are not sent")

			put(t, source, 3<<20, []byte("changed"))
			put(t, source, 5<<20, make([]byte, 64<<10))
			copy(content[3<<20:], "changed")
			copy(content[5<<20:], make([]byte, 64<<10))
			final := m.do(moverapi.Task{Kind: moverapi.Final}).Passed
			assert.Less(t, final.BytesSent, int64(64<<10), "only blocks that changed are sent")
			m.verified(false)
			there, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(content, there[:len(content)]))

			put(t, target, 7<<20, []byte{1})
			v := m.do(moverapi.Task{Kind: moverapi.Verify}).Verified
			assert.False(t, v.Equal, "a bit that flipped at the target")
		})
	}
}

func TestABlockVolumeThatCannotBeMovedIsRefused(t *testing.T) {
	m := beginBlock(t, device(t, blocky(t)), device(t, make([]byte, 1<<20)))
	found := m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Refusals
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Reason, "too small")

	m = beginBlock(t, device(t, blocky(t)), t.TempDir())
	_, err := m.try(moverapi.Task{Kind: moverapi.Prepare})
	require.ErrorContains(t, err, "volume mode")
	left, err := os.ReadDir(m.Target)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestABlockVolumeOfAnotherSizeIsNotTheSource(t *testing.T) {
	source := device(t, blocky(t))
	m := beginBlock(t, source, device(t, make([]byte, 16<<20)))
	m.expect = m.do(moverapi.Task{Kind: moverapi.Prepare}).Prepared.Source
	m.do(moverapi.Task{Kind: moverapi.Pass})
	before, err := os.ReadFile(m.Target)
	require.NoError(t, err)
	require.NoError(t, m.KillSender(true))
	require.NoError(t, os.Rename(source, filepath.Join(filepath.Dir(source), "away")))
	write(t, filepath.Dir(source), "device", make([]byte, 8<<20))
	require.NoError(t, m.StartSender(m.ctx))
	_, err = m.try(moverapi.Task{Kind: moverapi.Final})
	require.ErrorContains(t, err, "check which device it is")
	after, err := os.ReadFile(m.Target)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after))
}
