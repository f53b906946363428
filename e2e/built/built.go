// Package built has programs that tests need and that are built from Go modules of their
// own, so that the product does not have their dependencies. They are kept in the user's
// cache.
package built

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Module is one that programs are built from.
type Module struct {
	// Name is that of the directory in the cache, Folder where the sources are, relative to
	// the root of the source tree.
	Name, Folder string
	// Target is what `go build` is given.
	Target string
	// Extra, if not nil, puts more into the built directory.
	Extra func(ctx context.Context, sources, built string) error
}

// Build returns the directory with the programs of a module: from the user's cache, or
// built, which is told to out. Callers in several processes do no harm to each other: one
// builds, the others wait.
func (m Module) Build(ctx context.Context, out io.Writer) (string, error) {
	root, err := testbed.SourceTree()
	if err != nil {
		return "", err
	}
	sources := filepath.Join(root, m.Folder)
	hash, err := hashOf(sources)
	if err != nil {
		return "", fmt.Errorf("build the programs of %s: %w", m.Folder, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w", err)
	}
	path := filepath.Join(cache, "lodestone", m.Name+"-"+hash)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	started := time.Now()
	fmt.Fprintf(out, "Building %s from Go modules, once; the result is kept in %s.\n", m.Name, path)
	temporary := path + ".new"
	if err := errors.Join(os.RemoveAll(temporary), os.Mkdir(temporary, 0o755)); err != nil {
		return "", err
	}
	if _, err := Go(ctx, sources, "build", "-trimpath", "-ldflags", "-s -w", "-o", temporary+"/", m.Target); err != nil {
		return "", err
	}
	if m.Extra != nil {
		if err := m.Extra(ctx, sources, temporary); err != nil {
			return "", err
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "Built %s in %v.\n", m.Name, time.Since(started).Round(time.Second))
	return path, nil
}

// Go runs go in a module and returns what it prints.
func Go(ctx context.Context, directory string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = directory
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	// The compilers that go starts are stopped with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var messages strings.Builder
	cmd.Stderr = &messages
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, messages.String())
	}
	return strings.TrimSpace(string(output)), nil
}

// hashOf identifies what a module's programs are built from.
func hashOf(directory string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") ||
			(filepath.Ext(name) != ".go" && name != "go.mod" && name != "go.sum") {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n", path[len(directory):], len(content))
		hash.Write(content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the sources: %w", err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}

// lock waits for a lock between processes, which ends with its holder.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
