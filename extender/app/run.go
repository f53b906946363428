// Package app is the extender as a program: its commands and flags (NewCommand, Options), and Run,
// which makes clients and listeners, creates the parts of the other packages and serves. Read
// run.go first.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// NewCommand returns the command lodestone-extender.
func NewCommand() *cobra.Command {
	options := NewOptions()
	cmd := &cobra.Command{
		Use:   "lodestone-extender",
		Short: "Keeps pods near their data: a kube-scheduler extender for Lodestone volumes",
		Long: "lodestone-extender answers kube-scheduler's extender calls: it refuses nodes of clusters where a pod's volumes\n" +
			"are not or cannot be made, prefers those where the pod's data is, and keeps pods from being evicted in vain.",
	}
	options.AddFlags(cmd.Flags())
	logsapi.AddFlags(options.Logs, cmd.Flags())
	cmd.AddCommand(newCertificatesCommand(), newWebhookCommand())
	return command.Complete(cmd, options.Logs, options.Validate, func(ctx context.Context) error {
		config, err := options.Config(ctx)
		if err != nil {
			return err
		}
		return Run(ctx, config)
	})
}

// drainTimeout limits how long running requests may take after the listeners are closed;
// kube-scheduler waits no longer itself.
const drainTimeout = 5 * time.Second

// patience limits how long a call waits for a claim that kube-scheduler has seen and this program
// has not yet. It waits only for such claims, and usually a few milliseconds.
const patience = 200 * time.Millisecond

// followInterval is how often the files of certificates are read. They change a
// few times a year, and old ones stay valid for days.
const followInterval = 5 * time.Second

// Run watches the home cluster and answers kube-scheduler until ctx ends. It then reports itself as
// not ready, answers calls for the grace period, finishes the running ones and returns nil. It
// returns an error only if it cannot serve.
func Run(ctx context.Context, config *Config) error {
	view := snapshot.New()
	feeds, err := newFeeds(config.Home, view)
	if err != nil {
		return errors.Join(err, config.Close())
	}
	counters := metrics.New()
	for _, f := range feeds {
		counters.Watch(metrics.Kind{
			Name: f.Kind, Entries: f.Entries, LastChange: f.LastChange, Connected: f.Connected, Restarts: f.Restarts,
			Age: func() time.Duration { return f.Age(time.Now()) },
		})
	}
	var stopping atomic.Bool
	handlers := &server.Server{
		View:         view,
		Metrics:      counters,
		Journal:      explain.NewJournal(),
		Now:          time.Now,
		Missing:      feeds.Missing,
		Stalest:      func() (string, time.Duration) { return feeds.Stalest(time.Now()) },
		MaxStaleness: config.MaxStaleness,
		Stopping:     stopping.Load,
		Patience:     patience,
	}

	// Calls are still answered, with current data, for a while after ctx has ended.
	group, serving := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(serving)
	defer stopServing()
	verbs := newHTTPServer(serving, handlers.Handler())
	status := newHTTPServer(serving, handlers.Status())
	if err := protect(serving, group, config, verbs, status, counters); err != nil {
		return errors.Join(err, config.Close())
	}
	group.Go(func() error { feeds.Run(serving); return nil })
	group.Go(func() error { return serve(verbs, config.Verbs) })
	group.Go(func() error { return serve(status, config.Status) })
	group.Go(func() error {
		defer stopServing()
		select {
		case <-ctx.Done():
			stopping.Store(true)
			klog.FromContext(ctx).Info("Stopping", "grace", config.ShutdownGrace)
			wait(serving, config.ShutdownGrace)
		case <-serving.Done():
		}
		return shutDown(serving, verbs, status)
	})
	klog.FromContext(ctx).Info("Serving", "listen", config.Verbs.Addr().String(), "httpAddress", config.Status.Addr().String())
	return group.Wait()
}

func newFeeds(home *rest.Config, view *snapshot.Snapshot) (snapshot.Feeds, error) {
	home = rest.CopyConfig(home)
	home.UserAgent = "lodestone-extender"
	clusters, err := clients.NewRemoteClusters(home)
	if err != nil {
		return nil, err
	}
	home.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(home)
	if err != nil {
		return nil, fmt.Errorf("make client of the home cluster: %w", err)
	}
	return snapshot.NewFeeds(client, clusters, view), nil
}

// protect serves the verbs with the certificates that config names, if any. Readiness probes then
// fail while the certificates are not usable.
func protect(ctx context.Context, group *errgroup.Group, config *Config, verbs, status *http.Server, counters *metrics.Metrics) error {
	if config.TLS == nil {
		return nil
	}
	guard, err := mtls.Open(*config.TLS, time.Now, counters.Certificates())
	if err != nil {
		return fmt.Errorf("serve with TLS: %w", err)
	}
	guard.Attach(ctx, verbs)
	config.Verbs = guard.Listener(config.Verbs)
	status.Handler = readyUnless(guard.Problem, status.Handler)
	group.Go(func() error { guard.Follow(ctx, followInterval); return nil })
	return nil
}

func readyUnless(problem func() error, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	for _, path := range []string{"/readyz", "/readyz/serving"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := problem(); err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	return mux
}

// newHTTPServer returns a server whose time limits are under the 5 s after which
// kube-scheduler gives up by default. Idle connections outlive the caller's own
// limit of 90 s, so that they are never closed under a call.
func newHTTPServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       4 * time.Second,
		WriteTimeout:      4500 * time.Millisecond,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

func serve(s *http.Server, listener net.Listener) error {
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// shutDown finishes the running requests of the servers, one after another: the last one still
// answers probes meanwhile.
func shutDown(ctx context.Context, servers ...*http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	var problems []error
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			problems = append(problems, fmt.Errorf("finish running requests: %w", err))
		}
	}
	return errors.Join(problems...)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
