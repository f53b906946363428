package copying

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
)

func TestWhatIsSplicedAndAwaitedIsRemembered(t *testing.T) {
	var l Link
	pods, others := [2]types.UID{"a", "b"}, [2]types.UID{"a", "c"}
	stopped := 0
	stop := func() { stopped++ }
	splicing, apart := l.spliceState(pods)
	assert.False(t, splicing)
	assert.Zero(t, apart)

	begin := time.Now()
	l.setAwaited(begin, true)
	l.setAwaited(begin.Add(time.Second), true)
	_, apart = l.spliceState(pods)
	assert.Equal(t, begin, apart, "it is awaited since it began")
	l.setAwaited(begin, false)
	_, apart = l.spliceState(pods)
	assert.Zero(t, apart)

	l.setSplice(pods, stop)
	splicing, _ = l.spliceState(pods)
	assert.True(t, splicing)
	splicing, _ = l.spliceState(others)
	assert.False(t, splicing, "one of them is another pod now")
	assert.Equal(t, 1, stopped)

	l.setSplice(others, stop)
	l.setError(context.Canceled)
	assert.NotEmpty(t, l.LastError())
	l.cut()
	assert.Equal(t, 2, stopped)
	assert.Empty(t, l.LastError())
	l.setSplice(others, stop)
	l.setSplice(pods, stop)
	l.setAwaited(begin, true)
	l.Close()
	assert.Equal(t, 4, stopped)
	_, apart = l.spliceState(pods)
	assert.Zero(t, apart)
}

func TestTheStatusSaysHowDataTravels(t *testing.T) {
	var w routes
	pods := [2]types.UID{"a", "b"}
	w.noteRoute(podPort{"a", movers.DataPort}, false, time.Now())
	w.noteRoute(podPort{"b", movers.DataPort}, true, time.Now())
	w.noteRoute(podPort{"b", movers.ControlPort}, false, time.Now())
	legs := &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAPIServer}
	for name, row := range map[string]struct {
		status moverapi.Status
		why    string
		want   transport.Connection
	}{
		"apart": {status: moverapi.Status{Seeks: true, PeerError: "no route"}, want: transport.Connection{Why: "no route"}},
		"direct": {status: moverapi.Status{Seeks: true, Connected: true, Direct: true},
			want: transport.Connection{Transport: v1alpha1.TransportDirect}},
		"joined": {status: moverapi.Status{Seeks: true, Connected: true, PeerError: "no route"},
			want: transport.Connection{Transport: v1alpha1.TransportSpliced, Legs: legs, Why: "no route"}},
		"joined, for networks apart": {status: moverapi.Status{Seeks: true, Connected: true}, why: "apart",
			want: transport.Connection{Transport: v1alpha1.TransportSpliced, Legs: legs, Why: "apart"}},
		"joined, for it is older": {status: moverapi.Status{Connected: true}, want: transport.Connection{Transport: v1alpha1.TransportSpliced,
			Legs: legs, Why: "the mover at the source is of a version that dials nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, connectionOf(&row.status, row.why, pods, &w))
		})
	}
}

func TestAddressesOfAPod(t *testing.T) {
	pod := &corev1.Pod{}
	assert.Empty(t, addressesOf(pod))
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::7"}}
	assert.Equal(t, []string{"10.1.2.3", "fd00::7"}, addressesOf(pod))
}

// end returns a function that connects to one end of a pipe, and the other end.
func end(t *testing.T) (func(context.Context) (net.Conn, error), net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	return func(context.Context) (net.Conn, error) { return near, nil }, far
}

func TestASpliceEnds(t *testing.T) {
	for name, test := range map[string]struct {
		cause func(source, target net.Conn, stop context.CancelFunc)
		says  string
	}{
		"when the source closes": {says: "the mover at the source closed", cause: func(source, _ net.Conn, _ context.CancelFunc) {
			_ = source.Close()
		}},
		"when the target closes": {says: "the mover at the target closed", cause: func(_, target net.Conn, _ context.CancelFunc) {
			_ = target.Close()
		}},
		"when its move ends": {says: context.Canceled.Error(), cause: func(_, _ net.Conn, stop context.CancelFunc) { stop() }},
		"when a target is gone that takes nothing and says nothing": {says: errIdle.Error(),
			cause: func(source, _ net.Conn, _ context.CancelFunc) {
				go func() { _, _ = source.Write(make([]byte, 1<<20)) }()
			}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			source, a := end(t)
			target, b := end(t)
			ended := make(chan error, 1)
			go func() { ended <- joinOnce(ctx, source, target, 200*time.Millisecond) }()
			go func() { _, _ = io.WriteString(a, "hello") }()
			said := make([]byte, 5)
			_, err := io.ReadFull(b, said)
			require.NoError(t, err)
			assert.Equal(t, "hello", string(said))
			test.cause(a, b, stop)
			require.ErrorContains(t, <-ended, test.says)
			_, err = a.Read(said)
			require.Error(t, err, "the other end learns of it")
			_, err = b.Read(said)
			require.Error(t, err)
		})
	}
}

func TestATargetThatTakesItsTimeIsNotSilent(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	source, a := end(t)
	target, b := end(t)
	ended := make(chan error, 1)
	const silent = 500 * time.Millisecond
	go func() { ended <- joinOnce(ctx, source, target, silent) }()
	go func() { _, _ = a.Write(make([]byte, 1<<20)) }()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	// Its storage hangs, so it reads nothing, but sends keepalives.
	for begun := time.Now(); time.Since(begun) < 3*silent; time.Sleep(silent / 20) {
		_, err := b.Write([]byte("alive"))
		require.NoError(t, err)
	}
	taken, err := io.ReadFull(b, make([]byte, 1<<20))
	require.NoError(t, err)
	assert.Equal(t, 1<<20, taken)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestThePortOfAPodIsReachedTheWayThatWorks(t *testing.T) {
	var w routes
	to, tried := podPort{"pod", movers.DataPort}, ""
	try := func(address, server error) (net.Conn, error) {
		tried = ""
		conn, _ := net.Pipe()
		way := func(name string, err error) func() (net.Conn, error) {
			return func() (net.Conn, error) {
				tried += name
				if err != nil {
					return nil, err
				}
				return conn, nil
			}
		}
		return w.choose(to, way("address ", address), way("server ", server))
	}
	// later lets so much time pass that the last connection counts as useful.
	later := func() {
		last := w.last[to]
		last.at = last.at.Add(-time.Minute)
		w.last[to] = last
	}
	away := errors.New("away")

	_, err := try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "address ", tried, "the address comes first")
	_, err = try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "server ", tried, "whoever answered at the address was of no use")
	later()
	_, err = try(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "server ", tried, "it has worked")
	later()
	_, err = try(nil, away)
	require.NoError(t, err)
	assert.Equal(t, "server address ", tried)
	later()
	_, err = try(away, away)
	require.ErrorIs(t, err, away)
	assert.Equal(t, "address server ", tried)
}

func TestThePortOfAPodWithoutAnAddressIsReachedThroughItsServerAlone(t *testing.T) {
	var w routes
	tried := 0
	for range 2 {
		_, err := w.choose(podPort{"pod", movers.DataPort}, nil, func() (net.Conn, error) { tried++; return &net.TCPConn{}, nil })
		require.NoError(t, err)
	}
	assert.Equal(t, 2, tried)
	_, err := w.choose(podPort{"pod", movers.DataPort}, nil, func() (net.Conn, error) { return nil, io.ErrUnexpectedEOF })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
