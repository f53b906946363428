package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// client is the client that kube-scheduler has for its extenders, in a process of
// its own.
type client struct {
	*measure.Process
	jobs    *json.Encoder
	reports *json.Decoder
	input   io.Closer
}

// target is an extender as the client is told of it.
type target struct {
	URL        string `json:"url"`
	CAFile     string `json:"caFile,omitempty"`
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	WholeNodes bool   `json:"wholeNodes,omitempty"`
}

// job is a number of calls that are alike.
type job struct {
	target
	Verb  string      `json:"verb"`
	Pod   *corev1.Pod `json:"pod"`
	Names []string    `json:"names"`
	// Node is what all nodes are like, where whole nodes are sent.
	Node  *corev1.Node `json:"node,omitempty"`
	Calls int          `json:"calls"`
}

// report is what the client says of a job; times in nanoseconds, the latencies in
// ascending order.
type report struct {
	Error     string          `json:"error"`
	CPU       time.Duration   `json:"cpu"`
	Latencies []time.Duration `json:"latencies"`
	Passed    int             `json:"passed"`
	Scored    int             `json:"scored"`
}

func startClient(ctx context.Context) (*client, error) {
	path, err := testbed.Binary(ctx, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("find the scheduler's client: %w", err)
	}
	c := &client{}
	var problems error
	c.Process, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, path, "extender-client")
		input, inputErr := cmd.StdinPipe()
		output, outputErr := cmd.StdoutPipe()
		problems = errors.Join(inputErr, outputErr)
		c.jobs, c.reports, c.input = json.NewEncoder(input), json.NewDecoder(output), input
		return cmd
	})
	if err := errors.Join(err, problems); err != nil {
		return nil, fmt.Errorf("start the scheduler's client: %w", err)
	}
	return c, nil
}

// do makes the calls of a job.
func (c *client) do(j job) (report, error) {
	var r report
	if err := c.jobs.Encode(j); err != nil {
		return r, c.Failed(fmt.Errorf("give the client a job: %w", err))
	}
	if err := c.reports.Decode(&r); err != nil {
		return r, c.Failed(fmt.Errorf("read the client's report: %w", err))
	}
	if r.Error != "" {
		return r, fmt.Errorf("call %s/%s: %s", j.URL, j.Verb, r.Error)
	}
	return r, nil
}

// cost is the processor time of one call.
type cost struct {
	client, server time.Duration
	report         report
}

func (c cost) sum() time.Duration { return c.client + c.server }

// cost measures the calls of a job that the process pid answers.
func (c *client) cost(pid int, j job) (cost, error) {
	before, err := measure.ProcessorTime(pid)
	if err != nil {
		return cost{}, err
	}
	r, err := c.do(j)
	if err != nil {
		return cost{}, err
	}
	after, err := measure.ProcessorTime(pid)
	if err != nil {
		return cost{}, err
	}
	calls := time.Duration(j.Calls)
	return cost{client: r.CPU / calls, server: (after - before) / calls, report: r}, nil
}

// slowest returns the time that 99 of 100 calls stay within.
func (r report) slowest() time.Duration { return r.Latencies[len(r.Latencies)*99/100] }
