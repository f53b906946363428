package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// direct is how long it is tried to reach a pod by its address: where that does not
// work the way through the API server does.
const direct = 2 * time.Second

// dial opens a connection to a port of a pod: by its address, else through the API
// server of its cluster. Whoever answers, only the move's own keys count.
func dial(ctx context.Context, at site, pod *corev1.Pod, port int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: direct}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
	if err == nil {
		return conn, nil
	}
	forwarded, ferr := forward(ctx, at, pod, port)
	if ferr != nil {
		return nil, fmt.Errorf("reach port %d of pod %s/%s: %w", port, pod.Namespace, pod.Name, errors.Join(err, ferr))
	}
	return forwarded, nil
}

// links are the connections to the movers of one move.
type links struct {
	mu      sync.Mutex
	clients map[int]*movecontrol.Client
	splices map[int]context.CancelFunc
	// joined are the pods that a splice is between.
	joined map[int][2]types.UID
}

// close ends all connections.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, client := range l.clients {
		client.Close()
		delete(l.clients, i)
	}
	for i, stop := range l.splices {
		stop()
		delete(l.splices, i)
		delete(l.joined, i)
	}
}

// splice joins the data ports of both movers again and again until ctx ends. It sees
// only what is encrypted.
func splice(ctx context.Context, source, target func(context.Context) (net.Conn, error)) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := joined(ctx, source, target); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(3).Info("The connection between the movers ended", "reason", err.Error())
		}
		if time.Since(began) < time.Second {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

func joined(ctx context.Context, source, target func(context.Context) (net.Conn, error)) error {
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
	defer context.AfterFunc(ctx, func() { _ = a.Close(); _ = b.Close() })()
	ended := make(chan error, 2)
	pipe := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		// What one end has closed the other must learn of.
		_ = to.Close()
		_ = from.Close()
		ended <- err
	}
	go pipe(a, b)
	go pipe(b, a)
	return errors.Join(<-ended, <-ended)
}
