// Command bench-virtualnode measures the memory and the start of the virtual node program with many pods,
// and how long it holds up one pod then. It prints one JSON object a measure and ends with status 1 if a budget is
// not kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

const (
	// memoryBudget is in MB; growthBudget is what twice the pods may need.
	memoryBudget, growthBudget = 600, 2.1
	// latencyBudget is how much longer one pod may take with many than with few.
	latencyBudget = 1.5
	// few is how many pods are few.
	few = 10 * largecluster.RemoteClusters
	// podTimeout bounds how long one pod takes.
	podTimeout = time.Minute
)

func main() {
	pods := flag.Int("pods", 5000, "how many pods there are in each of 10 clusters; half of them are measured too")
	single := flag.Int("single", 21, "how many single pods are measured")
	verbosity := flag.Int("v", -1, "log verbosity of the program under test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *pods*largecluster.RemoteClusters, *single, *verbosity); err != nil {
		fmt.Fprintln(os.Stderr, "bench-virtualnode:", err)
		os.Exit(1) //nolint:gocritic // everything is stopped by now
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func run(ctx context.Context, pods, single, verbosity int) error {
	directory, err := os.MkdirTemp("", "bench-virtualnode-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	program := filepath.Join(directory, "lodestone-virtualnode")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./virtualnode")
	build.Dir = fabric.Root()
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the virtual node program: %w\n%s", err, output)
	}
	var starts [3]measure.Startup
	var latencies [3]time.Duration
	for i, pods := range []int{few, pods / 2, pods} {
		f, err := newFleet(ctx, directory, program, pods, verbosity)
		if err != nil {
			return err
		}
		starts[i], latencies[i], err = f.measure(ctx, single)
		f.stop()
		if err != nil {
			return err
		}
		say("virtual node program with %d pods: %v; one pod %v", pods, starts[i], latencies[i].Round(100*time.Microsecond))
	}
	what := fmt.Sprintf("with %d pods in %d remote clusters, %d nodes", pods, largecluster.RemoteClusters, largecluster.Nodes)
	base, half, whole := starts[0], starts[1], starts[2]
	return measure.Conclude(os.Stdout, []measure.Result{
		measure.AtMost("most memory of the virtual node program "+what, whole.Peak, memoryBudget, "MB"),
		measure.AtMost("the same above that with few pods, to half the pods", (whole.Peak-base.Peak)/(half.Peak-base.Peak), growthBudget, "x"),
		measure.Figure("start of the virtual node program until it is ready, "+what, whole.Ready.Seconds(), "s"),
		measure.Figure("the same, until all is looked at", whole.Calm.Seconds(), "s"),
		measure.Figure("processor time of that", whole.Used.Seconds(), "s"),
		measure.Figure("one pod, from its binding until home says that it runs, "+what, float64(latencies[2].Microseconds())/1000, "ms"),
		measure.AtMost("the same, to that with few pods", float64(latencies[2])/float64(latencies[0]), latencyBudget, "x"),
	})
}

// fleet is a home cluster with pods in remote clusters, and the program that runs them there.
type fleet struct {
	home    *largecluster.Cluster
	remotes []*largecluster.Cluster
	servers []*httptest.Server
	program *measure.Process
	status  string
	pods    int
}

func newFleet(ctx context.Context, directory, program string, pods, verbosity int) (*fleet, error) {
	f := &fleet{pods: pods}
	var urls []string
	for r := range largecluster.RemoteClusters {
		f.remotes = append(f.remotes, largecluster.NewPodRemote(r, pods))
		urls = append(urls, f.serve(f.remotes[r]))
	}
	f.home = largecluster.NewPodHome(pods, urls)
	kubeconfig := filepath.Join(directory, fmt.Sprintf("kubeconfig-%d", pods))
	err := largecluster.WriteKubeconfig(kubeconfig, f.serve(f.home))
	var addresses []string
	if err == nil {
		addresses, err = largecluster.FreeAddresses(ctx, 1)
	}
	if err == nil {
		f.status = "http://" + addresses[0]
		f.program, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
			return exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--http-address="+addresses[0],
				"--node-ip="+largecluster.VirtualNodeIP, "--kubelet-address="+largecluster.VirtualNodeIP, "--kubelet-ports-from=0",
				fmt.Sprintf("-v=%d", max(verbosity, 0)))
		})
	}
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *fleet) serve(cluster *largecluster.Cluster) (url string) {
	server := httptest.NewServer(cluster)
	f.servers = append(f.servers, server)
	return server.URL
}

