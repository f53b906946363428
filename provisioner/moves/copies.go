package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/moves/transport"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// askTimeout limits one request to a mover.
const askTimeout = 5 * time.Second

// observeCopies reads the progress of the movers at the sources, and maintains the
// connections between movers.
func (c *Controller) observeCopies(ctx context.Context, w *activeMove, o *steps.Observation) {
	r := o.Record
	if record.Before(r.Phase, v1alpha1.MoveProvision) || !record.Before(r.Phase, v1alpha1.MoveResume) {
		w.links.close()
		return
	}
	if r.Phase == v1alpha1.MoveQuiesce {
		// The movers are idle and pods end: keep the connections and send no requests.
		return
	}
	for i := range o.Claims {
		seen, from := &o.Claims[i], decide.ReadEnd(*o, i)
		reader := seen.Source.Mover
		if from == record.Snapped {
			reader = seen.Snapshot.Mover
		}
		if from == "" || !reader.Running {
			seen.CopyError = "it does not run"
			continue
		}
		client, err := c.moverClient(w, r, i, from)
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			seen.Copy, err = client.Status(asking)
			cancel()
		}
		if err != nil {
			seen.Copy, seen.CopyError = nil, err.Error()
			continue
		}
		if seen.Target.Mover.Running {
			c.connect(ctx, w, r, i, from, [2]types.UID{reader.Pod, seen.Target.Mover.Pod}, seen, client)
		}
		if why := w.links.lastError(i); why != "" && !seen.Copy.Connected {
			// The movers themselves do not know how their connections are made.
			seen.Copy.ConnectionError = why
		}
	}
	o.Advanced = w.progress.note(*o)
}

// moverClient returns the client of the mover that reads a claim at an end.
func (c *Controller) moverClient(w *activeMove, r *record.Record, i int, from record.End) (*moverapi.Client, error) {
	w.links.mu.Lock()
	defer w.links.mu.Unlock()
	l := w.links.of(i)
	if client, ok := l.clients[from]; ok {
		return client, nil
	}
	client, err := moverapi.NewClient(r.Claims[i].Keys[moverapi.Controller], r.KeysOf(i), c.dialMover(r, i, from, controlPort))
	if err != nil {
		return nil, err
	}
	if l.clients == nil {
		l.clients = map[record.End]*moverapi.Client{}
	}
	l.clients[from] = client
	return client, nil
}

// progress records when the copies of a move last made progress.
type progress struct {
	phase  v1alpha1.MovePhase
	claims []furthest
	at     time.Time
}

// furthest is the most progress that a task of one claim ever made. A task that starts
// again, because its connection broke, makes progress only beyond that.
type furthest struct {
	task                       string
	state                      moverapi.State
	bytes, files, sent, stored int64
}

// note compares the copies with before, and returns when one of them last made progress.
func (a *progress) note(o steps.Observation) time.Time {
	if a.phase != o.Record.Phase || len(a.claims) != len(o.Claims) {
		*a = progress{phase: o.Record.Phase, claims: make([]furthest, len(o.Claims)), at: o.Now}
	}
	for i := range o.Claims {
		if copied := o.Claims[i].Copy; copied != nil && copied.Task != nil && a.claims[i].note(copied.Task) {
			a.at = o.Now
		}
	}
	return a.at
}

// note says whether a task is further than ever before.
func (f *furthest) note(task *moverapi.TaskStatus) bool {
	p := task.Progress
	if task.ID != f.task {
		*f = furthest{task: task.ID, state: task.State, bytes: p.BytesDone, files: p.FilesDone, sent: p.BytesSent, stored: p.BytesStored}
		return true
	}
	further := p.BytesDone > f.bytes || p.FilesDone > f.files || p.BytesSent > f.sent || p.BytesStored > f.stored || task.State != f.state &&
		task.State == moverapi.Done
	f.bytes, f.files, f.state = max(f.bytes, p.BytesDone), max(f.files, p.FilesDone), task.State
	f.sent, f.stored = max(f.sent, p.BytesSent), max(f.stored, p.BytesStored)
	return further
}

