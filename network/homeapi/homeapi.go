// Package homeapi has pods of remote clusters reach home's API server through the fabric: a Server at home, in an ordinary pod, passes
// the connections of the pods of one namespace on to it. What passes is encrypted from end to end, and the API server asks each client
// for its token as ever.
package homeapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
)

// Server passes connections on.
type Server struct {
	// Dial connects to the API server.
	Dial func(context.Context) (net.Conn, error)
	// Allowed says whether somebody with an address may be connected.
	Allowed func(context.Context, netip.Addr) (bool, error)

	refusals rate.Sometimes
	mutex    sync.Mutex
	// open are how many connections there are, by address.
	open map[netip.Addr]int
}

const (
	// ofOne is how many connections of one address are open at most, and askAtOnce of how many it is asked at once whether they may be.
	ofOne, askAtOnce = 100, 32
	// timeout is how long it may take until a connection is passed on. The address of a pod that has just started is known a moment after
	// it has connected.
	timeout = 10 * time.Second
)

// New returns a Server for the pods of a namespace: of those of them that run in remote clusters the fabric lets nobody take the address.
func New(dial func(context.Context) (net.Conn, error), pods corev1client.PodInterface) *Server {
	return &Server{Dial: dial, Allowed: func(ctx context.Context, at netip.Addr) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=" + at.String(), ResourceVersion: "0"})
		if err != nil {
			return false, fmt.Errorf("find the pod with address %s: %w", at, err)
		}
		return slices.ContainsFunc(list.Items, lives), nil
	}}
}

// lives says whether a pod has its address for itself.
func lives(pod corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Serve passes on what connects to a listener, until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	s.refusals.Interval, s.open = time.Second, map[netip.Addr]int{}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	asking := make(chan struct{}, askAtOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for connections: %w", err)
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if s.count(from, 1) > ofOne {
			s.count(from, -1)
			s.refuse(ctx, conn, fmt.Sprintf("it has %d others already", ofOne))
			continue
		}
		running.Go(func() {
			defer s.count(from, -1)
			if err := s.pass(ctx, conn.(*net.TCPConn), from, asking); err != nil {
				s.refuse(ctx, conn, err.Error())
			}
		})
	}
}

// count changes how many connections of an address there are, and returns how many that makes.
func (s *Server) count(from netip.Addr, by int) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.open[from] += by
	if s.open[from] == 0 {
		delete(s.open, from)
		return 0
	}
	return s.open[from]
}

func (s *Server) refuse(ctx context.Context, conn net.Conn, why string) {
	_ = conn.Close()
	s.refusals.Do(func() {
		klog.FromContext(ctx).Info("Refused a connection", "from", conn.RemoteAddr().String(), "reason", why)
	})
}

// pass passes a connection on until both ends have closed it, if it may be.
func (s *Server) pass(ctx context.Context, conn *net.TCPConn, from netip.Addr, asking chan struct{}) error {
	beginning, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	if err := s.await(beginning, from, asking); err != nil {
		return err
	}
	to, err := s.Dial(beginning)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	defer conn.Close()
	defer to.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close(); _ = to.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() { oneWay(to.(*net.TCPConn), conn) })
	copying.Go(func() { oneWay(conn, to.(*net.TCPConn)) })
	copying.Wait()
	return nil
}

// oneWay passes on what one end says until it says no more. If that cannot be passed on neither end is of use any more.
func oneWay(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = from.Close()
		_ = to.Close()
		return
	}
	_ = to.CloseWrite()
}

// await returns once somebody with an address may be connected, and an error if that does not become so.
func (s *Server) await(ctx context.Context, from netip.Addr, asking chan struct{}) error {
	for pause := 250 * time.Millisecond; ; pause *= 2 {
		select {
		case asking <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%d others wait for an answer whether they may", askAtOnce)
		}
		allowed, err := s.Allowed(ctx, from)
		<-asking
		if err != nil || allowed {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("no pod of this namespace has the address %s", from)
		}
	}
}
