package wire_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// pair is a sender that dials, and what it needs to connect to receivers of its move.
type pair struct {
	t      *testing.T
	sender *wire.Connector
	// data is the address at which the sender accepts joined connections.
	data string
	keys map[moverapi.Role]moverapi.Files
}

const move = "m1"

// quick is for tests: silence is noticed within a second.
var quick = wire.Timing{KeepaliveInterval: 100 * time.Millisecond, ReadTimeout: 500 * time.Millisecond}

func begin(t *testing.T) *pair {
	t.Helper()
	keys, err := moverapi.IssueKeys(move, time.Now(), time.Hour)
	require.NoError(t, err)
	config, err := keys[moverapi.Sender].Client(move, moverapi.Receiver)
	require.NoError(t, err)
	p := &pair{t: t, sender: wire.NewConnector(config, quick, nil), keys: keys}
	listener := listen(t)
	p.data = listener.Addr().String()
	p.runs(func(ctx context.Context) { p.sender.DialPeers(ctx) })
	p.runs(func(ctx context.Context) { assert.NoError(t, p.sender.Accept(ctx, listener)) })
	return p
}

// runs runs something until the test ends, or until what it returns is called.
func (p *pair) runs(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	p.t.Cleanup(stop)
	return stop
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// receiver starts one with some keys, and returns its address.
func (p *pair) receiver(keys map[moverapi.Role]moverapi.Files) (address string, stop func()) {
	p.t.Helper()
	config, err := keys[moverapi.Receiver].Server(move, moverapi.Sender)
	require.NoError(p.t, err)
	listener := listen(p.t)
	stop = p.runs(func(ctx context.Context) {
		assert.NoError(p.t, wire.ServeConnections(ctx, listener, config, quick, func(_ context.Context, conn *wire.Conn) error {
			for {
				if _, _, err := conn.Receive(); err != nil {
					return err
				}
			}
		}))
	})
	return listener.Addr().String(), stop
}

// join joins the sender with a receiver, as the controller does, until one of them closes the
// connection; ended is closed then.
func (p *pair) join(receiver string) (ended chan struct{}) {
	p.t.Helper()
	var ends [2]net.Conn
	for i, address := range []string{p.data, receiver} {
		conn, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", address)
		require.NoError(p.t, err)
		p.t.Cleanup(func() { _ = conn.Close() })
		ends[i] = conn
	}
	ended = make(chan struct{}, 2)
	for i := range ends {
		go func() {
			_, _ = ends[i].(*net.TCPConn).ReadFrom(ends[1-i])
			_, _ = ends[i].Close(), ends[1-i].Close()
			ended <- struct{}{}
		}()
	}
	return ended
}

// connected waits until the sender is connected, directly or not.
func (p *pair) connected(direct bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		connected, _, _ := p.sender.State()
		_, is, _ := p.sender.Peers()
		return connected && is == direct
	}, 10*time.Second, 5*time.Millisecond)
}

func TestASenderDialsTheReceiverAtTheFirstAddressThatLeadsThere(t *testing.T) {
	p := begin(t)
	good, _ := p.receiver(p.keys)
	other, err := moverapi.IssueKeys(move, time.Now(), time.Hour)
	require.NoError(t, err)
	stranger, _ := p.receiver(other)
	mute := listen(t)
	nobody := listen(t)
	require.NoError(t, nobody.Close())
	p.sender.SetPeers([]string{nobody.Addr().String(), stranger})
	require.Eventually(t, func() bool {
		_, _, missed := p.sender.Peers()
		return missed != nil && strings.HasPrefix(missed.Error(), "dial the receiver at "+stranger)
	}, 10*time.Second, 5*time.Millisecond, "whoever has not the keys of the move is no receiver")
	connected, count, _ := p.sender.State()
	assert.False(t, connected)
	assert.Zero(t, count)

	p.sender.SetPeers([]string{nobody.Addr().String(), mute.Addr().String(), stranger, good})
	p.connected(true)
	peers, _, missed := p.sender.Peers()
	assert.Len(t, peers, 4)
	require.NoError(t, missed)
}

func TestAReceiverThatIsSaidToBeElsewhereIsLeft(t *testing.T) {
	p := begin(t)
	first, _ := p.receiver(p.keys)
	second, _ := p.receiver(p.keys)
	p.sender.SetPeers([]string{first})
	p.connected(true)
	old, err := p.sender.Get(t.Context())
	require.NoError(t, err)
	p.sender.SetPeers([]string{second, first})
	select {
	case <-old.Done():
		require.Fail(t, "a connection that is still right was ended")
	case <-time.After(50 * time.Millisecond):
	}
	p.sender.SetPeers([]string{second})
	<-old.Done()
	p.connected(true)
	p.sender.SetPeers(nil)
	require.Eventually(t, func() bool { connected, _, _ := p.sender.State(); return !connected }, 10*time.Second, 5*time.Millisecond)
}

