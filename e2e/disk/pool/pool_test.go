package pool

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, directory string) *Pool {
	t.Helper()
	p, err := Open(directory, 100*Mebibyte, nil)
	require.NoError(t, err)
	return p
}

func put(t *testing.T, p *Pool, id, text string) {
	t.Helper()
	file, err := os.OpenFile(p.Image(id), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte(text), 5*Mebibyte)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func get(t *testing.T, p *Pool, id string, length int) string {
	t.Helper()
	content, err := os.ReadFile(p.Image(id))
	require.NoError(t, err)
	return string(content[5*Mebibyte : 5*Mebibyte+length])
}

func TestSizesAreRoundedUpToWholeMebibytes(t *testing.T) {
	for bytes, want := range map[int64]int64{-1: Mebibyte, 0: Mebibyte, 1: Mebibyte, Mebibyte: Mebibyte, Mebibyte + 1: 2 * Mebibyte} {
		assert.Equal(t, want, RoundUp(bytes), "%d", bytes)
	}
}

func TestMakingAVolumeAgain(t *testing.T) {
	first := Order{Name: "a", Nodes: []string{"n1"}, Bytes: 10 * Mebibyte}
	tests := []struct {
		name  string
		again Order
		want  error
	}{
		{name: "the same order gives the same volume", again: first},
		{name: "less is satisfied by what is there", again: Order{Name: "a", Bytes: 1}},
		{name: "more is not", again: Order{Name: "a", Bytes: 11 * Mebibyte}, want: ErrConflict},
		{name: "a lower limit is not", again: Order{Name: "a", Limit: Mebibyte}, want: ErrConflict},
		{name: "another place is not", again: Order{Name: "a", Nodes: []string{"n2"}}, want: ErrConflict},
		{name: "a copy is not", again: Order{Name: "a", FromVolume: "vol-b"}, want: ErrConflict},
		{name: "other parameters are not", again: Order{Name: "a", Parameters: map[string]string{"k": "v"}}, want: ErrConflict},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := open(t, t.TempDir())
			made, err := p.Make(first)
			require.NoError(t, err)
			again, err := p.Make(test.again)
			require.ErrorIs(t, err, test.want)
			assert.Equal(t, made, again)
			assert.Len(t, p.Volumes(), 1)
		})
	}
}

func TestOrdersThatCannotBeMet(t *testing.T) {
	tests := []struct {
		name  string
		order Order
		want  error
	}{
		{name: "more than the pool", order: Order{Name: "b", Bytes: 101 * Mebibyte}, want: ErrFull},
		{name: "more than the limit once rounded", order: Order{Name: "b", Bytes: Mebibyte + 1, Limit: Mebibyte + 2}, want: ErrInvalid},
		{name: "a name that is a path", order: Order{Name: "../b"}, want: ErrInvalid},
		{name: "a copy of nothing", order: Order{Name: "b", FromVolume: "vol-x"}, want: ErrNotFound},
		{name: "a snapshot that is not there", order: Order{Name: "b", FromSnapshot: "snap-x"}, want: ErrNotFound},
		{name: "a copy smaller than its source", order: Order{Name: "b", FromVolume: "vol-a", Bytes: Mebibyte}, want: ErrInvalid},
		{name: "a copy on another node", order: Order{Name: "b", FromVolume: "vol-a", Bytes: 10 * Mebibyte, Nodes: []string{"n2"}},
			want: ErrFull},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := open(t, t.TempDir())
			_, err := p.Make(Order{Name: "a", Bytes: 10 * Mebibyte, Nodes: []string{"n1"}})
			require.NoError(t, err)
			_, err = p.Make(test.order)
			require.ErrorIs(t, err, test.want)
			assert.Len(t, p.Volumes(), 1)
		})
	}
}

