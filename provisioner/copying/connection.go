package copying

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// AskTimeout limits one request to a mover.
const AskTimeout = 5 * time.Second

// findTimeout limits the search for a mover's pod and the attempt to reach it.
const findTimeout = 30 * time.Second

// Link has the clients of the movers of one copy, and the connection between them. Its zero value is ready to use.
type Link struct {
	mu sync.Mutex
	// clients are those of the movers that read, by name.
	clients map[string]*moverapi.Client
	// stop ends the splice between pods; nil: there is none. ended is the error of its last
	// connection.
	stop  context.CancelFunc
	pods  [2]types.UID
	ended string
	// awaitedSince is since when the mover at the source has had time to dial; zero: it
	// does not have to.
	awaitedSince time.Time
}

// Pair is the two movers of a copy, whose pods both run.
type Pair struct {
	Reader, Writer movers.Mover
	// Pods are the UIDs of their pods, Addresses those of the writer's.
	Pods      [2]types.UID
	Addresses []string
	// Urgent says that somebody waits for the copy.
	Urgent bool
}

// Client returns the client of a mover that reads; controller are the keys for that.
func (c *Copier) Client(l *Link, reader movers.Mover, controller moverapi.Files) (*moverapi.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if client, ok := l.clients[reader.Name]; ok {
		return client, nil
	}
	client, err := moverapi.NewClient(controller, reader.Session, c.dial(reader, movers.ControlPort))
	if err != nil {
		return nil, err
	}
	if l.clients == nil {
		l.clients = map[string]*moverapi.Client{}
	}
	l.clients[reader.Name] = client
	return client, nil
}

// Connect connects two movers, as package transport chooses, and says how data travels between them. Status is what the
// client of the reader said. If it fails, the next call tries again.
func (c *Copier) Connect(ctx context.Context, l *Link, p Pair, client *moverapi.Client, status *moverapi.Status) transport.Connection {
	wanted, why := transport.Peers(c.place(p.Reader.Ref.Cluster), c.place(p.Writer.Ref.Cluster), p.Addresses, movers.DataPort, c.Networks)
	now := time.Now()
	splicing, apart := l.spliceState(p.Pods)
	action := transport.Next(transport.Seen{Now: now, Wanted: wanted, Status: status, Splicing: splicing, Apart: apart, Urgent: p.Urgent})
	if action == transport.Tell {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		err := client.Tell(asking, moverapi.Peers{Addresses: wanted})
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A mover was not told where the other one is", "mover", p.Reader.Name, "err", err)
		}
		if errors.Is(err, moverapi.ErrRefused) && !splicing {
			// The mover would refuse again.
			action = transport.Splice
		}
	}
	l.setAwaited(now, action == transport.Await)
	switch action {
	case transport.Splice:
		c.splice(ctx, l, p)
	case transport.Cut:
		l.cut()
	default: // the other actions change no connection
	}
	return connectionOf(status, why, p.Pods, &c.routes)
}

// connectionOf describes how data travels between two movers. why says why one may not dial
// the other.
func connectionOf(status *moverapi.Status, why string, pods [2]types.UID, taken *routes) transport.Connection {
	way := transport.Connection{Why: why}
	switch {
	case status.Connected && status.Direct:
		return transport.Connection{Transport: v1alpha1.TransportDirect}
	case why != "":
	case !status.Seeks:
		way.Why = "the mover at the source is of a version that dials nobody"
	default:
		way.Why = status.PeerError
	}
	if status.Connected {
		way.Transport = v1alpha1.TransportSpliced
		way.Legs = &v1alpha1.MoveLegs{Source: taken.leg(podPort{pods[0], movers.DataPort}), Target: taken.leg(podPort{pods[1], movers.DataPort})}
	}
	return way
}

// splice joins two movers until cut is called.
func (c *Copier) splice(ctx context.Context, l *Link, p Pair) {
	// It must outlive this call, until the link is closed.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.setSplice(p.Pods, stop)
	go splice(ctx, c.dial(p.Reader, movers.DataPort), c.dial(p.Writer, movers.DataPort), l.setError)
}

// place is where a cluster is for package transport.
func (c *Copier) place(cluster string) transport.Place {
	return transport.PlaceOf(cluster, c.Sites.Clusters.Object(cluster))
}

// dial returns a function that connects to a port of a mover; it looks up the
// mover's pod at each call.
func (c *Copier) dial(m movers.Mover, port uint16) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, findTimeout)
		defer cancel()
		at, pod, err := c.runningPod(ctx, m)
		if err != nil {
			return nil, err
		}
		address := transport.Reach(c.place(m.Ref.Cluster), pod.Status.PodIP, port, c.Networks)
		return c.routes.dial(ctx, at, pod, port, address)
	}
}

// runningPod reads the pod of a mover, and returns it with its cluster. A mover that does not
// run is an error.
func (c *Copier) runningPod(ctx context.Context, m movers.Mover) (site.Site, *corev1.Pod, error) {
	at, err := c.Sites.At(m.Ref.Cluster)
	if err != nil {
		return at, nil, err
	}
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	state, pod, err := Read(ctx, at, m)
	if err == nil && !state.Running {
		err = fmt.Errorf("the mover at the %s does not run", m.End())
	}
	return at, pod, err
}

// cutLocked ends the splice; the caller holds the lock.
func (l *Link) cutLocked() {
	if l.stop != nil {
		l.stop()
	}
	l.stop, l.pods, l.ended = nil, [2]types.UID{}, ""
}

// spliceState says whether two pods are being joined, and returns awaitedSince.
// A splice between other pods is ended.
func (l *Link) spliceState(pods [2]types.UID) (splicing bool, apart time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil && l.pods != pods {
		l.cutLocked()
	}
	return l.stop != nil, l.awaitedSince
}

// setAwaited sets awaitedSince when waiting begins, and clears it when it ends.
func (l *Link) setAwaited(now time.Time, awaited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !awaited:
		l.awaitedSince = time.Time{}
	case l.awaitedSince.IsZero():
		l.awaitedSince = now
	}
}

// setSplice records the splice between two pods and ends the previous one.
func (l *Link) setSplice(pods [2]types.UID, stop context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked()
	l.stop, l.pods = stop, pods
}

// cut ends the splice.
func (l *Link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked()
}

// LastError returns the error of the last connection between the movers, empty
// if there is none.
func (l *Link) LastError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// setError records the error of a connection between the movers.
func (l *Link) setError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = err.Error()
}

// Close ends all connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, client := range l.clients {
		client.Close()
	}
	l.cutLocked()
	l.clients, l.awaitedSince = nil, time.Time{}
}

// Furthest is the most progress that a task of one copy ever made. A task that starts
// again, because its connection broke, makes progress only beyond that.
type Furthest struct {
	task                       string
	state                      moverapi.State
	bytes, files, sent, stored int64
}

// Note says whether a task is further than ever before.
func (f *Furthest) Note(task *moverapi.TaskStatus) bool {
	p := task.Progress
	if task.ID != f.task {
		*f = Furthest{task: task.ID, state: task.State, bytes: p.BytesDone, files: p.FilesDone, sent: p.BytesSent, stored: p.BytesStored}
		return true
	}
	further := p.BytesDone > f.bytes || p.FilesDone > f.files || p.BytesSent > f.sent || p.BytesStored > f.stored || task.State != f.state &&
		task.State == moverapi.Done
	f.bytes, f.files, f.state = max(f.bytes, p.BytesDone), max(f.files, p.FilesDone), task.State
	f.sent, f.stored = max(f.sent, p.BytesSent), max(f.stored, p.BytesStored)
	return further
}
