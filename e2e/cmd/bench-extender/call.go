package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// target is a handler behind a loopback connection, and the client that
// kube-scheduler has for its extender.
type target struct {
	url    string
	client *http.Client
	server *http.Server
	// opened counts connections.
	opened atomic.Int64
}

func listen(ctx context.Context, handler http.Handler) (*target, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	t := &target{
		url:    "http://" + listener.Addr().String() + "/filter",
		client: &http.Client{Transport: utilnet.SetTransportDefaults(&http.Transport{}), Timeout: 5 * time.Second},
	}
	t.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Second, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			t.opened.Add(1)
		}
	}}
	go func() { _ = t.server.Serve(listener) }()
	return t, nil
}

func (t *target) close() {
	t.client.CloseIdleConnections()
	_ = t.server.Close()
}

// filter makes one call as kube-scheduler does, down to the body that it closes
// without reading to its end.
func (t *target) filter(ctx context.Context, pod *corev1.Pod, names []string) error {
	body, err := json.Marshal(&extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.client.Do(request)
	if err != nil {
		return fmt.Errorf("call filter: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("call filter: status %s", response.Status)
	}
	var result extenderv1.ExtenderFilterResult
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if result.NodeNames == nil || len(*result.NodeNames)+len(result.FailedAndUnresolvableNodes) != len(names) {
		return fmt.Errorf("the answer does not decide on all %d nodes", len(names))
	}
	return nil
}

// cost returns the processor time of one call, client and server together.
func (t *target) cost(ctx context.Context, pod *corev1.Pod, names []string, calls int) (time.Duration, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	for range calls {
		if err := t.filter(ctx, pod, names); err != nil {
			return 0, err
		}
	}
	after, err := processorTime()
	return (after - before) / time.Duration(calls), err
}

func processorTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

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
