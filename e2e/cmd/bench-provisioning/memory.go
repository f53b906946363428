package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

const (
	// memoryBudget is in MB; growthBudget is what twice the claims may need.
	memoryBudget, growthBudget = 400, 2.1
	// calm is how much processor time in calmPeriod means that a provisioner has
	// looked at all that there was to look at.
	calm, calmPeriod = 100 * time.Millisecond, 2 * time.Second
	// startTimeout bounds the start of a provisioner.
	startTimeout = 15 * time.Minute
)

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

// start is what the start of a provisioner took.
type start struct {
	ready, calm, used time.Duration
	peak              float64 // MB
}

// await waits until the provisioner is ready and then until it is calm.
func (f *fleet) await(ctx context.Context) (s start, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the provisioner is not calm after %v", startTimeout))
	defer cancel()
	for {
		if body, err := get(ctx, f.status+"/readyz"); err == nil && body != "" {
			break
		}
		if err := f.pause(ctx, 20*time.Millisecond); err != nil {
			return s, err
		}
	}
	s.ready = time.Since(began)
	for {
		before := s.used
		if s.used, err = measure.ProcessorTime(f.provisioner.Pid()); err != nil {
			return s, err
		}
		if metrics, err := get(ctx, f.status+"/metrics"); err != nil {
			return s, err
		} else if before > 0 && s.used-before < calm && readyClusters(metrics) == largecluster.RemoteClusters {
			break
		}
		s.calm = time.Since(began)
		if err := f.pause(ctx, calmPeriod); err != nil {
			return s, err
		}
	}
	s.peak, err = measure.MostResident(f.provisioner.Pid())
	return s, err
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

func (f *fleet) pause(ctx context.Context, period time.Duration) error {
	select {
	case <-ctx.Done():
		return f.provisioner.Failed(context.Cause(ctx))
	case <-f.provisioner.Done():
		return f.provisioner.Failed(errors.New("the provisioner has ended"))
	case <-time.After(period):
		return nil
	}
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

// get returns what an URL answers with success.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the provisioner: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return "", errors.Join(fmt.Errorf("ask the provisioner: %s", response.Status), err)
	}
	return string(body), nil
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
		measure.AtMost("most memory of the provisioner "+what, whole.peak, memoryBudget, "MB"),
		measure.AtMost("the same, to half the claims", whole.peak/half.peak, growthBudget, "x"),
		measure.Figure("start of the provisioner until it is ready, "+what, whole.ready.Seconds(), "s"),
		measure.Figure("the same, until all is looked at", whole.calm.Seconds(), "s"),
		measure.Figure("processor time of that", whole.used.Seconds(), "s"),
	}, nil
}

func started(ctx context.Context, directory, program string, claims int) (start, error) {
	f, err := newFleet(ctx, directory, program, claims)
	if err != nil {
		return start{}, err
	}
	defer f.stop()
	s, err := f.await(ctx)
	if err != nil {
		return start{}, err
	}
	say("provisioner with %d claims: ready after %v, calm after %v, %v of processor time, at most %.0f MB", claims,
		s.ready.Round(10*time.Millisecond), s.calm.Round(10*time.Millisecond), s.used.Round(10*time.Millisecond), s.peak)
	return s, f.idle()
}