func TestCopiesHoldWhatTheirSourceHeld(t *testing.T) {
	p := open(t, t.TempDir())
	_, err := p.Make(Order{Name: "a", Bytes: 10 * Mebibyte, Nodes: []string{"n1"}})
	require.NoError(t, err)
	put(t, p, "vol-a", "before")
	snapshot, err := p.Snap("s", "vol-a")
	require.NoError(t, err)
	put(t, p, "vol-a", "after!")
	_, err = p.Make(Order{Name: "clone", Bytes: 20 * Mebibyte, FromVolume: "vol-a"})
	require.NoError(t, err)
	require.NoError(t, p.Delete("vol-a"))
	restored, err := p.Make(Order{Name: "restored", Bytes: 10 * Mebibyte, FromSnapshot: snapshot.ID, Nodes: []string{"n2", "n1"}})
	require.NoError(t, err)

	assert.Equal(t, "after!", get(t, p, "vol-clone", 6))
	assert.Equal(t, "before", get(t, p, "vol-restored", 6))
	assert.Equal(t, "n1", restored.Node)
	assert.Equal(t, int64(60*Mebibyte), p.Free("n1"))
	info, err := os.Stat(p.Image("vol-clone"))
	require.NoError(t, err)
	assert.Equal(t, int64(20*Mebibyte), info.Size())
}

func TestVolumesGrowAndNeverShrink(t *testing.T) {
	p := open(t, t.TempDir())
	_, err := p.Make(Order{Name: "a", Bytes: 10 * Mebibyte})
	require.NoError(t, err)
	put(t, p, "vol-a", "kept")
	_, err = p.Make(Order{Name: "other", Bytes: 10 * Mebibyte})
	require.NoError(t, err)
	for _, step := range []struct {
		bytes, limit, want int64
		err                error
	}{
		{bytes: 20*Mebibyte - 1, want: 20},
		{bytes: Mebibyte, want: 20},
		{bytes: 91 * Mebibyte, want: 20, err: ErrFull},
		{bytes: 101 * Mebibyte, want: 20, err: ErrInvalid},
		{bytes: 30 * Mebibyte, limit: 25 * Mebibyte, want: 20, err: ErrInvalid},
	} {
		_, err := p.Grow("vol-a", step.bytes, step.limit)
		require.ErrorIs(t, err, step.err)
		v, err := p.Volume("vol-a")
		require.NoError(t, err)
		assert.Equal(t, step.want*Mebibyte, v.Bytes)
		assert.Equal(t, "kept", get(t, p, "vol-a", 4))
	}
}

func TestWhatAKilledProcessLeftIsRemovedAndTheRestIsKept(t *testing.T) {
	directory := t.TempDir()
	p := open(t, directory)
	made, err := p.Make(Order{Name: "a", Bytes: Mebibyte, Nodes: []string{"n1"}})
	require.NoError(t, err)
	snapshot, err := p.Snap("s", made.ID)
	require.NoError(t, err)
	require.NoError(t, p.Modify(made.ID, map[string]string{"iops": "5"}))
	made.Mutable = map[string]string{"iops": "5"}
	for _, name := range []string{"vol-half.img", "vol-a.json.new"} {
		require.NoError(t, os.WriteFile(p.in("volumes", name), []byte("x"), 0o600))
	}

	p = open(t, directory)
	assert.Equal(t, []Volume{made}, p.Volumes())
	assert.Equal(t, []Snapshot{snapshot}, p.Snapshots())
	assert.NoFileExists(t, p.in("volumes", "vol-half.img"))
	assert.NoFileExists(t, p.in("volumes", "vol-a.json.new"))
	require.NoError(t, p.Delete(made.ID))
	require.NoError(t, p.Delete(made.ID))
	require.NoError(t, p.DeleteSnapshot(snapshot.ID))
	assert.Empty(t, open(t, directory).Volumes())
	assert.Equal(t, int64(100*Mebibyte), p.Free("n1"))
}

