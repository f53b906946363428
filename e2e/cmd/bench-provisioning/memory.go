package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// memoryBudget is in MB; growthBudget is what twice the claims may need.
const memoryBudget, growthBudget = 400, 2.1

// memory measures the most that a provisioner ever holds and what its start takes,
// with so many claims and with half of them.
func memory(ctx context.Context, claims int) ([]measure.Result, error) {
	directory, err := os.MkdirTemp("", "bench-provisioning-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	program, err := largecluster.Build(ctx, directory, "provisioner")
	if err != nil {
		return nil, err
	}
	half, err := started(ctx, program, claims/2)
	if err != nil {
		return nil, err
	}
	whole, err := started(ctx, program, claims)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("with %d claims, %d nodes, %d remote clusters", claims, largecluster.Nodes, largecluster.RemoteClusters)
	return []measure.Result{
		measure.AtMost("most memory of the provisioner "+what, whole.Peak, memoryBudget, "MB"),
		measure.AtMost("the same, to half the claims", whole.Peak/half.Peak, growthBudget, "x"),
		measure.Figure("start of the provisioner until it is ready, "+what, whole.Ready.Seconds(), "s"),
		measure.Figure("the same, until all is looked at", whole.Calm.Seconds(), "s"),
		measure.Figure("processor time of that", whole.Used.Seconds(), "s"),
	}, nil
}

// started measures the start of a provisioner with so many claims.
func started(ctx context.Context, program string, claims int) (measure.Startup, error) {
	bed := &largecluster.Bed{}
	defer bed.Stop()
	var urls []string
	for r := range largecluster.RemoteClusters {
		urls = append(urls, bed.Serve(largecluster.NewRemote(r, claims)))
	}
	if err := bed.Start(ctx, program, largecluster.NewHome(claims, urls)); err != nil {
		return measure.Startup{}, err
	}
	s, err := bed.Program.AwaitCalm(ctx, bed.Status, func(metrics string) bool {
		return largecluster.TrueMetrics(metrics, "lodestone_provisioner_remote_cluster_ready") == largecluster.RemoteClusters
	})
	if err != nil {
		return s, err
	}
	say("provisioner with %d claims: %v", claims, s)
	return s, bed.Idle("persistentvolume")
}
