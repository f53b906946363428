package link

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Receive takes the sender's connections until ctx ends and serves each with serve,
// whose context ends with the connection. The older one's serve has returned before
// that of a newer one is called: two senders, or two lives of one, never write at
// once.
func Receive(ctx context.Context, listener net.Listener, config *tls.Config, timing stream.Timing, serve func(context.Context, *stream.Conn) error) error {
	var mutex sync.Mutex
	var last *stream.Conn
	var turn sync.Mutex
	var serving sync.WaitGroup
	defer serving.Wait()
	take := func(raw *tls.Conn) {
		conn := stream.New(raw, timing, nil)
		mutex.Lock()
		if last != nil {
			last.Close()
		}
		last = conn
		mutex.Unlock()
		serving.Go(func() {
			defer conn.Close()
			turn.Lock()
			defer turn.Unlock()
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			defer context.AfterFunc(ctx, conn.Close)()
			go func() {
				<-conn.Done()
				stop()
			}()
			logger := klog.FromContext(ctx)
			logger.Info("The sender is connected", "from", raw.RemoteAddr())
			if err := serve(ctx, conn); err != nil && ctx.Err() == nil {
				logger.Info("The sender's connection ended", "reason", err.Error())
			}
		})
	}
	return Listen(ctx, listener, func(raw net.Conn) *tls.Conn { return tls.Server(stream.Gather(raw), config) }, take, nil)
}
