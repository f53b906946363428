package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
)

// freshEach is after how many requests a worker hangs up and connects anew.
const freshEach = 5000

// worker makes requests one after another.
type worker struct {
	*soak
	client *http.Client
	buffer []byte
	made   int
}

func newWorker(s *soak) *worker {
	return &worker{soak: s, client: &http.Client{Transport: utilnet.SetTransportDefaults(&http.Transport{}), Timeout: 5 * time.Second}}
}

// request makes the i-th request of all. Two in a row are about one pod.
func (w *worker) request(ctx context.Context, i int) error {
	if w.made++; w.made%freshEach == 0 {
		w.client.CloseIdleConnections()
	}
	pod := i / 2
	variant := pod % len(w.templates.filter)
	switch {
	case i%malformedEach == 0:
		return w.post(ctx, w.templates.malformed[i/malformedEach%len(w.templates.malformed)], pod)
	case i%truncatedEach == 0:
		return w.hangUp(ctx, w.templates.filter[variant], 0.5)
	case i%vanishingEach == 0:
		return w.hangUp(ctx, w.templates.filter[variant], 1)
	case i%explainEach == 1:
		return w.explain(ctx, pod)
	case i%preemptEach == 1:
		return w.post(ctx, w.templates.preempt[variant], pod)
	case i%wholeEach == 2:
		return w.post(ctx, w.templates.whole, pod)
	case i%2 == 0:
		return w.post(ctx, w.templates.filter[variant], pod)
	}
	return w.post(ctx, w.templates.prioritize[variant], pod)
}

func (w *worker) post(ctx context.Context, t template, pod int) error {
	w.buffer = t.of(pod, w.buffer)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.extender.verbs+t.verb, bytes.NewReader(w.buffer))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		return fmt.Errorf("call %s: %w", t.verb, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", t.verb, err)
	}
	if response.StatusCode != t.want {
		return fmt.Errorf("%s answers %s instead of %d: %s", t.verb, response.Status, t.want, answer)
	}
	return nil
}

// hangUp sends this share of a request, and does not wait for the answer.
func (w *worker) hangUp(ctx context.Context, t template, share float64) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.extender.verbs)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: extender\r\nContent-Length: %d\r\n\r\n%s",
		t.verb, len(t.body), t.body[:int(float64(len(t.body))*share)])
	return errors.Join(err, connection.Close())
}

func (w *worker) explain(ctx context.Context, pod int) error {
	// Whether this pod is still remembered does not matter.
	url := fmt.Sprintf("%s/explain?namespace=%s&pod=database-%0*d", w.extender.status, largecluster.Namespace, len(number), pod-1)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for an explanation: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read an explanation: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("the explanation is %s", response.Status)
	}
	return nil
}
