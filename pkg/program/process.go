package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	// These count what clients and work queues do.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/klog/v2"
)

// Settings are what differs between programs with a leader.
type Settings struct {
	// Name is the program's: its user agent, the source of its events and the name of its Lease.
	Name string
	// QPS and Burst are how many requests a second the program sends; the API server's own
	// flow control does the rest.
	QPS   float32
	Burst int
	// Scheme has the types that events are about; nil: those of client-go.
	Scheme *runtime.Scheme
}

// Process holds what every running program with a leader needs.
type Process struct {
	// Access is how the program's cluster is reached, with the program's rates.
	Access *rest.Config
	// Client is for everything but the Lease.
	Client kubernetes.Interface
	// Metrics and Probes are served at the address of the options.
	Metrics *prometheus.Registry
	Probes  *Probes
	// Recorder makes events in the program's cluster.
	Recorder record.EventRecorder

	name     string
	options  Options
	election kubernetes.Interface
	ctx      context.Context
	types    *runtime.Scheme
	stop     func()
}

// garbage is how much garbage may gather before it is collected, in percent of what is in use. What
// these programs hold grows with the cluster, and changes little: Go's default, as much garbage as
// there is in use, nearly doubles the memory that they need, and less costs little processor time. The
// environment variable GOGC has precedence.
const garbage = 30

// Start creates the clients, the metrics and the event recorder of a program, and begins to serve
// health and metrics. The caller must call Stop.
func Start(ctx context.Context, access *rest.Config, options Options, settings Settings) (*Process, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	p := &Process{Access: rest.CopyConfig(access), name: settings.Name, options: options, Metrics: prometheus.NewRegistry(),
		Probes: NewProbes()}
	p.Access.UserAgent = settings.Name
	p.Access.QPS, p.Access.Burst = settings.QPS, settings.Burst
	// Built-in objects are smaller and faster in protobuf.
	p.Access.ContentType = runtime.ContentTypeProtobuf
	p.Access.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	var err error
	if p.Client, err = kubernetes.NewForConfig(p.Access); err != nil {
		return nil, fmt.Errorf("make client of the cluster: %w", err)
	}
	// A burst of work must not hold up the lease.
	if p.election, err = kubernetes.NewForConfig(p.Limited(5, 10)); err != nil {
		return nil, fmt.Errorf("make client for the lease: %w", err)
	}
	stopHTTP, err := p.Probes.Serve(ctx, options.HTTPAddress, p.Metrics)
	if err != nil {
		return nil, err
	}
	types := settings.Scheme
	if types == nil {
		types = scheme.Scheme
	}
	p.ctx, p.types, p.stop = ctx, types, stopHTTP
	p.Recorder = p.NewRecorder(p.Client)
	return p, nil
}

// NewRecorder returns a recorder that makes events with a client of the program's cluster, until
// Stop. Call it before Lead.
func (p *Process) NewRecorder(client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(p.ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	others := p.stop
	p.stop = func() {
		broadcaster.Shutdown()
		others()
	}
	return broadcaster.NewRecorder(p.types, corev1.EventSource{Component: p.name})
}

// Stop ends what Start began: the endpoints and the event recorder.
func (p *Process) Stop() { p.stop() }

// Limited returns a copy of Access with its own rate, in requests a second, so that other work
// cannot use it up.
func (p *Process) Limited(qps float32, burst int) *rest.Config {
	access := rest.CopyConfig(p.Access)
	access.RateLimiter, access.QPS, access.Burst = nil, qps, burst
	return access
}

// HomeID returns the ID of the program's cluster, the home cluster: the one that is
// configured, or else the beginning of its UID, which is that of namespace kube-system.
func (p *Process) HomeID(ctx context.Context, configured string) (id, uid string, err error) {
	system, err := p.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("get namespace kube-system of the home cluster: %w", err)
	}
	if configured == "" {
		configured = string(system.UID)[:8]
	}
	return configured, string(system.UID), nil
}

// Lead runs work while this replica leads; see the function Lead. Namespace and times are those of
// the options.
func (p *Process) Lead(ctx context.Context, work func(context.Context) error) error {
	return Lead(ctx, p.election, Election{
		Enabled: p.options.LeaderElect, Namespace: p.options.Namespace, Name: p.name, Duration: p.options.LeaseDuration,
	}, work)
}

// Election configures how the leading replica is found.
type Election struct {
	// Enabled is false for a program that has one replica: it always leads.
	Enabled bool
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Duration is how long other replicas wait before they replace a silent
	// leader; at least 3 s.
	Duration time.Duration
}

// Lead runs work while this replica leads. When ctx ends, work is stopped and
// waited for before the lease is given up, so that the next leader never works
// beside this one. Losing the lease stops work and is an error.
func Lead(ctx context.Context, client kubernetes.Interface, e Election, work func(context.Context) error) error {
	if !e.Enabled {
		return work(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find host name: %w", err)
	}
	// The elector must outlive ctx until work has ended.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var mu sync.Mutex
	var leading, ended bool
	var failed error
	done := make(chan struct{})
	logger := klog.FromContext(ctx)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration:   e.Duration,
		RenewDeadline:   e.Duration * 2 / 3,
		RetryPeriod:     max(e.Duration/8, 500*time.Millisecond),
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				defer close(done)
				mu.Lock()
				if ended {
					mu.Unlock()
					return
				}
				leading = true
				mu.Unlock()
				logger.Info("Leading")
				both, stop := context.WithCancel(held)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				failed = work(both)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		if !leading {
			release()
		}
	})()
	elector.Run(electing)
	mu.Lock()
	led := leading
	mu.Unlock()
	if led {
		<-done
	}
	if ctx.Err() == nil && failed == nil {
		return errors.New("leadership was lost, since the lease could not be renewed in time: starting again")
	}
	return failed
}

// Probes answer whether a program is ready. They are safe for concurrent use.
type Probes struct {
	mu      sync.Mutex
	waiting string
}

// NewProbes returns Probes of a program that is not ready.
func NewProbes() *Probes { return &Probes{waiting: "start"} }

// WaitFor makes the program not ready, and /readyz say what it waits for.
func (p *Probes) WaitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = what
}

// Ready makes the program ready.
func (p *Probes) Ready() { p.WaitFor("") }

func (p *Probes) serveReady(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	waiting := p.waiting
	p.mu.Unlock()
	if waiting != "" {
		http.Error(w, "not ready: waiting for "+waiting, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Serve serves /healthz, /readyz and /metrics at an address until the returned
// function is called; nothing if the address is empty. The metrics are those of
// the registry and of client-go.
func (p *Probes) Serve(ctx context.Context, address string, registry *prometheus.Registry) (func(), error) {
	if address == "" {
		return func() {}, nil
	}
	registry.MustRegister(collectors.NewBuildInfoCollector())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}, promhttp.HandlerOpts{}))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics (--http-address): %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Health and metrics are no longer served")
		}
	}()
	return func() { _ = server.Close() }, nil
}
