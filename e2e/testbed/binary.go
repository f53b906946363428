package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// KubernetesVersion is the version of the control planes.
const KubernetesVersion = "v1.36.3"

// Binary returns the path of the program that is etcd, the control plane and kubectl
// in one: $LODESTONE_CONTROLPLANE if that is set, otherwise the one in the user's
// cache for the present sources. If there is none, Binary builds it, which takes
// several minutes once, and reports progress to out. Callers in several processes
// do no harm to each other: one builds, the others wait.
func Binary(ctx context.Context, out io.Writer) (string, error) {
	if path := os.Getenv("LODESTONE_CONTROLPLANE"); path != "" {
		if !isProgram(path) {
			return "", fmt.Errorf("LODESTONE_CONTROLPLANE names %s, which is not a program: unset it or correct it", path)
		}
		return path, nil
	}
	sources, err := findSources()
	if err != nil {
		return "", err
	}
	hash, err := hashSources(sources)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w", err)
	}
	path := filepath.Join(cache, "lodestone", "controlplane-"+KubernetesVersion+"-"+hash)
	if isProgram(path) {
		return path, nil
	}
	return path, buildOnce(ctx, sources, path, out)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// findSources returns the directory of the module that the program is built from.
func findSources() (string, error) {
	root, err := SourceTree()
	if err != nil {
		return "", fmt.Errorf("%w, or set LODESTONE_CONTROLPLANE", err)
	}
	return filepath.Join(root, controlPlaneSources), nil
}

// controlPlaneSources is that directory in the source tree.
var controlPlaneSources = filepath.Join("e2e", "controlplane")

// SourceTree returns the root folder of the source tree that the program runs in. It is
// not what the compiler knew, since programs are built so that they do not name it.
func SourceTree() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, controlPlaneSources, "go.mod")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("found no %s above %s: run inside the source tree", controlPlaneSources, start)
		}
	}
}

// hashSources identifies what the program is built from.
func hashSources(directory string) (string, error) {
	hash := sha256.New()
	sources, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list the sources of the control plane program: %w", err)
	}
	for _, path := range append(sources, filepath.Join(directory, "go.mod"), filepath.Join(directory, "go.sum")) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the sources of the control plane program: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n", filepath.Base(path), len(content))
		hash.Write(content)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}

// buildOnce builds the program unless another process has done so meanwhile.
func buildOnce(ctx context.Context, sources, path string, out io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("open the build lock: %w", err)
	}
	defer lock.Close()
	if err := waitForLock(ctx, lock, out); err != nil {
		return err
	}
	if isProgram(path) {
		return nil
	}
	return build(ctx, sources, path, out)
}

// waitForLock takes the lock, which the kernel drops when its holder ends.
func waitForLock(ctx context.Context, lock *os.File, out io.Writer) error {
	for said := false; ; said = true {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		if !said {
			fmt.Fprintln(out, "Another process is building the control planes; waiting for it.")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another build of the control planes: %w", ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}
