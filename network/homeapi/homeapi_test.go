package homeapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// world is a Server that allows one address of loopback, and an API server that says back what it hears.
type world struct {
	t       *testing.T
	at      string
	heard   atomic.Int32
	allowed atomic.Value
	down    atomic.Bool
	stop    context.CancelFunc
	ended   chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &world{t: t, stop: stop, ended: make(chan error, 1)}
	w.allowed.Store(netip.MustParseAddr("127.0.0.2"))
	api, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		for {
			conn, err := api.Accept()
			if err != nil {
				return
			}
			w.heard.Add(1)
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.at = listener.Addr().String()
	s := &Server{
		Dial: func(ctx context.Context) (net.Conn, error) {
			if w.down.Load() {
				return nil, errors.New("nobody listens")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", api.Addr().String())
		},
		Allowed: func(_ context.Context, from netip.Addr) (bool, error) { return from == w.allowed.Load(), nil },
	}
	go func() { w.ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		_ = api.Close()
	})
	return w
}

// connect connects as somebody with an address.
func (w *world) connect(from string) net.Conn {
	w.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", w.at)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// answered says whether what is sent comes back.
func answered(conn net.Conn) bool {
	if _, err := conn.Write([]byte("hello")); err != nil {
		return false
	}
	answer := make([]byte, 5)
	_, err := io.ReadFull(conn, answer)
	return err == nil && string(answer) == "hello"
}

func TestOnlyPodsOfTheNamespaceAreConnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allowed := w.connect("127.0.0.2")
	require.True(t, answered(allowed))
	require.NoError(t, allowed.(*net.TCPConn).CloseWrite())
	_, err := allowed.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "that one end has no more to say is passed on")
	require.EqualValues(t, 1, w.heard.Load())

	require.False(t, answered(w.connect("127.0.0.3")))
	require.EqualValues(t, 1, w.heard.Load(), "the API server hears nothing of others")
}

func TestAPodWhoseAddressIsKnownAMomentLaterIsConnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	early := w.connect("127.0.0.4")
	go func() {
		time.Sleep(100 * time.Millisecond)
		w.allowed.Store(netip.MustParseAddr("127.0.0.4"))
	}()
	require.True(t, answered(early))
}

func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range ofOne {
		w.connect("127.0.0.3")
	}
	more := w.connect("127.0.0.3")
	_, err := more.Read(make([]byte, 1))
	require.Error(t, err, "it is closed before anybody is asked")
	require.True(t, answered(w.connect("127.0.0.2")), "others are connected")
	for range 2 * ofOne {
		conn := w.connect("127.0.0.2")
		require.True(t, answered(conn), "those that have ended do not count")
		require.NoError(t, conn.Close())
		_, _ = conn.Read(make([]byte, 1))
	}
}

func TestConnectionsEndWithTheAPIServerAndWithTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.down.Store(true)
	require.False(t, answered(w.connect("127.0.0.2")), "a client sees that nobody answers, and tries again")
	w.down.Store(false)
	open := w.connect("127.0.0.2")
	require.True(t, answered(open))
	w.stop()
	_, err := open.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, <-w.ended)
}

func TestWhichPodsAreConnected(t *testing.T) {
	pod := func(change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(&p)
		return p
	}
	for name, row := range map[string]struct {
		pods    []corev1.Pod
		err     error
		allowed bool
	}{
		"one that runs":           {pods: []corev1.Pod{pod(func(*corev1.Pod) {})}, allowed: true},
		"nobody has that address": {},
		"one that has ended, and its address is another's by now": {pods: []corev1.Pod{
			pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}},
		"one with the address of its node": {pods: []corev1.Pod{pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true })}},
		"one that is ending": {pods: []corev1.Pod{pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })},
			allowed: true},
		"the API server does not say": {err: errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				list := action.(clienttesting.ListAction)
				assert.Equal(t, "shop", list.GetNamespace())
				assert.Equal(t, "status.podIP=10.1.2.3", list.GetListRestrictions().Fields.String())
				return true, &corev1.PodList{Items: row.pods}, row.err
			})
			allowed, err := New(nil, client.CoreV1().Pods("shop")).Allowed(t.Context(), netip.MustParseAddr("10.1.2.3"))
			assert.Equal(t, row.allowed, allowed)
			if row.err != nil {
				assert.ErrorContains(t, err, "find the pod with address 10.1.2.3: away")
			}
		})
	}
}
