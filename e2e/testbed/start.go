package testbed

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// startTimeout bounds the start of all clusters once their program is built.
const startTimeout = 3 * time.Minute

// running holds the clusters of this process, for Main.
var running struct {
	sync.Mutex
	clusters []*Cluster
}

// Start starts a cluster for each configuration, in parallel, and returns them in
// that order when pods can be created in all. If one fails, all are stopped. They
// are stopped too when ctx ends; Stop waits for it.
func Start(ctx context.Context, configs ...Config) ([]*Cluster, error) {
	if err := validateAll(configs); err != nil {
		return nil, err
	}
	binary, err := Binary(ctx, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("find the control plane program: %w", err)
	}
	sweepDirectories()
	startCtx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	group, startCtx := errgroup.WithContext(startCtx)
	clusters := make([]*Cluster, len(configs))
	for i, config := range configs {
		group.Go(func() (err error) {
			if clusters[i], err = newCluster(config, binary); err != nil {
				return err
			}
			return clusters[i].start(startCtx)
		})
	}
	if err := group.Wait(); err != nil {
		stopAll(clusters)
		return nil, err
	}
	for _, c := range clusters {
		context.AfterFunc(ctx, c.Stop)
	}
	running.Lock()
	defer running.Unlock()
	running.clusters = append(running.clusters, clusters...)
	return clusters, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.launchAPIServer(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.StartScheduler(ctx) })
	group.Go(func() error { return c.launch(ctx, controllerManager, c.controllerManagerArgs(), c.defaultsReady) })
	return group.Wait()
}

// stopAll stops clusters in parallel; some may be nil.
func stopAll(clusters []*Cluster) {
	var stopped sync.WaitGroup
	for _, c := range clusters {
		if c != nil {
			stopped.Go(c.Stop)
		}
	}
	stopped.Wait()
}
