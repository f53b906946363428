package testbed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	versionPackage = "k8s.io/component-base/version"

	// progressInterval is the time between two lines of progress.
	progressInterval = 15 * time.Second
)

// build builds the program and gives it its name only when it is complete.
func build(ctx context.Context, sources, path string, out io.Writer) error {
	started := time.Now()
	fmt.Fprintf(out, "Building etcd, the Kubernetes %s control plane and kubectl from Go modules.\n"+
		"This happens once and takes 5 to 8 minutes on two cores; the result is kept in %s.\n", KubernetesVersion, path)
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(temporary)
	progress := &buildProgress{}
	stop := progress.report(out, started)
	defer stop()
	// The list needs the modules, so this is where they are downloaded.
	progress.total.Store(int64(countPackages(ctx, sources)))
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36", versionPackage, KubernetesVersion)
	cmd := goCommand(ctx, sources, "build", "-v", "-trimpath", "-ldflags", flags, "-o", temporary, ".")
	var messages bytes.Buffer
	if err := progress.follow(cmd, &messages); err != nil {
		return fmt.Errorf("build the control planes: %w\n%s", err, strings.TrimSpace(messages.String()))
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("name the built program: %w", err)
	}
	stop()
	fmt.Fprintf(out, "Built the control planes in %v.\n", time.Since(started).Round(time.Second))
	return nil
}

func goCommand(ctx context.Context, directory string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = directory
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	// The compilers that go starts are stopped with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// countPackages returns how many packages the program consists of; zero if that
// cannot be told, in which case the build itself says what is wrong.
func countPackages(ctx context.Context, sources string) int {
	output, err := goCommand(ctx, sources, "list", "-deps", ".").Output()
	if err != nil {
		return 0
	}
	return bytes.Count(output, []byte("\n"))
}

// buildProgress counts the packages that a build has reached.
type buildProgress struct {
	total, reached atomic.Int64
}

// follow runs a verbose build. It counts the lines that name packages and keeps the others.
func (p *buildProgress) follow(cmd *exec.Cmd, messages io.Writer) error {
	reader, writer := io.Pipe()
	cmd.Stderr = writer
	var followed sync.WaitGroup
	followed.Go(func() {
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			if isPackage(lines.Text()) {
				p.reached.Add(1)
			} else {
				fmt.Fprintln(messages, lines.Text())
			}
		}
		_, _ = io.Copy(io.Discard, reader) // a line too long for the scanner must not block the build
	})
	err := cmd.Run()
	_ = writer.Close()
	followed.Wait()
	return err
}

// isPackage tells the import paths that `go build -v` prints from its messages.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :\t#")
}

// report prints progress until the returned function is called, which may be done twice.
func (p *buildProgress) report(out io.Writer, started time.Time) func() {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(out, "%6v  %s\n", time.Since(started).Round(time.Second), p.phase())
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		ended.Wait()
	})
}

func (p *buildProgress) phase() string {
	total, reached := p.total.Load(), p.reached.Load()
	switch {
	case reached == 0 && total == 0:
		return "fetching modules"
	case reached == 0:
		return "compiling"
	case total == 0:
		return fmt.Sprintf("%d packages compiled", reached)
	default:
		// Packages that Go has in its cache are never named, so the total is not always reached.
		return fmt.Sprintf("%d of at most %d packages compiled", reached, total)
	}
}
