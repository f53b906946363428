package testbed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/await"
)

// Enabled reports whether tests may start clusters: LODESTONE_TESTBED is 1.
func Enabled() bool { return os.Getenv("LODESTONE_TESTBED") == "1" }

// Require skips the test unless tests may start clusters.
func Require(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skip("needs control planes: run `make test`")
	}
}

// leftOut is true once a test was left out by NotInShort.
var leftOut atomic.Bool

// NotInShort skips a test where E2E_SHORT is set, as in .ci/run, whose time is limited: it takes long, and a test that is like it does
// run. `make test` and the nightly workflow run all.
func NotInShort(t testing.TB) {
	t.Helper()
	if os.Getenv("E2E_SHORT") != "" {
		leftOut.Store(true)
		t.Skip("it takes long, and E2E_SHORT is set")
	}
}

// Parallel has so many tests of a package run at once that say they may, unless the flag
// -parallel was given: those that mostly wait need not wait for one another. It is for a
// TestMain.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// Main is the body of a TestMain: it calls start, which may start clusters that the
// package's tests share, runs the tests, stops the clusters and exits. When tests may
// not start clusters, start is not called. An interrupt stops the clusters and exits.
//
// When all tests of the package ran and passed, each of after is called before the
// clusters are stopped: for what only all of them together show. An error fails the package.
func Main(m *testing.M, start func(context.Context) error, after ...func(context.Context) error) {
	os.Exit(run(m, start, after))
}

func run(m *testing.M, start func(context.Context) error, after []func(context.Context) error) int {
	if !Enabled() {
		return m.Run()
	}
	started := time.Now()
	logs, err := divertLogs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		// Tests cannot be stopped from here, and without clusters they only fail.
		<-interrupts
		cancel()
		stopRunning()
		logs.end(false)
		os.Exit(130)
	}()
	code := runOn(ctx, m, start, after)
	if code != 0 {
		keepRunningLogs()
	}
	cancel()
	stopRunning()
	logs.end(code != 0)
	noteTimes(started)
	return code
}

// noteTimes adds a line to the file that LODESTONE_TIMES names: the folder of the package,
// how many seconds it ran, how many its tests waited together, and how many seconds of a
// processor it took with all that it started.
func noteTimes(started time.Time) {
	path := os.Getenv("LODESTONE_TIMES")
	if path == "" {
		return
	}
	var processor time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err == nil {
			processor += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	folder, _ := os.Getwd()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // it is to be read
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %.0f %.0f %.0f\n", filepath.Base(folder), time.Since(started).Seconds(), await.Waited().Seconds(),
		processor.Seconds())
}

// runOn starts the clusters and runs the tests on them.
func runOn(ctx context.Context, m *testing.M, start func(context.Context) error, after []func(context.Context) error) int {
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	code := m.Run()
	if code != 0 || chosen() {
		return code
	}
	for _, check := range after {
		if err := check(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "testbed:", err)
			code = 1
		}
	}
	return code
}

// chosen says whether only some of the package's tests ran.
func chosen() bool {
	some := leftOut.Load()
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		some = some || flag.Lookup(name).Value.String() != ""
	}
	return some
}

func keepRunningLogs() {
	running.Lock()
	defer running.Unlock()
	for _, c := range running.clusters {
		c.KeepLogs()
	}
}

func stopRunning() {
	running.Lock()
	defer running.Unlock()
	stopAll(running.clusters)
	running.clusters = nil
}

// Namespace makes a namespace with the same new name in each cluster, waits until
// pods can be created in it and deletes it after the test. It skips the test unless
// tests may start clusters.
func Namespace(t testing.TB, clusters ...*Cluster) string {
	t.Helper()
	Require(t)
	name := "test-" + rand.String(8)
	for _, c := range clusters {
		if err := c.MakeNamespace(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("delete namespace %s in cluster %s: %v", name, c.Name(), err)
			}
		})
	}
	return name
}

// MakeNamespace makes a namespace and waits until pods can be created in it.
func (c *Cluster) MakeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s in cluster %s: %w", name, c.Name(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the default service account of namespace %s in cluster %s: %w", name, c.Name(), errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// divertedLogs is where the log of this process itself goes while tests run. The
// libraries log every event and every retry, which would bury what a test says.
type divertedLogs struct {
	file *os.File
}

func divertLogs() (*divertedLogs, error) {
	file, err := os.CreateTemp("", directoryPrefix+"tests-*.log")
	if err != nil {
		return nil, fmt.Errorf("make the log file of the tests: %w", err)
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("divert the log of the tests: %w", err)
		}
	}
	klog.SetOutput(file)
	return &divertedLogs{file: file}, nil
}

// end removes the log, unless it is to be kept. What is logged from now on, by clients
// whose clusters have stopped, interests nobody.
func (l *divertedLogs) end(keep bool) {
	klog.Flush()
	klog.SetOutput(io.Discard)
	_ = l.file.Close()
	if keep {
		fmt.Fprintln(os.Stderr, "testbed: the log of the tests themselves is", l.file.Name())
		return
	}
	_ = os.Remove(l.file.Name())
}
