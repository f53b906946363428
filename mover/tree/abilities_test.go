package tree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWhatNoCopyKeepsIsFound(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	write(t, "x", root, "below", "file")
	if err := unix.Mount("tmpfs", filepath.Join(root, "below"), "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(filepath.Join(root, "below"), 0)) }()
	write(t, "x", root, "below", "of another file system")
	bound := write(t, "x", root, "bound")
	require.NoError(t, unix.Mount(write(t, "y", root, "other"), bound, "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(bound, 0)) }()
	deep := strings.Repeat(strings.Repeat("d", 199)+"/", 15)
	require.NoError(t, os.MkdirAll(filepath.Join(root, deep), 0o755))
	inner, err := os.OpenRoot(filepath.Join(root, deep))
	require.NoError(t, err)
	require.NoError(t, inner.MkdirAll(strings.Repeat(strings.Repeat("e", 199)+"/", 6), 0o755))
	require.NoError(t, inner.Close())
	m := scan(t, root)
	for _, path := range paths(t, m) {
		require.NotContains(t, path, "below")
		require.NotContains(t, path, "bound")
		require.LessOrEqual(t, len(path), maxPath+256)
	}
	found := m.Summary().Findings
	require.Len(t, found, 2)
	require.Equal(t, MountBelow, found[0].Kind)
	require.Equal(t, "below", found[0].Path)
	require.Equal(t, uint64(2), found[0].Count)
	require.Equal(t, PathTooLong, found[1].Kind)
	require.Contains(t, found[0].String(), "another file system is mounted there")
}

func TestAnImmutableFileIsFound(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	f, err := os.Open(write(t, "x", root, "file"))
	require.NoError(t, err)
	defer f.Close()
	const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
		t.Skipf("the file system of this machine's temporary directory has no such flag: %v", err)
	}
	defer func() { require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)) }()
	found := scan(t, root).Summary().Findings
	require.Equal(t, []Finding{{Kind: Immutable, Count: 1, Path: "file"}}, found)
}

func TestProbeFindsNothingLackingAndLeavesNothingBehind(t *testing.T) {
	needRoot(t)
	target := t.TempDir()
	require.NoError(t, os.Mkdir(target+"/"+probeName+"left", 0o700))
	a, err := Probe(target)
	require.NoError(t, err)
	if len(a.Lacks) > 0 {
		t.Skipf("the file system of this machine's temporary directory lacks something: %v", a.Lacks)
	}
	require.NotZero(t, a.Bytes)
	left, err := os.ReadDir(target)
	require.NoError(t, err)
	require.Empty(t, left)
}

// tmpfs has no user.* attributes on older kernels, but always a limit of inodes.
func TestProbeTellsTheSpaceOfASmallFileSystem(t *testing.T) {
	needRoot(t)
	target := t.TempDir()
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=1m,nr_inodes=20"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(target, 0)) }()
	a, err := Probe(target)
	require.ErrorIs(t, err, unix.ENOSPC, "with 20 inodes the probe itself does not fit")
	require.Zero(t, a.Bytes)
	require.NoError(t, unix.Mount("", target, "", unix.MS_REMOUNT, "size=1m,nr_inodes=200"))
	a, err = Probe(target)
	require.NoError(t, err)
	require.LessOrEqual(t, a.Bytes, uint64(1<<20))
	require.Less(t, a.Inodes, uint64(200))
}

func TestRefusalsSayInWordsWhyAVolumeCannotBeMoved(t *testing.T) {
	plenty := Abilities{Bytes: 1 << 30, Inodes: 1000}
	for name, row := range map[string]struct {
		source Summary
		target Abilities
		there  *Summary
		want   []Refusal
	}{
		"nothing forbids it": {
			source: Summary{Allocated: 1 << 20, Inodes: 10, Needs: []Need{{Ability: Devices, Path: "null", Count: 1}}},
			target: plenty,
		},
		"a finding": {
			source: Summary{Findings: []Finding{{Kind: Immutable, Path: "etc/passwd", Count: 3}}},
			target: plenty,
			want:   []Refusal{{"etc/passwd", "it is immutable, which a copy would lose; remove the flag with chattr -i (and 2 more like it)"}},
		},
		"a lacking ability": {
			source: Summary{Needs: []Need{{Ability: Devices, Path: "dev/null", Count: 2}}},
			target: Abilities{Bytes: 1, Lacks: map[Ability]string{Devices: "operation not permitted", ACLs: "not needed"}},
			want:   []Refusal{{"dev/null", "the target cannot keep devices (operation not permitted); entries that need it: 2"}},
		},
		"too little space": {
			source: Summary{Allocated: 2 << 30, Inodes: 10},
			target: plenty,
			want:   []Refusal{{"", "the target is too small: the volume takes about 2.0 GiB, the target has 1.0 GiB free"}},
		},
		"holes that the target would fill": {
			source: Summary{Allocated: 1 << 20, Bytes: 2 << 30, Inodes: 10},
			target: Abilities{Bytes: 1 << 30, Lacks: map[Ability]string{Holes: "holes are filled"}},
			want:   []Refusal{{"", "the target is too small: the volume takes about 2.0 GiB, the target has 1.0 GiB free and fills holes"}},
		},
		"space that an earlier pass took already": {
			source: Summary{Allocated: 2 << 30, Inodes: 10},
			target: plenty,
			there:  &Summary{Allocated: 3 << 29},
		},
		"too few inodes": {
			source: Summary{Inodes: 1001},
			target: plenty,
			want:   []Refusal{{"", "the target has too few inodes: the volume takes 1001, the target has 1000 free"}},
		},
		"inodes without limit": {
			source: Summary{Inodes: 1001},
			target: Abilities{Bytes: 1 << 30},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, Refusals(row.source, row.target, row.there))
		})
	}
}