func (f *fleet) stop() {
	if f.program != nil {
		f.program.Stop()
	}
	for _, server := range f.servers {
		server.CloseClientConnections()
		server.Close()
	}
}

// measure waits until all pods are looked at, and then measures single ones.
func (f *fleet) measure(ctx context.Context, single int) (s measure.Startup, latency time.Duration, err error) {
	s, err = f.program.AwaitCalm(ctx, f.status, func(metrics string) bool { return readyNodes(metrics) == largecluster.RemoteClusters })
	if err != nil {
		return s, 0, err
	}
	if err := f.idle(); err != nil {
		return s, 0, f.program.Failed(err)
	}
	var took []time.Duration
	for i := range single + 1 {
		one, err := f.one(ctx, 10*f.pods+2*i)
		if err != nil {
			return s, 0, f.program.Failed(err)
		}
		if i > 0 { // the first only warms up
			took = append(took, one)
		}
	}
	return s, measure.Median(took), nil
}

// readyNodes returns how many virtual nodes are ready.
func readyNodes(metrics string) (n int) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "lodestone_virtual_node_ready{") && strings.HasSuffix(line, " 1\n") {
			n++
		}
	}
	return n
}

// idle returns an error if the program wrote anything of pods: all of them were in order, and had it to put them
// right something else were measured.
func (f *fleet) idle() error {
	for _, cluster := range append(f.remotes, f.home) {
		for what, n := range cluster.Writes() {
			if strings.Contains(what, "pods") {
				return fmt.Errorf("the program made %d requests %s, and all pods were in order", n, what)
			}
		}
	}
	return nil
}

// one binds the i-th pod to its virtual node and returns after what time home says that it runs. The agent and the
// kubelet there take no time.
func (f *fleet) one(ctx context.Context, i int) (time.Duration, error) {
	remote := f.remotes[i%largecluster.RemoteClusters]
	ran := make(chan error, 1)
	done := func(err error) {
		select {
		case ran <- err:
		default:
		}
	}
	remote.OnWrite(func(_ string, object runtime.Object) {
		shadow, ok := object.(*remotev1alpha1.ShadowPod)
		if !ok || !shadow.Spec.Start || shadow.Name != largecluster.PodName(i) || shadow.Status.Phase != "" {
			return
		}
		go func() {
			pod := largecluster.RemotePod(i, shadow)
			shadow := shadow.DeepCopy()
			shadow.Status = remotev1alpha1.ShadowPodStatus{ObservedGeneration: shadow.Generation, Phase: remotev1alpha1.ShadowPodCreated,
				PodUID: pod.UID}
			done(errors.Join(remote.Put(largecluster.RemotePodsPath, watch.Added, pod),
				remote.Put(largecluster.ShadowPodsPath, watch.Modified, shadow)))
		}()
	})
	runs := make(chan bool, 1)
	f.home.OnWrite(func(_ string, object runtime.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Name == largecluster.PodName(i) && pod.Status.Phase == corev1.PodRunning {
			select {
			case runs <- true:
			default:
			}
		}
	})
	ctx, cancel := context.WithTimeoutCause(ctx, podTimeout, fmt.Errorf("one pod does not run after %v", podTimeout))
	defer cancel()
	began := time.Now()
	if err := f.home.Put(largecluster.PodsPath, watch.Added, largecluster.NewPod(i)); err != nil {
		return 0, err
	}
	for {
		select {
		case err := <-ran:
			if err != nil {
				return 0, err
			}
		case <-runs:
			return time.Since(began), nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
