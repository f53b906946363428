// Command bench-virtualnode measures the memory and the start of the virtual node program with many pods,
// and how long it holds up one pod then. It prints one JSON object a measure and ends with status 1 if a budget is
// not kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// memoryBudget is in MB.
const memoryBudget = 600

func main() {
	pods := flag.Int("pods", 5000, "how many pods there are in each of 10 clusters; half of them are measured too")
	single := flag.Int("single", 21, "how many single pods are measured")
	verbosity := flag.Int("v", 0, "log verbosity of the program under test")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		return run(ctx, *pods*largecluster.RemoteClusters, *single, *verbosity)
	})
}

func run(ctx context.Context, pods, single, verbosity int) error {
	results, err := largecluster.Grow(ctx, largecluster.Growth{
		Program: "virtualnode", Called: "virtual node program",
		Size: func(pods int) string {
			return fmt.Sprintf("with %d pods in %d remote clusters, %d nodes", pods, largecluster.RemoteClusters, largecluster.Nodes)
		},
		Few: 10 * largecluster.RemoteClusters, Many: pods, Single: single, Memory: memoryBudget,
		One: "one pod, from its binding until home says that it runs",
		Start: func(ctx context.Context, program string, pods int) (*largecluster.Bed, largecluster.Measured, error) {
			return start(ctx, program, pods, verbosity)
		},
	})
	if err != nil {
		return err
	}
	return measure.Conclude(os.Stdout, results)
}

// fleet is a home cluster with pods in remote clusters.
type fleet struct {
	home    *largecluster.Cluster
	remotes []*largecluster.Cluster
}

// start starts the virtual node program of a fleet with so many pods.
func start(ctx context.Context, program string, pods, verbosity int) (*largecluster.Bed, largecluster.Measured, error) {
	bed, f := &largecluster.Bed{}, &fleet{}
	var urls []string
	for r := range largecluster.RemoteClusters {
		f.remotes = append(f.remotes, largecluster.NewPodRemote(r, pods))
		urls = append(urls, bed.Serve(f.remotes[r]))
	}
	f.home = largecluster.NewPodHome(pods, urls)
	err := bed.Start(ctx, program, f.home, "--node-ip="+largecluster.VirtualNodeIP, "--kubelet-address="+largecluster.VirtualNodeIP,
		"--kubelet-ports-from=0", fmt.Sprintf("-v=%d", verbosity))
	return bed, largecluster.Measured{
		Settled: func(metrics string) bool {
			return largecluster.TrueMetrics(metrics, "lodestone_virtual_node_ready") == largecluster.RemoteClusters
		},
		Idle: func() error { return bed.Idle("pods") },
		One:  func(ctx context.Context, n int) (time.Duration, error) { return f.one(ctx, 10*pods+2*n) },
	}, err
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