// connect connects the movers of a claim, whose pods both run, as package transport
// chooses; from is the end that is read. If it fails, the next observation tries again.
func (c *Controller) connect(ctx context.Context, w *activeMove, r *record.Record, i int, from record.End, pods [2]types.UID,
	seen *steps.Claim, client *moverapi.Client) {
	wanted, why := transport.Peers(c.place(r.Claims[i].Source.Ref.Cluster), c.place(r.Claims[i].Target.Ref.Cluster),
		seen.Target.Mover.IPs, dataPort, c.Networks)
	now := time.Now()
	splicing, apart := w.links.spliceState(i, pods)
	// If all data is copied during the stop, waiting for the direct way is worth it.
	urgent := !r.Down.IsZero() && !r.Claims[i].CopiedInStop()
	action := transport.Next(transport.Seen{Now: now, Wanted: wanted, Status: seen.Copy, Splicing: splicing, Apart: apart, Urgent: urgent})
	if action == transport.Tell {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		err := client.Tell(asking, moverapi.Peers{Addresses: wanted})
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A mover was not told where the other one is", "claim", r.Claims[i].Name, "err", err)
		}
		if errors.Is(err, moverapi.ErrRefused) && !splicing {
			// The mover would refuse again.
			action = transport.Splice
		}
	}
	w.links.setAwaited(i, now, action == transport.Await)
	switch action {
	case transport.Splice:
		c.splice(ctx, w, r, i, from, pods)
	case transport.Cut:
		w.links.cut(i)
	default: // the other actions change no connection
	}
	seen.Connection = connectionOf(seen.Copy, why, pods, &c.routes)
}

// connectionOf describes how data travels between two movers. why says why one may not dial
// the other.
func connectionOf(status *moverapi.Status, why string, pods [2]types.UID, taken *dialRoutes) steps.Connection {
	way := steps.Connection{Why: why}
	switch {
	case status.Connected && status.Direct:
		return steps.Connection{Transport: v1alpha1.TransportDirect}
	case why != "":
	case !status.Seeks:
		way.Why = "the mover at the source is of a version that dials nobody"
	default:
		way.Why = status.PeerError
	}
	if status.Connected {
		way.Transport = v1alpha1.TransportSpliced
		way.Legs = &v1alpha1.MoveLegs{Source: taken.leg(podPort{pods[0], dataPort}), Target: taken.leg(podPort{pods[1], dataPort})}
	}
	return way
}

// splice joins the movers of a claim until cut is called.
func (c *Controller) splice(ctx context.Context, w *activeMove, r *record.Record, i int, from record.End, pods [2]types.UID) {
	// It must outlive this step, until the links of the move are closed.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.links.setSplice(i, pods, stop)
	go splice(ctx, c.dialMover(r, i, from, dataPort), c.dialMover(r, i, record.Target, dataPort), func(err error) { w.links.setError(i, err) })
}

