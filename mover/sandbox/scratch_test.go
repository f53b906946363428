package sandbox

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABudgetIsWhatTheLimitLeaves(t *testing.T) {
	f := Scratch{Path: t.TempDir(), Limit: 1000, Owner: "the mover at the source"}
	require.NoError(t, os.WriteFile(f.File("source.manifest"), make([]byte, 300), 0o600))
	b, err := f.Budget()
	require.NoError(t, err)
	require.NoError(t, b.Reserve(600))
	assert.EqualError(t, b.Reserve(101), "the mover at the source may keep 1000 bytes on the disk of its node, and what it must remember "+
		"of the files "+
		"takes more; let movers keep more with --mover-scratch of the provisioner")
	assert.Error(t, b.Reserve(1<<64-1))
	require.NoError(t, b.Reserve(100), "what was refused was not taken")
	assert.Error(t, b.Reserve(1))
	b.Release(50)
	assert.NoError(t, b.Reserve(50))

	b, err = Scratch{Path: f.Path}.Budget()
	require.NoError(t, err)
	assert.NoError(t, b.Reserve(1<<62), "without a limit")
}

func TestRoomIsTheLimitOrHalfOfTheDisk(t *testing.T) {
	f := Scratch{Path: t.TempDir(), Limit: 1}
	room, err := f.Space()
	require.NoError(t, err)
	assert.EqualValues(t, 1, room.Bytes)
	assert.Contains(t, room.Bound, "--mover-scratch")
	f.Limit = 0
	room, err = f.Space()
	require.NoError(t, err)
	assert.Greater(t, room.Bytes, uint64(1))
	assert.Contains(t, room.Bound, "disk of its node")
	assert.Empty(t, ScratchRefusal("the mover at the source", 10, ScratchSpace{Bytes: 10}))
	assert.Equal(t, "the mover at the source must remember up to 3.0 KiB of the files, and has room for 2.0 KiB (why)",
		ScratchRefusal("the mover at the source", 3<<10, ScratchSpace{Bytes: 2 << 10, Bound: "why"}))
}
