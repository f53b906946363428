package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// caller is what kube-scheduler asks an extender with; the package that names it is another one before Kubernetes 1.35.
type caller interface {
	Filter(*corev1.Pod, []fwk.NodeInfo) ([]fwk.NodeInfo, extenderv1.FailedNodesMap, extenderv1.FailedNodesMap, error)
	Prioritize(*corev1.Pod, []fwk.NodeInfo) (*extenderv1.HostPriorityList, int64, error)
}

// extenderTarget is an extender as a scheduler's configuration names it.
type extenderTarget struct {
	// URL is the prefix of the verbs. With HTTPS, the files name the certificate
	// authority of the server, and the client's own certificate and key.
	URL      string `json:"url"`
	CAFile   string `json:"caFile"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// WholeNodes sends Node objects instead of names.
	WholeNodes bool `json:"wholeNodes"`
}

// extenderJob is a number of calls that are alike.
type extenderJob struct {
	extenderTarget
	// Verb is filter or prioritize.
	Verb  string     `json:"verb"`
	Pod   corev1.Pod `json:"pod"`
	Names []string   `json:"names"`
	// Node is what all nodes are like but for their names.
	Node  corev1.Node `json:"node"`
	Calls int         `json:"calls"`
	// Concurrency is how many calls are under way at once; kube-scheduler itself
	// makes one at a time.
	Concurrency int `json:"concurrency"`
}

// extenderReport is what came of a job.
type extenderReport struct {
	// Error says why a call failed; the rest is then empty.
	Error string `json:"error,omitempty"`
	// CPU is the processor time, in nanoseconds, that this process used for all
	// calls. Latencies are in nanoseconds, in ascending order.
	CPU       int64   `json:"cpu"`
	Latencies []int64 `json:"latencies"`
	// Passed is how many nodes the last filter call let pass, Scored how many the last
	// prioritize call gave more than no points.
	Passed int `json:"passed"`
	Scored int `json:"scored"`
}

// extenderClient makes calls with the client that kube-scheduler has for its
// extenders: it reads jobs, one JSON object each, and writes a report for each,
// until the input ends. Connections are kept from job to job.
func extenderClient(input io.Reader, output io.Writer) error {
	extenders := map[extenderTarget]caller{}
	jobs, reports := json.NewDecoder(input), json.NewEncoder(output)
	for {
		var job extenderJob
		switch err := jobs.Decode(&job); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a job: %w", err)
		}
		extender, ok := extenders[job.extenderTarget]
		if !ok {
			var err error
			if extender, err = newExtender(job.extenderTarget); err != nil {
				return fmt.Errorf("make the client of %s: %w", job.URL, err)
			}
			extenders[job.extenderTarget] = extender
		}
		report, err := job.run(extender)
		if err != nil {
			report = extenderReport{Error: err.Error()}
		}
		if err := reports.Encode(report); err != nil {
			return fmt.Errorf("write a report: %w", err)
		}
	}
}

func newExtender(t extenderTarget) (caller, error) {
	config := &schedulerapi.Extender{
		URLPrefix:        t.URL,
		FilterVerb:       "filter",
		PrioritizeVerb:   "prioritize",
		Weight:           1,
		NodeCacheCapable: !t.WholeNodes,
		// Whole nodes can take longer than the default of 5 s.
		HTTPTimeout: metav1.Duration{Duration: time.Minute},
	}
	if t.CAFile != "" {
		config.EnableHTTPS = true
		config.TLSConfig = &schedulerapi.ExtenderTLSConfig{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}
	}
	return scheduler.NewHTTPExtender(config)
}

func (j *extenderJob) run(extender caller) (extenderReport, error) {
	nodes := make([]fwk.NodeInfo, len(j.Names))
	for i, name := range j.Names {
		node := j.Node.DeepCopy()
		node.Name = name
		info := framework.NewNodeInfo()
		info.SetNode(node)
		nodes[i] = info
	}
	var report extenderReport
	call := j.call(extender, nodes, &report)
	// Or this job would pay for what was left behind before it.
	runtime.GC()
	before, err := processorTime()
	if err != nil {
		return report, err
	}
	latencies, err := j.repeat(call)
	if err != nil {
		return report, err
	}
	after, err := processorTime()
	if err != nil {
		return report, err
	}
	slices.Sort(latencies)
	report.CPU, report.Latencies = after-before, latencies
	return report, nil
}

// call returns one call. All calls of a job get the same answer, and the first of
// the concurrent ones notes what it is.
func (j *extenderJob) call(extender caller, nodes []fwk.NodeInfo, report *extenderReport) func(first bool) error {
	if j.Verb == "prioritize" {
		return func(first bool) error {
			scores, _, err := extender.Prioritize(&j.Pod, nodes)
			if err != nil || !first {
				return err
			}
			report.Scored = 0
			for _, score := range *scores {
				if score.Score > 0 {
					report.Scored++
				}
			}
			return nil
		}
	}
	return func(first bool) error {
		passed, failed, unresolvable, err := extender.Filter(&j.Pod, nodes)
		if err != nil {
			return err
		}
		if decided := len(passed) + len(failed) + len(unresolvable); decided != len(nodes) {
			return fmt.Errorf("the answer decides on %d of %d nodes", decided, len(nodes))
		}
		if first {
			report.Passed = len(passed)
		}
		return nil
	}
}

// repeat makes the calls and returns how long each took, in nanoseconds.
func (j *extenderJob) repeat(call func(first bool) error) ([]int64, error) {
	concurrency := max(1, j.Concurrency)
	latencies := make([][]int64, concurrency)
	problems := make([]error, concurrency)
	var running sync.WaitGroup
	for i := range concurrency {
		running.Go(func() {
			for k := i; k < j.Calls && problems[i] == nil; k += concurrency {
				started := time.Now()
				problems[i] = call(i == 0)
				latencies[i] = append(latencies[i], time.Since(started).Nanoseconds())
			}
		})
	}
	running.Wait()
	return slices.Concat(latencies...), errors.Join(problems...)
}

// processorTime returns what this process has used, in nanoseconds.
func processorTime() (int64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano(), nil
}

// runExtenderClient is the program of that name; it returns its exit status.
func runExtenderClient() int {
	if err := extenderClient(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "extender-client:", err)
		return 1
	}
	return 0
}
