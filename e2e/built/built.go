// Package built has programs that tests need and that are built from Go modules of their
// own, so that the product does not have their dependencies. They are kept in the user's
// cache. It needs nothing but Go's own library, so that it is ready before they are.
package built

import (
	"cmp"
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
)

// Set is programs that are built together.
type Set struct {
	// Name is that of the directory in the cache, and what people read. Folder is where the
	// module is, relative to the root of the source tree.
	Name, Folder string
	// Packages and Tags are what `go build` is given.
	Packages []string
	Tags     string
	// Version is the version of Kubernetes that the programs say; empty: KubernetesVersion.
	Version string
	// Modfile is what go.mod is called in the folder; empty: go.mod.
	Modfile string
	// extra, if not nil, puts more into the built directory.
	extra func(ctx context.Context, module, built string) error
}

// Build returns the directory with the programs of a set: from the user's cache, or built,
// which is told to out. Callers in several processes do no harm to each other: one builds,
// the others wait.
func (s Set) Build(ctx context.Context, out io.Writer) (string, error) {
	root, err := SourceTree()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, s.Folder)
	hash, err := hashOf(module, cmp.Or(s.Modfile, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", s.Name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w", err)
	}
	path := filepath.Join(cache, "lodestone", s.Name+"-"+hash)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, path+".lock", func() { fmt.Fprintf(out, "another process builds %s: waiting for it\n", s.Name) })
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	started := time.Now()
	fmt.Fprintf(out, "building %s from Go modules, once; it is kept in %s\n", s.Name, path)
	if err := s.build(ctx, root, path, out); err != nil {
		return "", fmt.Errorf("build %s: %w", s.Name, err)
	}
	fmt.Fprintf(out, "built %s in %v\n", s.Name, time.Since(started).Round(time.Second))
	return path, nil
}

// build builds the programs, and gives their directory its name only when it is complete.
func (s Set) build(ctx context.Context, root, path string, out io.Writer) error {
	temporary := path + ".new"
	if err := errors.Join(os.RemoveAll(temporary), os.Mkdir(temporary, 0o755)); err != nil {
		return err
	}
	module := filepath.Join(root, s.Folder)
	const at = "k8s.io/component-base/version"
	version := cmp.Or(s.Version, KubernetesVersion)
	args := []string{
		s.Name, "build", "-tags=" + s.Tags, "-o", temporary + "/",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s", at, version,
			strings.Split(version, ".")[1]),
	}
	if s.Modfile != "" {
		args = append(args, "-modfile="+s.Modfile)
	}
	cmd := command(ctx, module, filepath.Join(root, "hack", "go.sh"), append(args, s.Packages...)...)
	cmd.Stderr = out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: see above", err)
	}
	if s.extra != nil {
		if err := s.extra(ctx, module, temporary); err != nil {
			return err
		}
	}
	return os.Rename(temporary, path)
}

// command is one that runs in a module, with the flags that everything here is built with:
// what has been compiled for one program serves all others.
func command(ctx context.Context, module, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	// The compilers that go starts are stopped with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// SourceTree returns the root folder of the source tree that the program runs in. It is
// not what the compiler knew, since programs are built so that they do not name it.
func SourceTree() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, programs, "go.mod")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("found no %s above %s: run inside the source tree", programs, start)
		}
	}
}

// hashOf identifies what a module's programs are built from; modfile is what its go.mod is called.
func hashOf(module, modfile string) (string, error) {
	hash := sha256.New()
	modsum := strings.TrimSuffix(modfile, ".mod") + ".sum"
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != module {
				return fs.SkipDir // another module
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") || (filepath.Ext(name) != ".go" && name != modfile && name != modsum) {
			return nil
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n", path[len(module):], len(content))
		hash.Write(content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the sources: %w", err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}

// lock waits for a lock between processes, which ends with its holder, and calls waits if
// another process has it.
func lock(ctx context.Context, path string, waits func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
