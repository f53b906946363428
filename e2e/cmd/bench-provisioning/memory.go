package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// memoryBudget is in MB; growthBudget is what twice the claims may need.
const memoryBudget, growthBudget = 400, 2.1

// fleet is a large home cluster, its remote clusters and a provisioner of them.
type fleet struct {
	home        *largecluster.Cluster
	servers     []*httptest.Server
	provisioner *measure.Process
	status      string
}

func newFleet(ctx context.Context, directory, program string, claims int) (*fleet, error) {
	f := &fleet{}
	var urls []string
	for r := range largecluster.RemoteClusters {
		urls = append(urls, f.serve(largecluster.NewRemote(r, claims)))
	}
	f.home = largecluster.NewHome(claims, urls)
	kubeconfig := filepath.Join(directory, fmt.Sprintf("kubeconfig-%d", claims))
	if err := largecluster.WriteKubeconfig(kubeconfig, f.serve(f.home)); err != nil {
		f.stop()
		return nil, err
	}
	addresses, err := largecluster.FreeAddresses(ctx, 1)
	if err != nil {
		f.stop()
		return nil, err
	}
	f.status = "http://" + addresses[0]
	f.provisioner, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--http-address="+addresses[0])
	})
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
	if f.provisioner != nil {
		f.provisioner.Stop()
	}
	for _, server := range f.servers {
		server.CloseClientConnections()
		server.Close()
	}
}

// readyClusters returns how many RemoteClusters are Ready.
func readyClusters(metrics string) (n int) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "lodestone_provisioner_remote_cluster_ready{") && strings.HasSuffix(line, " 1\n") {
			n++
		}
	}
	return n
}

// idle returns an error if the provisioner wrote anything of claims or volumes: the
// objects are in order, and had it to put them right something else were measured.
func (f *fleet) idle() error {
	for what, n := range f.home.Writes() {
		if strings.Contains(what, "persistentvolume") {
			return fmt.Errorf("the provisioner made %d requests %s, and all claims were in order", n, what)
		}
	}
	return nil
}

// memory measures the most that a provisioner ever holds and what its start takes,
// with so many claims and with half of them.
func memory(ctx context.Context, claims int) ([]measure.Result, error) {
	directory, err := os.MkdirTemp("", "bench-provisioning-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	program := filepath.Join(directory, "lodestone-provisioner")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./provisioner")
	build.Dir = fabric.Root()
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the provisioner: %w\n%s", err, output)
	}
	half, err := started(ctx, directory, program, claims/2)
	if err != nil {
		return nil, err
	}
	whole, err := started(ctx, directory, program, claims)
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

func started(ctx context.Context, directory, program string, claims int) (measure.Startup, error) {
	f, err := newFleet(ctx, directory, program, claims)
	if err != nil {
		return measure.Startup{}, err
	}
	defer f.stop()
	s, err := f.provisioner.AwaitCalm(ctx, f.status, func(metrics string) bool {
		return readyClusters(metrics) == largecluster.RemoteClusters
	})
	if err != nil {
		return s, err
	}
	say("provisioner with %d claims: %v", claims, s)
	return s, f.idle()
}