// splice joins the data ports of both movers again and again until ctx ends. All data that
// passes is encrypted. It calls note with the error of each connection.
func splice(ctx context.Context, source, target func(context.Context) (net.Conn, error), note func(error)) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := joinOnce(ctx, source, target, idleTimeout); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(3).Info("The connection between the movers ended", "reason", err.Error())
			note(err)
		}
		if time.Since(began) < time.Second {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// joinOnce opens a connection to each mover and joins them, until either ends or is idle
// for too long, or ctx ends. It always returns an error.
func joinOnce(ctx context.Context, source, target func(context.Context) (net.Conn, error), silent time.Duration) error {
	a, err := source(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := target(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Closing also ends reads and writes that are blocked.
	defer context.AfterFunc(ctx, func() { _ = a.Close(); _ = b.Close() })()
	var piping sync.WaitGroup
	pipe := func(to net.Conn, from *idleConn, name string) {
		if _, err := io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, 64<<10)); err != nil {
			stop(fmt.Errorf("the connection from the mover at the %s broke: %w", name, err))
		} else {
			// If one end has closed, close the other too.
			stop(fmt.Errorf("the mover at the %s closed the connection", name))
		}
	}
	fromA, fromB := newIdleConn(a), newIdleConn(b)
	piping.Go(func() { pipe(a, fromB, "target") })
	piping.Go(func() { pipe(b, fromA, "source") })
	piping.Go(func() { closeWhenIdle(ctx, stop, silent, fromA, fromB) })
	piping.Wait()
	return context.Cause(ctx)
}

// idleConn is a connection that knows when its last read began and whether one is blocked
// now. While data is written to a slow peer no read is blocked, and that is not idleness.
type idleConn struct {
	net.Conn
	lastRead atomic.Int64
	reading  atomic.Bool
}

func newIdleConn(conn net.Conn) *idleConn {
	h := &idleConn{Conn: conn}
	h.lastRead.Store(time.Now().UnixNano())
	return h
}

// Read implements io.Reader.
func (h *idleConn) Read(p []byte) (int, error) {
	h.lastRead.Store(time.Now().UnixNano())
	h.reading.Store(true)
	defer h.reading.Store(false)
	return h.Conn.Read(p)
}

// idleTimeout is for how long a mover may send nothing before its connection counts as
// lost: an idle mover sends keepalives much more often. Without it a connection to a dead
// machine would stay until the kernel gives it up.
const idleTimeout = 50 * time.Second

var errIdle = errors.New("one of the movers has not been heard of for a while")

// closeWhenIdle stops a splice if one end has been idle for too long; it returns when ctx
// ends.
func closeWhenIdle(ctx context.Context, stop context.CancelCauseFunc, silent time.Duration, ends ...*idleConn) {
	ticker := time.NewTicker(silent / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, end := range ends {
			if end.reading.Load() && time.Since(time.Unix(0, end.lastRead.Load())) > silent {
				stop(errIdle)
			}
		}
	}
}

// links has the connections to the movers of one move. Its zero value is ready to use.
type links struct {
	mu     sync.Mutex
	claims map[int]*link
}

// link has the clients and the splice of one claim's movers.
type link struct {
	// clients are the clients of the movers that read the claim, by end.
	clients map[record.End]*moverapi.Client
	// stop ends the splice between pods; nil: there is none. ended is the error of its last
	// connection.
	stop  context.CancelFunc
	pods  [2]types.UID
	ended string
	// awaitedSince is since when the mover at the source has had time to dial; zero: it
	// does not have to.
	awaitedSince time.Time
}

// of returns the link of a claim; the caller holds the lock.
func (l *links) of(i int) *link {
	if l.claims[i] == nil {
		if l.claims == nil {
			l.claims = map[int]*link{}
		}
		l.claims[i] = &link{}
	}
	return l.claims[i]
}

// cut ends the splice; the caller holds the lock.
func (l *link) cut() {
	if l.stop != nil {
		l.stop()
	}
	l.stop, l.pods, l.ended = nil, [2]types.UID{}, ""
}

// spliceState says whether two pods of a claim are being joined, and returns awaitedSince.
// A splice between other pods is ended.
func (l *links) spliceState(i int, pods [2]types.UID) (splicing bool, apart time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(i)
	if of.stop != nil && of.pods != pods {
		of.cut()
	}
	return of.stop != nil, of.awaitedSince
}

// setAwaited sets awaitedSince when waiting begins, and clears it when it ends.
func (l *links) setAwaited(i int, now time.Time, awaited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch of := l.of(i); {
	case !awaited:
		of.awaitedSince = time.Time{}
	case of.awaitedSince.IsZero():
		of.awaitedSince = now
	}
}

// setSplice records the splice between two pods and ends the previous one.
func (l *links) setSplice(i int, pods [2]types.UID, stop context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(i)
	of.cut()
	of.stop, of.pods = stop, pods
}

// cut ends the splice of a claim.
func (l *links) cut(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(i).cut()
}

// lastError returns the error of the last connection between the movers of a claim, empty
// if there is none.
func (l *links) lastError(i int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(i).ended
}

// setError records the error of a connection between the movers of a claim.
func (l *links) setError(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(i).ended = err.Error()
}

// close ends all connections.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.claims {
		for _, client := range of.clients {
			client.Close()
		}
		of.cut()
	}
	clear(l.claims)
}

