package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const directoryPrefix = "lodestone-testbed-"

// directory holds the files of one cluster: data, keys and logs.
type directory struct {
	path string
	lock *os.File
}

// newDirectory makes a directory in the system's temporary folder. Its lock tells
// sweepDirectories that the owner is alive.
func newDirectory(name string) (*directory, error) {
	path, err := os.MkdirTemp("", directoryPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("make the directory of cluster %s: %w", name, err)
	}
	d := &directory{path: path}
	if err := d.takeLock(); err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("lock the directory of cluster %s: %w", name, err)
	}
	if err := os.Mkdir(d.file("logs"), 0o755); err != nil {
		d.remove()
		return nil, fmt.Errorf("make the log directory of cluster %s: %w", name, err)
	}
	return d, nil
}

// takeLock locks the file before it gets its name, so that nobody sees it unlocked.
func (d *directory) takeLock() error {
	lock, err := os.Create(d.file("lock.new"))
	if err != nil {
		return err
	}
	d.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	return os.Rename(lock.Name(), d.file("lock"))
}

func (d *directory) file(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

func (d *directory) write(name string, content []byte) error {
	if err := os.WriteFile(d.file(name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// remove removes everything.
func (d *directory) remove() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}

// removeAllButLogs keeps the logs and returns their directory.
func (d *directory) removeAllButLogs() string {
	logs := d.file("logs")
	entries, _ := os.ReadDir(d.path)
	for _, entry := range entries {
		if path := d.file(entry.Name()); path != logs {
			_ = os.RemoveAll(path)
		}
	}
	_ = d.lock.Close()
	return logs
}

// sweepDirectories removes what test beds left behind whose process was killed.
func sweepDirectories() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), directoryPrefix+"*", "lock"))
	for _, path := range locks {
		lock, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}
