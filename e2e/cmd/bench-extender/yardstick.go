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
