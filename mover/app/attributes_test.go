package app_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// labelled gives a file attributes of the machine that it is on. Only a program with
// CAP_SYS_ADMIN may set or remove security.lodestone-test.
func labelled(t *testing.T, path, label string) {
	t.Helper()
	for _, name := range []string{"security.selinux", "security.lodestone-test"} {
		if err := unix.Lsetxattr(path, name, []byte(label), 0); err != nil {
			t.Skipf("attributes %s cannot be set here: %v", name, err)
		}
	}
}

func attribute(t *testing.T, path, name string) string {
	t.Helper()
	value := make([]byte, 100)
	n, err := unix.Lgetxattr(path, name, value)
	require.NoError(t, err, name)
	return string(value[:n])
}

func TestAttributesOfTheMachineStayAtBothEndsAsTheyAre(t *testing.T) {
	harness.Require(t)
	source := t.TempDir()
	files := []string{write(t, source, "d/small", []byte("small")), write(t, source, "d/large", random(t, 5<<20))}
	for _, path := range append(files, source, filepath.Join(source, "d")) {
		labelled(t, path, "source")
		require.NoError(t, unix.Lsetxattr(path, "user.kept", []byte("kept"), 0))
		require.NoError(t, unix.Lsetxattr(path, "user.kept/with.slash", []byte("kept"), 0))
	}
	m := begin(t, source, false)
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified(true)
	there := func(name string) string { return filepath.Join(m.Target, name) }
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		assert.Equal(t, "kept", attribute(t, there(name), "user.kept"))
		assert.Equal(t, "kept", attribute(t, there(name), "user.kept/with.slash"))
		_, err := unix.Lgetxattr(there(name), "security.lodestone-test", nil)
		assert.ErrorIs(t, err, unix.ENODATA, "labels of the source mean nothing at the target")
	}
	// Labels of the target, as its kernel gives them, and another content that only the
	// file's change time tells of: rsync gets a list of such files and is told of no filter.
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		labelled(t, there(name), "target")
		require.NoError(t, unix.Lsetxattr(there(name), "user.stale", []byte("stale"), 0))
	}
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	write(t, source, "d/small", []byte("SMALL"))
	require.NoError(t, os.Chtimes(files[0], info.ModTime(), info.ModTime()))
	m.do(movecontrol.Task{Kind: movecontrol.Final})
	m.verified(true)
	for _, name := range []string{".", "d", "d/large"} {
		assert.Equal(t, "target", attribute(t, there(name), "security.lodestone-test"))
		assert.Equal(t, "target", attribute(t, there(name), "security.selinux"))
	}
	for _, name := range []string{".", "d", "d/small", "d/large"} {
		_, err := unix.Lgetxattr(there(name), "user.stale", nil)
		assert.ErrorIs(t, err, unix.ENODATA)
	}
}
