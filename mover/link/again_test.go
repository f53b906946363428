package link_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/link"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
)

// Small packets get through, and those that are full do not: the greeting succeeds each
// time, and the receiver ends what it hears nothing of.
func TestAConnectionThatEndsAgainAndAgainIsLeftToWhoeverCanJoin(t *testing.T) {
	p := begin(t)
	config, err := p.keys[movekeys.Receiver].Server(move, movekeys.Sender)
	require.NoError(t, err)
	listener := listen(t)
	greetings := make(chan struct{}, 100)
	p.runs(func(ctx context.Context) {
		_ = link.Listen(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Server(raw, config) },
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
	p.sender.Tell([]string{listener.Addr().String()})
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
