// Package mtls_test has a real kube-scheduler ask the extender over TLS, with the
// certificates that the program makes in Secrets, and changes all of them while
// pods are scheduled.
package mtls_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestMain(m *testing.M) {
	// The only test with a cluster starts it itself: it needs a directory before.
	testbed.Main(m, func(context.Context) error { return nil })
}

// deploy returns the path of something in deploy/.
func deploy(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy"}, path...)...)
}

// mounted is a directory that is like the volume of a Secret: all files change at
// once, by a link that is replaced.
type mounted struct {
	path  string
	count int
}

func (m *mounted) put(files map[string][]byte) error {
	m.count++
	target := fmt.Sprintf("..%d", m.count)
	if err := os.MkdirAll(filepath.Join(m.path, target), 0o700); err != nil {
		return fmt.Errorf("make a directory of files: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(m.path, target, name), content, 0o600); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.path, name)); err != nil && !os.IsExist(err) {
			return fmt.Errorf("link a file: %w", err)
		}
	}
	temporary := filepath.Join(m.path, "..next")
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("link the files: %w", err)
	}
	return os.Rename(temporary, filepath.Join(m.path, "..data"))
}

func (m *mounted) file(name string) string {
	return filepath.Join(m.path, name)
}
