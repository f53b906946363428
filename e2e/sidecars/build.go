package sidecars

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

// Programs are the directories that hold the built programs.
type Programs struct {
	disk, volumes, snapshots string
}

// Directories returns them: that of the driver, and those of the sidecars. One has
// the folder crd, with the custom resources of snapshots.
func (p Programs) Directories() []string { return []string{p.disk, p.volumes, p.snapshots} }

// module is one that programs are built from.
type module struct {
	// name is that of the directory in the cache, folder where the sources are,
	// relative to this package.
	name, folder string
	// target is what `go build` is given.
	target string
	// extra puts more into the built directory.
	extra func(ctx context.Context, sources, built string) error
}

// Build returns the programs: from the user's cache, or built, which takes a few
// minutes once and is told to out. Callers in several processes do no harm to each
// other: one builds, the others wait.
func Build(ctx context.Context, out io.Writer) (Programs, error) {
	var p Programs
	for _, m := range []struct {
		module
		into *string
	}{
		{module{name: "csi-disk", folder: "../disk", target: "."}, &p.disk},
		{module{name: "csi-volumes", folder: "volumes", target: "tool"}, &p.volumes},
		{module{name: "csi-snapshots", folder: "snapshots", target: "tool", extra: copyDefinitions}, &p.snapshots},
	} {
		path, err := m.build(ctx, out)
		if err != nil {
			return p, fmt.Errorf("build the programs of e2e/sidecars/%s: %w", m.folder, err)
		}
		*m.into = path
	}
	return p, nil
}

// build returns the directory with the programs of a module.
func (m module) build(ctx context.Context, out io.Writer) (string, error) {
	root, err := testbed.SourceTree()
	if err != nil {
		return "", err
	}
	sources := filepath.Join(root, "e2e", "sidecars", m.folder)
	hash, err := hashOf(sources)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w", err)
	}
	path := filepath.Join(cache, "lodestone", m.name+"-"+hash)
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
	fmt.Fprintf(out, "Building %s from Go modules, once; the result is kept in %s.\n", m.name, path)
	temporary := path + ".new"
	if err := errors.Join(os.RemoveAll(temporary), os.Mkdir(temporary, 0o755)); err != nil {
		return "", err
	}
	if _, err := goCommand(ctx, sources, "build", "-trimpath", "-ldflags", "-s -w", "-o", temporary+"/", m.target); err != nil {
		return "", err
	}
	if m.extra != nil {
		if err := m.extra(ctx, sources, temporary); err != nil {
			return "", err
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "Built %s in %v.\n", m.name, time.Since(started).Round(time.Second))
	return path, nil
}

// goCommand runs go in a module and returns what it prints.
func goCommand(ctx context.Context, directory string, args ...string) (string, error) {
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

// copyDefinitions copies the custom resource definitions of snapshots out of the
// module that has them.
func copyDefinitions(ctx context.Context, sources, built string) error {
	from, err := goCommand(ctx, sources, "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(built, definitions), os.DirFS(filepath.Join(from, "config", "crd"))); err != nil {
		return fmt.Errorf("copy the custom resource definitions: %w", err)
	}
	return nil
}

// definitions is the folder of the custom resource definitions.
const definitions = "crd"
