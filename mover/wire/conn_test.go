package wire_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/wire"
)

// secured gives both ends of a TLS connection over loopback, and what is below the first.
func secured(t *testing.T) (from, to *tls.Conn, below *counted) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	raw, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	other, err := listener.Accept()
	require.NoError(t, err)
	below = &counted{Conn: raw}
	//nolint:gosec // Both ends are this test.
	from = tls.Client(wire.NewBufferedConn(below), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	to = tls.Server(wire.NewBufferedConn(other), &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
	})
	shaken := make(chan error, 1)
	go func() { shaken <- to.Handshake() }()
	require.NoError(t, from.Handshake())
	require.NoError(t, <-shaken)
	return from, to, below
}

// counted counts what is written, and bounds no write in time.
type counted struct {
	net.Conn
	writes int
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

func (*counted) SetWriteDeadline(time.Time) error { return nil }

func TestALongFrameOverTLSIsWrittenAtOnceAndComesAsItWas(t *testing.T) {
	near, far, below := secured(t)
	from, to := wire.NewConn(near, wire.DefaultTiming, nil), wire.NewConn(far, wire.DefaultTiming, nil)
	defer from.Close()
	defer to.Close()
	content := make([]byte, 256<<10)
	_, _ = rand.Read(content)
	// Lengths on both sides of what is copied to one piece, and of what a record of TLS holds.
	for _, n := range []int{0, 1, 8 << 10, 8<<10 + 1, 16 << 10, 64 << 10, len(content)} {
		below.writes = 0
		sent := make(chan error, 1)
		go func() { sent <- from.Send(wire.FrameData, content[:n]) }()
		kind, payload, err := to.Receive()
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.Equal(t, wire.FrameData, kind)
		require.True(t, bytes.Equal(payload, content[:n]), "%d bytes", n)
		if n > 8<<10 {
			require.Equal(t, 1, below.writes, "writes of a frame of %d bytes", n)
		}
	}
}

func TestAConnectionThatNobodyReadsIsClosedAtOnce(t *testing.T) {
	near, far, _ := secured(t)
	defer far.Close()
	from := wire.NewConn(near, wire.DefaultTiming, nil)
	full, payload := make(chan error, 1), make([]byte, 256<<10)
	frames := make(chan struct{}, 1000)
	go func() {
		for {
			if err := from.Send(wire.FrameData, payload); err != nil {
				full <- err
				return
			}
			frames <- struct{}{}
		}
	}()
	for stuck := false; !stuck; {
		select {
		case <-frames:
		case <-time.After(time.Second):
			stuck = true
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		from.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close waits for who writes")
	}
	require.ErrorIs(t, <-full, wire.ErrLost)
}

func TestWhatIsSentIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Its clock stands still but for what waits.
		pacer := wire.NewPacer()
		took := func(messages int) time.Duration {
			began := time.Now()
			for range messages {
				pacer.Wait(wire.MaxPayload)
			}
			return time.Since(began).Round(time.Millisecond)
		}
		assert.Zero(t, took(100), "without a bound")
		pacer.Set(10 * wire.MaxPayload)
		assert.Equal(t, 500*time.Millisecond, took(6), "ten messages a second, the first at once")
		pacer.Set(0)
		assert.Zero(t, took(100), "without a bound again")
	})
}
