// Command bench-agent measures the memory and the start of the remote agent with the pods of many home clusters, and how
// long it takes for one pod then. It prints one JSON object a measure and ends with status 1 if a budget is not kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// memoryBudget is in MB.
const memoryBudget = 300

func main() {
	pods := flag.Int("pods", 5000, "how many pods each of 10 home clusters has; half of them are measured too")
	single := flag.Int("single", 21, "how many single pods are measured")
	verbosity := flag.Int("v", 0, "log verbosity of the program under test")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *pods*largecluster.HomeClusters, *single, *verbosity) })
}

func run(ctx context.Context, pods, single, verbosity int) error {
	results, err := largecluster.Grow(ctx, largecluster.Growth{
		Program: "remote-agent", Called: "remote agent",
		Size: func(pods int) string {
			return fmt.Sprintf("with %d pods of %d home clusters, %d nodes", pods, largecluster.HomeClusters, largecluster.Nodes)
		},
		Few: 10 * largecluster.HomeClusters, Many: pods, Single: single, Memory: memoryBudget,
		One: "one pod, from its ShadowPod until that says that it was made",
		Start: func(ctx context.Context, program string, pods int) (*largecluster.Bed, largecluster.Measured, error) {
			return start(ctx, program, pods, verbosity)
		},
	})
	if err != nil {
		return err
	}
	return measure.Conclude(os.Stdout, results)
}

// start starts the agent of a remote cluster with so many pods.
func start(ctx context.Context, program string, pods, verbosity int) (*largecluster.Bed, largecluster.Measured, error) {
	bed, cluster := &largecluster.Bed{}, largecluster.NewAgentCluster(pods)
	err := bed.Start(ctx, program, cluster, fmt.Sprintf("-v=%d", verbosity))
	go beat(ctx, cluster, bed)
	return bed, largecluster.Measured{
		Settled: func(string) bool { return true },
		Idle:    func() error { return bed.Idle("pods") },
		One:     func(ctx context.Context, n int) (time.Duration, error) { return one(ctx, cluster, pods+n) },
	}, err
}

// beat renews the heartbeats of the home clusters while the agent runs.
func beat(ctx context.Context, cluster *largecluster.Cluster, bed *largecluster.Bed) {
	ticker := time.NewTicker(largecluster.BeatInterval)
	defer ticker.Stop()
	for bed.Program != nil {
		if cluster.Beat() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-bed.Program.Done():
			return
		case <-ticker.C:
		}
	}
}

// one starts the i-th pod as a home cluster does, and returns after what time the agent says that it was made.
func one(ctx context.Context, cluster *largecluster.Cluster, i int) (time.Duration, error) {
	shadow := largecluster.NewShadow(i)
	made := make(chan struct{}, 1)
	cluster.OnWrite(func(_ string, object runtime.Object) {
		written, ok := object.(*remotev1alpha1.ShadowPod)
		if ok && written.Name == shadow.Name && written.Status.Phase == remotev1alpha1.ShadowPodCreated {
			select {
			case made <- struct{}{}:
			default:
			}
		}
	})
	began := time.Now()
	if err := cluster.Put(largecluster.AgentShadowsPath(i), watch.Added, shadow); err != nil {
		return 0, err
	}
	select {
	case <-made:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
