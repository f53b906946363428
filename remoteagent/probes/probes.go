// Package probes asks the API servers that the owner of this cluster names in HomeClusters whether they answer, and writes that
// into their status: a home that does not reach one of its clusters learns so whether it is reached from here.
package probes

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

const (
	// every is the pause between two requests to one server, timeout how long one waits for an answer.
	every, timeout = 10 * time.Second, 5 * time.Second
	// repeat is how often it is written again that a server does not answer: who reads it knows by that that the agent works.
	repeat = 20 * time.Second
)

// Controller writes into the status of HomeClusters which servers answer.
type Controller struct {
	remote  *clients.RemoteClient
	sources *sources.Sources
	queue   *controller.Queue[string]
	client  *http.Client
}

// New returns a Controller. It does nothing before Watch and Run.
func New(remote *clients.RemoteClient, from *sources.Sources) *Controller {
	return &Controller{remote: remote, sources: from, client: newClient(), queue: controller.NewQueue[string](controller.QueueConfig{
		Name: "probes", FirstRetry: time.Second, LastRetry: every, Timeout: sources.SyncTimeout,
	})}
}

// newClient returns a client that takes every answer for one: whoever is able to answer in the server's place could also keep it
// from answering, and all that comes of an answer is that no claim fails over by itself.
func newClient() *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // see above
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Watch adds the handler that queues HomeClusters.
func (c *Controller) Watch() error {
	return controller.OnChange(c.sources.Homes, func(was, now *remotev1alpha1.HomeCluster) {
		if now != nil && (was == nil || was.Generation != now.Generation) {
			c.queue.Add(now.Name)
		}
	})
}

// Run probes until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 4, c.sync) }

func (c *Controller) sync(ctx context.Context, id string) (time.Duration, error) {
	home := controller.Get[remotev1alpha1.HomeCluster](c.sources.Homes, id)
	if home == nil || home.DeletionTimestamp != nil || len(home.Spec.Probes)+len(home.Status.Probes) == 0 {
		return 0, nil
	}
	answers := c.probe(ctx, home.Spec.Probes)
	if ctx.Err() != nil {
		return 0, fmt.Errorf("probe the servers of HomeCluster %s: %w", id, ctx.Err())
	}
	again := every
	if len(home.Spec.Probes) == 0 {
		again = 0
	}
	now := metav1.Now().Rfc3339Copy()
	if equality.Semantic.DeepEqual(home.Status.Probes, results(home, answers, now)) {
		return again, nil
	}
	// The cache may be old.
	fresh, err := c.remote.HomeClusters().Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get HomeCluster %s: %w", id, err)
	}
	fresh.Status.Probes = results(fresh, answers, now)
	if _, err := c.remote.HomeClusters().UpdateStatus(ctx, fresh, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("write to HomeCluster %s which servers answer: %w", id, err)
	}
	return again, nil
}

// probe asks all servers at once, and returns those that answered.
func (c *Controller) probe(ctx context.Context, wanted []remotev1alpha1.ClusterProbe) map[remotev1alpha1.ClusterProbe]bool {
	var asking sync.WaitGroup
	var mu sync.Mutex
	answers := map[remotev1alpha1.ClusterProbe]bool{}
	for _, one := range wanted {
		asking.Go(func() {
			answered := c.answers(ctx, one.Server)
			mu.Lock()
			defer mu.Unlock()
			answers[one] = answered
		})
	}
	asking.Wait()
	return answers
}

// answers reports whether a server answers a request at all.
func (c *Controller) answers(ctx context.Context, server string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+"/livez", nil)
	if err != nil {
		return false
	}
	response, err := c.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, response.Body, 1024)
	_ = response.Body.Close()
	return true
}

// results returns what is to stand in the status of a HomeCluster: what was written is kept while it is still so, and young enough where
// it is written again. It is pure.
func results(home *remotev1alpha1.HomeCluster, answers map[remotev1alpha1.ClusterProbe]bool, now metav1.Time) []remotev1alpha1.ProbeResult {
	var all []remotev1alpha1.ProbeResult
	for _, one := range home.Spec.Probes {
		answered, asked := answers[one]
		if !asked {
			continue // The spec is newer than the request; the next one follows at once.
		}
		result := remotev1alpha1.ProbeResult{Cluster: one.Cluster, Answers: answered, LastProbe: now}
		for _, before := range home.Status.Probes {
			// The clock may have been set back.
			age := now.Sub(before.LastProbe.Time)
			if before.Cluster == one.Cluster && before.Answers == answered && (answered || age >= 0 && age < repeat) {
				result = before
			}
		}
		all = append(all, result)
	}
	return all
}
