package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// program is the extender's program, running on a large cluster of its own.
type program struct {
	*measure.Process
	target  target
	cluster *largecluster.Cluster
	api     *httptest.Server
}

// startProgram starts the program on a cluster with so many claims, and waits until
// it has read them all.
func (b *bench) startProgram(ctx context.Context, claims int, flags ...string) (*program, error) {
	p := &program{cluster: largecluster.New(claims)}
	p.api = httptest.NewServer(p.cluster)
	kubeconfig, err := b.kubeconfig(p.api.URL)
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	addresses, err := largecluster.FreeAddresses(ctx, 2)
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	flags = append([]string{"--kubeconfig=" + kubeconfig, "--listen=" + addresses[0], "--http-address=" + addresses[1], "--shutdown-grace=0s"}, flags...)
	p.target = target{URL: "http://" + addresses[0]}
	p.Process, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, b.extender, flags...) })
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	if err := p.awaitReady(ctx, "http://"+addresses[1], claims); err != nil {
		p.Stop()
		return nil, p.Failed(err)
	}
	return p, nil
}

// Stop ends the program and its API server.
func (p *program) Stop() {
	p.Process.Stop()
	p.closeAPI()
}

func (p *program) closeAPI() {
	p.api.CloseClientConnections()
	p.api.Close()
}

func (b *bench) kubeconfig(url string) (string, error) {
	b.kubeconfigs++
	path := filepath.Join(b.directory, fmt.Sprintf("kubeconfig-%d", b.kubeconfigs))
	return path, largecluster.WriteKubeconfig(path, url)
}

// awaitReady waits until the extender has read all, and checks how much that is.
func (p *program) awaitReady(ctx context.Context, status string, claims int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("the extender is not ready after 2 minutes"))
	defer cancel()
	for {
		if code, _, err := get(ctx, status+"/readyz"); err == nil && code == http.StatusOK {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Done():
			return fmt.Errorf("the extender has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, metrics, err := get(ctx, status+"/metrics")
	if err != nil {
		return err
	}
	for kind, size := range map[string]int{"nodes": largecluster.Nodes, "persistentvolumeclaims": claims, "persistentvolumes": claims, "remoteclusters": largecluster.RemoteClusters} {
		if want := fmt.Sprintf("cached_objects{kind=%q} %s\n", kind, strconv.FormatFloat(float64(size), 'g', -1, 64)); !strings.Contains(metrics, want) {
			return fmt.Errorf("the extender is ready without %s", want)
		}
	}
	return nil
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask the extender: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read the extender's answer: %w", err)
	}
	return response.StatusCode, string(body), nil
}