func TestNobodyJoinsWhatIsConnectedDirectly(t *testing.T) {
	p := begin(t)
	address, _ := p.receiver(p.keys)
	p.sender.SetPeers([]string{address})
	p.connected(true)
	direct, err := p.sender.Get(t.Context())
	require.NoError(t, err)
	<-p.join(address)
	require.NoError(t, direct.Send(wire.FrameProgress, nil))
	now, err := p.sender.Get(t.Context())
	require.NoError(t, err)
	assert.Same(t, direct, now, "the connection that works is kept")
	_, count, _ := p.sender.State()
	assert.EqualValues(t, 1, count)
}

func TestASenderIsJoinedWhereItsPeersLeadNowhereAndDialsThemAfterwards(t *testing.T) {
	p := begin(t)
	nobody := listen(t)
	require.NoError(t, nobody.Close())
	receiver, stop := p.receiver(p.keys)
	p.sender.SetPeers([]string{nobody.Addr().String()})
	require.Eventually(t, func() bool { _, _, missed := p.sender.Peers(); return missed != nil }, 10*time.Second, 5*time.Millisecond)
	p.join(receiver)
	p.connected(false)
	_, _, why := p.sender.State()
	require.NoError(t, why)

	// The receiver is another one now, which can be dialled.
	joined, err := p.sender.Get(t.Context())
	require.NoError(t, err)
	next, _ := p.receiver(p.keys)
	p.sender.SetPeers([]string{next})
	select {
	case <-joined.Done():
		require.Fail(t, "what was joined was not dialled, and stays")
	case <-time.After(50 * time.Millisecond):
	}
	stop()
	_, _, err = joined.Receive()
	require.ErrorIs(t, err, wire.ErrLost)
	p.connected(true)
}

func TestAConnectionThatLetsNothingThroughIsNotMadeAgainAtOnce(t *testing.T) {
	p := begin(t)
	config, err := p.keys[moverapi.Receiver].Server(move, moverapi.Sender)
	require.NoError(t, err)
	listener := listen(t)
	greetings := make(chan struct{}, 100)
	p.runs(func(ctx context.Context) {
		// It makes the handshake, and sends nothing more.
		_ = wire.AcceptTLS(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Server(raw, config) },
			func(conn *tls.Conn) { t.Cleanup(func() { _ = conn.Close() }); greetings <- struct{}{} }, nil)
	})
	p.sender.SetPeers([]string{listener.Addr().String()})
	<-greetings
	p.connected(true)
	conn, err := p.sender.Get(t.Context())
	require.NoError(t, err)
	_, _, err = conn.Receive()
	require.ErrorIs(t, err, wire.ErrLost)
	assert.True(t, conn.TimedOut())

	// Meanwhile it can be joined.
	receiver, _ := p.receiver(p.keys)
	p.join(receiver)
	p.connected(false)
	assert.Empty(t, greetings)
	_, _, missed := p.sender.Peers()
	require.ErrorContains(t, missed, "nothing came from "+listener.Addr().String())
}

// Small packets pass, and full ones do not: the handshake succeeds each time, and the receiver
// closes the connection because it receives nothing.
func TestAConnectionThatEndsAgainAndAgainIsLeftToWhoeverCanJoin(t *testing.T) {
	p := begin(t)
	config, err := p.keys[moverapi.Receiver].Server(move, moverapi.Sender)
	require.NoError(t, err)
	listener := listen(t)
	greetings := make(chan struct{}, 100)
	p.runs(func(ctx context.Context) {
		_ = wire.AcceptTLS(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Server(raw, config) },
			func(conn *tls.Conn) { greetings <- struct{}{}; _ = conn.Close() }, nil)
	})
	p.runs(func(ctx context.Context) {
		for {
			conn, err := p.sender.Get(ctx)
			if err != nil {
				return
			}
			_, _, _ = conn.Receive() // until it is lost
			conn.Close()
		}
	})
	p.sender.SetPeers([]string{listener.Addr().String()})
	<-greetings
	<-greetings
	require.Eventually(t, func() bool {
		_, _, missed := p.sender.Peers()
		return missed != nil && missed.Error() == "the connection to "+listener.Addr().String()+" ended again and again"
	}, 10*time.Second, 5*time.Millisecond)

	receiver, _ := p.receiver(p.keys)
	p.join(receiver)
	p.connected(false)
	assert.Empty(t, greetings, "it is not dialled a third time")
}
