package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/capabilities"
	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/control"
	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/mover/link"
	"github.com/lodestone-storage/lodestone/mover/process"
	"github.com/lodestone-storage/lodestone/mover/receive"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
)

// memoryAtMost is what the mover's own process aims to stay below; rsync's come on
// top.
const memoryAtMost = 32 << 20

// begin does what both ends begin with, and returns the path of this program and the
// keys of this end.
func begin(ctx context.Context, o *Options) (self string, files movekeys.Files, err error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryAtMost)
	}
	if err := errors.Join(capabilities.Check(), engine.Installed()); err != nil {
		return "", nil, err
	}
	if err := process.AdoptOrphans(); err != nil {
		return "", nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	if _, err := confine.Version(); err != nil {
		klog.FromContext(ctx).Info("Rsync is confined by the container alone", "reason", err.Error())
	}
	if self, err = os.Executable(); err != nil {
		return "", nil, fmt.Errorf("find this program: %w", err)
	}
	files, err = movekeys.Read(o.Keys)
	return self, files, err
}

// Receive writes the volume until ctx ends.
func Receive(ctx context.Context, o *ReceiveOptions) error {
	self, files, err := begin(ctx, &o.Options)
	if err != nil {
		return err
	}
	config, err := files.Server(o.Move, movekeys.Sender)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, o.DataAddress)
	if err != nil {
		return err
	}
	store, err := o.store(self)
	if err != nil {
		return err
	}
	receiver := &receive.Receiver{
		Self: self, Volume: o.Volume, Block: o.Block, NoSnapshot: o.NoSnapshot, Store: store, Scratch: o.scratch("target"), Version: version.Get().GitVersion, Instance: rand.Text(),
	}
	return link.Receive(ctx, listener, config, stream.DefaultTiming, receiver.Serve)
}

// Send reads the volume, as the controller says, until ctx ends.
func Send(ctx context.Context, o *SendOptions) error {
	self, files, err := begin(ctx, &o.Options)
	if err != nil {
		return err
	}
	data, err := files.Client(o.Move, movekeys.Receiver)
	if err != nil {
		return err
	}
	controlled, err := files.Server(o.Move, movekeys.Controller)
	if err != nil {
		return err
	}
	store, err := o.store(self)
	if err != nil {
		return err
	}
	pacer := &stream.Pacer{}
	connection := link.NewSender(data, stream.DefaultTiming, pacer.Wait)
	sender := send.New(send.Config{
		Self: self, Volume: o.Volume, Block: o.Block, Snapshot: o.Snapshot, Scratch: o.scratch("source"), Version: version.Get().GitVersion, Link: connection, Pacer: pacer,
		Store: store, StoreFrom: o.StoreFrom,
	})
	if err := sender.Forget(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer func() { stop(nil); working.Wait(); leave(ctx, sender) }()
	working.Go(func() { connection.Seek(ctx) })
	if o.Peer != "" {
		connection.Tell([]string{o.Peer})
	} else {
		listener, err := listen(ctx, o.DataAddress)
		if err != nil {
			return err
		}
		working.Go(func() {
			if err := connection.Accept(ctx, listener); err != nil {
				stop(err)
			}
		})
	}
	listener, err := listen(ctx, o.ControlAddress)
	if err != nil {
		return err
	}
	server := &control.Server{
		Runner: &control.Runner{Run: sender.Run, Context: ctx}, Sender: sender, Link: connection,
		Version: version.Get().GitVersion, Instance: rand.Text(),
	}
	return serve(ctx, tls.NewListener(listener, controlled), server.Handler())
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	klog.FromContext(ctx).Info("Listening", "address", listener.Addr().String())
	return listener, nil
}

// serve answers the controller until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(listener)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve the controller: %w", err)
}
