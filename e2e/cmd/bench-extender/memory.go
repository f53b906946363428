package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/extender/app"
)

// memoryBudget is in MB.
const memoryBudget = 300

// memory measures the most that an extender ever holds, with its start counted:
// it runs as a process of its own, and reads a large cluster from a server that
// streams objects of ordinary size as an API server does.
func memory(ctx context.Context, _ int) ([]measure.Result, error) {
	var results []measure.Result
	for _, claims := range []int{fewClaims, manyClaims / 2, manyClaims} {
		peak, err := peakMemory(ctx, claims)
		if err != nil {
			return nil, fmt.Errorf("measure memory with %d claims: %w", claims, err)
		}
		say("most memory with %d claims, 5,000 nodes, 10 remote clusters: %.0f MB", claims, peak)
		results = append(results, measure.AtMost(fmt.Sprintf("most memory with %d claims", claims), peak, memoryBudget, "MB"))
	}
	return results, nil
}

func peakMemory(ctx context.Context, claims int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	api := httptest.NewServer(largecluster.New(claims))
	defer func() {
		api.CloseClientConnections()
		api.Close()
	}()
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	child := exec.CommandContext(ctx, self, "-watch", api.URL)
	var log bytes.Buffer
	child.Stderr = &log
	input, err := child.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("prepare extender: %w", err)
	}
	output, err := child.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("prepare extender: %w", err)
	}
	if err := child.Start(); err != nil {
		return 0, fmt.Errorf("start extender: %w", err)
	}
	var status string
	var peak float64
	_, err = fmt.Fscanln(output, &status)
	if err == nil {
		err = awaitReady(ctx, "http://"+status, claims)
	}
	if err == nil {
		peak, err = mostResident(child.Process.Pid)
	}
	_ = input.Close()
	if waitErr := child.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return 0, fmt.Errorf("run extender: %w; its log:\n%s", err, log.String())
	}
	return peak, nil
}

// mostResident returns the most memory that a process ever had, in MB. What the
// system tells about an ended process would count its parent's too.
func mostResident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kibibytes float64
			if _, err := fmt.Sscan(value, &kibibytes); err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kibibytes * 1024 / 1e6, nil
		}
	}
	return 0, errors.New("read memory: the system does not tell")
}

// awaitReady waits until the extender has read all, and checks how much that is.
func awaitReady(ctx context.Context, status string, claims int) error {
	for {
		code, _, err := get(ctx, status+"/readyz")
		if err != nil {
			return err
		}
		if code == http.StatusOK {
			break
		}
		time.Sleep(20 * time.Millisecond)
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

// watchUntilInputEnds is the other process: an extender that prints where its
// status is.
func watchUntilInputEnds(api string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var listen net.ListenConfig
	verbs, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	status, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	fmt.Println(status.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return app.Run(ctx, &app.Config{Home: &rest.Config{Host: api}, Verbs: verbs, Status: status})
}
