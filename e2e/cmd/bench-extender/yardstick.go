package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// echo is the yardstick: it decodes with encoding/json, decides nothing, and
// encodes with encoding/json.
func echo(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone is noticed by the client.
	_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames})
}

// yardstick is that process as the benchmark sees it.
type yardstick struct {
	*measure.Process
	target target
	input  io.Closer
}

func startYardstick(ctx context.Context) (*yardstick, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	y := &yardstick{}
	var output io.Reader
	var problems error
	y.Process, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self, "-yardstick")
		input, inputErr := cmd.StdinPipe()
		stdout, outputErr := cmd.StdoutPipe()
		output, y.input, problems = stdout, input, errors.Join(inputErr, outputErr)
		return cmd
	})
	if err := errors.Join(err, problems); err != nil {
		return nil, fmt.Errorf("start the yardstick: %w", err)
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, y.Failed(fmt.Errorf("wait for the yardstick: %w", err))
	}
	y.target = target{URL: "http://" + strings.TrimSpace(address)}
	return y, nil
}

// rival is another extender, which runs already.
type rival struct {
	url        string
	pid        int
	annotation string
}

// compare measures filter calls with whole nodes, the rival's and ours, and ours with
// names. A call that is refused is said, and is no error.
func (r rival) compare(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	ours, err := b.withMany(ctx)
	if err != nil {
		return nil, err
	}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		theirs := r.whole(newJob(target{URL: r.url}, names, 1))
		whole := r.whole(newJob(ours.target, names, 1))
		for _, s := range []struct {
			what string
			pid  int
			job  job
		}{
			{"the rival, whole nodes", r.pid, theirs},
			{"ours, whole nodes", ours.Pid(), whole},
			{"ours, names", ours.Pid(), newJob(ours.target, names, 1)},
		} {
			var taken costs
			for round := range rounds + 1 {
				cost, err := b.client.cost(s.pid, s.job)
				if err != nil {
					say("%d nodes, %s: %v", names, s.what, err)
					break
				}
				if round > 0 { // the first only warms up
					taken = append(taken, cost)
				}
			}
			if len(taken) == 0 {
				continue
			}
			say("%d nodes, %s: %s", names, s.what, taken)
			results = append(results,
				measure.Figure(fmt.Sprintf("filter call, %d nodes, %s", names, s.what), microseconds(taken.sums()), "us client and server"),
				measure.Figure(fmt.Sprintf("filter call, %d nodes, %s, server", names, s.what), microseconds(taken.servers()), "us"))
		}
	}
	return results, nil
}

// whole makes a job send whole nodes, annotated as the rival expects.
func (r rival) whole(j job) job {
	j.WholeNodes = true
	j.Calls = 3
	j.Node = largecluster.Node(1)
	if key, value, ok := strings.Cut(r.annotation, "="); ok {
		j.Pod.Annotations[key] = value
		j.Node.Annotations = map[string]string{key: value}
	}
	return j
}
