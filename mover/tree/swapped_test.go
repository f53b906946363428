package tree

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What takes the place of a file between the look at it and its opening is not read, does
// not hold the scan up, and does not end it.
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
			l := &looker{options: &Options{}, found: &findings{}}
			err = l.readFile(d, "file", &sight{entry: e})
			require.Truef(t, gone(err), "%v", err)
			large := *e
			large.Size = LargeFrom
			err = (&collector{options: &Options{}}).readLarge(t.Context(), d, "file", &sight{entry: &large})
			require.Truef(t, gone(err), "%v", err)
		})
	}
}