// dialMover returns a function that connects to a port of an end's mover; it looks up the
// mover's pod at each call.
func (c *Controller) dialMover(r *record.Record, i int, end record.End, port uint16) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		at, pod, err := c.moverPod(ctx, r, i, end)
		if err != nil {
			return nil, err
		}
		address := transport.Reach(c.place(r.Claims[i].At(end).Ref.Cluster), pod.Status.PodIP, port, c.Networks)
		return c.routes.dial(ctx, at, pod, port, address)
	}
}

// place is where a cluster is for package transport.
func (c *Controller) place(cluster string) transport.Place {
	return transport.PlaceOf(cluster, c.Clusters.Object(cluster))
}

// moverPod reads the pod of a mover, and returns it with its cluster. A mover that does not
// run is an error.
func (c *Controller) moverPod(ctx context.Context, r *record.Record, i int, end record.End) (site.Site, *corev1.Pod, error) {
	at, err := c.sites.At(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return at, nil, err
	}
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	m, pod, err := c.moverAt(ctx, at, r, i, end)
	if err == nil && !m.Running {
		err = fmt.Errorf("the mover at the %s does not run", end)
	}
	return at, pod, err
}

const (
	// dialTimeout limits the attempt to reach a pod by its address; if it fails, the API
	// server is used.
	dialTimeout = 2 * time.Second
	// routeDoubt: if a new connection is needed within this time, the last route was
	// useless: where clusters use the same addresses, another machine may have answered.
	routeDoubt = 10 * time.Second
	// routeLifetime is for how long the route to a pod is remembered.
	routeLifetime = time.Hour
)

// dialRoutes remembers by which route ports of pods were reached. Its zero value is ready
// to use.
type dialRoutes struct {
	mu   sync.Mutex
	last map[podPort]lastRoute
}

// podPort is a port of a pod; lastRoute is its last route.
type (
	podPort struct {
		pod  types.UID
		port int
	}
	lastRoute struct {
		forwarded bool
		at        time.Time
	}
)

// dial opens a connection to a port of a pod: to its address, if there is one that may be
// dialled, or through the API server of its cluster. The peer is not trusted: only the
// move's own keys authenticate it.
func (w *dialRoutes) dial(ctx context.Context, at site.Site, pod *corev1.Pod, port uint16, address string) (net.Conn, error) {
	var byAddress func() (net.Conn, error)
	if address != "" {
		byAddress = func() (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTimeout}
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	byServer := func() (net.Conn, error) { return dialPodPort(ctx, at, pod, int(port)) }
	return w.choose(podPort{pod.UID, int(port)}, byAddress, byServer)
}

// choose tries both routes, the more promising one first. If byAddress is nil there is only
// one.
func (w *dialRoutes) choose(to podPort, byAddress, byServer func() (net.Conn, error)) (net.Conn, error) {
	forwarded := w.forwardFirst(to, time.Now())
	var errs []error
	for range 2 {
		open := byAddress
		if forwarded {
			open = byServer
		}
		if open != nil {
			conn, err := open()
			if err == nil {
				w.noteRoute(to, forwarded, time.Now())
				return conn, nil
			}
			errs = append(errs, err)
		}
		forwarded = !forwarded
	}
	return nil, fmt.Errorf("reach port %d of the mover: %w", to.port, errors.Join(errs...))
}

// forwardFirst says whether to try the API server before the address.
func (w *dialRoutes) forwardFirst(to podPort, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[to]
	if known && now.Sub(last.at) < routeDoubt {
		return !last.forwarded
	}
	return known && last.forwarded
}

// noteRoute records the route to a port.
func (w *dialRoutes) noteRoute(to podPort, forwarded bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[podPort]lastRoute{}
	}
	for other, last := range w.last {
		if now.Sub(last.at) > routeLifetime {
			delete(w.last, other)
		}
	}
	w.last[to] = lastRoute{forwarded, now}
}

// leg returns the last route to a port; empty if none is known.
func (w *dialRoutes) leg(to podPort) v1alpha1.MoveLeg {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[to]
	switch {
	case !known:
		return ""
	case last.forwarded:
		return v1alpha1.LegAPIServer
	}
	return v1alpha1.LegAddress
}
