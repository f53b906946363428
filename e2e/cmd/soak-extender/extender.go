package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
)

// readyTimeout bounds the start of the program, endTimeout its end.
const (
	readyTimeout = 2 * time.Minute
	endTimeout   = 10 * time.Second
)

// extender is the program, as it is shipped, on a large cluster of its own.
type extender struct {
	cmd     *exec.Cmd
	log     bytes.Buffer
	ended   chan struct{}
	cluster *largecluster.Cluster
	api     *httptest.Server
	// verbs is host and port that kube-scheduler would call, status the URL of the
	// other address.
	verbs, status string
}

// startExtender builds and starts the program and waits until it is ready.
func startExtender(ctx context.Context, directory string, claims int) (*extender, error) {
	binary := filepath.Join(directory, "lodestone-extender")
	if err := largecluster.BuildExtender(ctx, binary); err != nil {
		return nil, err
	}
	e := &extender{cluster: largecluster.New(claims), ended: make(chan struct{})}
	e.api = httptest.NewServer(e.cluster)
	kubeconfig := filepath.Join(directory, "kubeconfig")
	if err := largecluster.WriteKubeconfig(kubeconfig, e.api.URL); err != nil {
		e.closeAPI()
		return nil, err
	}
	addresses, err := largecluster.FreeAddresses(ctx, 2)
	if err != nil {
		e.closeAPI()
		return nil, err
	}
	e.verbs, e.status = addresses[0], "http://"+addresses[1]
	e.cmd = exec.CommandContext(ctx, binary, "--kubeconfig="+kubeconfig, "--listen="+addresses[0], "--http-address="+addresses[1], "--shutdown-grace=0s")
	e.cmd.Stderr = &e.log
	if err := e.cmd.Start(); err != nil {
		e.closeAPI()
		return nil, fmt.Errorf("start the extender: %w", err)
	}
	go func() {
		defer close(e.ended)
		_ = e.cmd.Wait()
	}()
	if err := e.awaitReady(ctx); err != nil {
		e.stop()
		return nil, fmt.Errorf("%w; its log:\n%s", err, e.log.String())
	}
	return e, nil
}

func (e *extender) pid() int { return e.cmd.Process.Pid }

func (e *extender) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the extender is not ready after %s", readyTimeout))
	defer cancel()
	for {
		if _, err := e.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ended:
			return errors.New("the extender has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// get returns what the status address answers.
func (e *extender) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.status+path, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the extender: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read the extender's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the extender answers %s: %s", response.Status, body)
	}
	return string(body), nil
}

// stop ends the program, and then its cluster.
func (e *extender) stop() {
	// A program that has ended needs no signal.
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.ended:
	case <-time.After(endTimeout):
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
	e.closeAPI()
}

func (e *extender) closeAPI() {
	e.api.CloseClientConnections()
	e.api.Close()
}
