package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// answerInstantly is the least that an extender can do: it decodes nothing, lets all
// nodes pass in filter by handing their names back, and scores none.
func answerInstantly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := []byte("[]")
	if r.URL.Path == "/filter" {
		// The names are the last of the request's fields.
		at := bytes.LastIndex(body, []byte(`"NodeNames":`))
		if at < 0 {
			http.Error(w, "the request has no node names", http.StatusBadRequest)
			return
		}
		answer = append([]byte("{"), body[at:]...)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	// A scheduler that is gone is noticed by the benchmark.
	_, _ = w.Write(answer)
}

// startInstant starts that process and returns the prefix of its verbs.
func startInstant(ctx context.Context) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-instant")
	input, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, fmt.Errorf("prepare the instant extender: %w", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("prepare the instant extender: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the instant extender: %w", err)
	}
	stop = func() {
		_ = input.Close()
		_ = cmd.Wait()
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("wait for the instant extender: %w", err)
	}
	return "http://" + strings.TrimSpace(address), stop, nil
}
