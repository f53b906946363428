package largecluster

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// Bed is a program under test, which runs as a process, and the clusters that it works with, which are served on
// loopback. Stop ends all.
type Bed struct {
	Program *measure.Process
	// Status is the URL of the program's metrics and probes.
	Status string

	clusters []*Cluster
	servers  []*httptest.Server
}

// Serve serves a cluster, and returns its URL.
func (b *Bed) Serve(cluster *Cluster) (url string) {
	server := httptest.NewServer(cluster)
	b.clusters, b.servers = append(b.clusters, cluster), append(b.servers, server)
	return server.URL
}

// Start starts the program in a cluster that it reaches with its kubeconfig.
func (b *Bed) Start(ctx context.Context, program string, cluster *Cluster, flags ...string) error {
	kubeconfig, err := os.CreateTemp(filepath.Dir(program), "kubeconfig-")
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	_ = kubeconfig.Close()
	if err := WriteKubeconfig(kubeconfig.Name(), b.Serve(cluster)); err != nil {
		return err
	}
	addresses, err := FreeAddresses(ctx, 1)
	if err != nil {
		return err
	}
	b.Status = "http://" + addresses[0]
	b.Program, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, program, append([]string{"--kubeconfig=" + kubeconfig.Name(), "--leader-elect=false",
			"--http-address=" + addresses[0]}, flags...)...)
	})
	return err
}

// Stop ends the program and the clusters.
func (b *Bed) Stop() {
	if b.Program != nil {
		b.Program.Stop()
	}
	for _, server := range b.servers {
		server.CloseClientConnections()
		server.Close()
	}
}

// Idle returns an error if the program wrote anything whose path has what in it: all such objects were in order, and had it to
// put them right something else were measured.
func (b *Bed) Idle(what string) error {
	for _, cluster := range b.clusters {
		for write, n := range cluster.Writes() {
			if strings.Contains(write, what) {
				return b.Program.Failed(fmt.Errorf("the program made %d requests %s, and all was in order; the last wrote %q", n, write,
					cluster.Body(write)))
			}
		}
	}
	return nil
}

// Build builds a program of this repository into a directory, as it is shipped but for its version.
func Build(ctx context.Context, directory, name string) (program string, err error) {
	program = filepath.Join(directory, "lodestone-"+name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./"+strings.ReplaceAll(name, "-", ""))
	build.Dir = fabric.Root()
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program %s: %w\n%s", name, err, output)
	}
	return program, nil
}

// TrueMetrics returns how many metrics of a name are 1.
func TrueMetrics(metrics, name string) (n int) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, name+"{") && strings.HasSuffix(line, " 1\n") {
			n++
		}
	}
	return n
}