func TestSnapshotsOfSeveralVolumesAreOfOneMoment(t *testing.T) {
	directory := t.TempDir()
	p := open(t, directory)
	for _, name := range []string{"a", "b", "c"} {
		_, err := p.Make(Order{Name: name, Bytes: 10 * Mebibyte})
		require.NoError(t, err)
		put(t, p, "vol-"+name, "before")
	}
	id, taken, err := p.SnapGroup("g", []string{"vol-b", "vol-a"})
	require.NoError(t, err)
	require.Len(t, taken, 2)
	put(t, p, "vol-a", "later!")
	assert.Equal(t, taken[0].Created, taken[1].Created)
	assert.Equal(t, []string{"vol-a", "vol-b"}, []string{taken[0].VolumeID, taken[1].VolumeID})

	p = open(t, directory)
	again, same, err := p.SnapGroup("g", []string{"vol-a", "vol-b"})
	require.NoError(t, err)
	assert.Equal(t, id, again)
	assert.Equal(t, taken, same, "they are not taken a second time")
	_, _, err = p.SnapGroup("g", []string{"vol-a", "vol-c"})
	require.ErrorIs(t, err, ErrConflict)
	_, _, err = p.SnapGroup("h", []string{"vol-a", "vol-missing"})
	require.ErrorIs(t, err, ErrNotFound)
	assert.Len(t, p.Snapshots(), 2, "all or none")
	require.ErrorIs(t, p.DeleteSnapshot(taken[0].ID), ErrGrouped)
	_, err = p.Make(Order{Name: "restored", Bytes: 10 * Mebibyte, FromSnapshot: taken[0].ID})
	require.NoError(t, err)
	assert.Equal(t, "before", get(t, p, "vol-restored", len("before")))

	require.NoError(t, p.DeleteGroup(id))
	require.NoError(t, p.DeleteGroup(id), "nothing is left to delete")
	assert.Empty(t, p.Snapshots())
}

func TestAKilledGroupIsTakenAgainAsAWhole(t *testing.T) {
	directory := t.TempDir()
	p := open(t, directory)
	for _, name := range []string{"a", "b"} {
		_, err := p.Make(Order{Name: name, Bytes: 10 * Mebibyte})
		require.NoError(t, err)
	}
	id, taken, err := p.SnapGroup("g", []string{"vol-a", "vol-b"})
	require.NoError(t, err)
	require.NoError(t, os.Remove(p.in("snapshots", taken[1].ID)+recordSuffix), "as a process leaves it that is killed before the last one")
	p = open(t, directory)
	again, whole, err := p.SnapGroup("g", []string{"vol-a", "vol-b"})
	require.NoError(t, err)
	assert.Equal(t, id, again)
	require.Len(t, whole, 2)
	assert.Equal(t, whole[0].Created, whole[1].Created)
	assert.NotEqual(t, taken[0].Created, whole[0].Created)
}

// TestAGroupWaitsForWritersThatLockTheImages: what a writer writes under its lock is in the snapshot.
func TestAGroupWaitsForWritersThatLockTheImages(t *testing.T) {
	p := open(t, t.TempDir())
	for _, name := range []string{"a", "b"} {
		_, err := p.Make(Order{Name: name, Bytes: 10 * Mebibyte})
		require.NoError(t, err)
	}
	image, err := os.Open(p.Image("vol-b"))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(image.Fd()), syscall.LOCK_SH))
	taken := make(chan error)
	go func() {
		_, _, err := p.SnapGroup("g", []string{"vol-a", "vol-b"})
		taken <- err
	}()
	put(t, p, "vol-b", "late")
	require.NoError(t, image.Close())
	require.NoError(t, <-taken)
	_, err = p.Make(Order{Name: "copy", Bytes: 10 * Mebibyte, FromSnapshot: "snap-g.vol-b"})
	require.NoError(t, err)
	assert.Equal(t, "late", get(t, p, "vol-copy", 4))
}
