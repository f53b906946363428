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
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/content/restic"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/control"
	"github.com/lodestone-storage/lodestone/mover/receive"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// setUp checks and sets what both ends need, and returns the path of this program and the keys of
// this end.
func setUp(ctx context.Context, o *Options) (self string, files moverapi.Files, err error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if err := errors.Join(sandbox.CheckCapabilities(o.Rootless), rsync.Installed()); err != nil {
		return "", nil, err
	}
	if err := sandbox.AdoptOrphans(); err != nil {
		return "", nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	if _, err := sandbox.LandlockVersion(); err != nil {
		klog.FromContext(ctx).Info("Rsync is confined by the container alone", "reason", err.Error())
	}
	if self, err = os.Executable(); err != nil {
		return "", nil, fmt.Errorf("find this program: %w", err)
	}
	files, err = moverapi.ReadKeys(o.Keys)
	return self, files, err
}

// Receive writes the volume for the sender until ctx ends.
func Receive(ctx context.Context, o *ReceiveOptions) error {
	self, files, err := setUp(ctx, &o.Options)
	if err != nil {
		return err
	}
	config, err := files.Server(o.Move, moverapi.Sender)
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
	writer, err := tree.Self()
	if err != nil {
		return err
	}
	receiver := &receive.Receiver{
		Self: self, Writer: writer, Volume: o.Volume, Block: o.Block, NoSnapshot: o.NoSnapshot, Store: store, Scratch: o.scratch("target"),
		Version: version.Get().GitVersion, Instance: rand.Text(),
	}
	return wire.ServeConnections(ctx, listener, config, wire.DefaultTiming, receiver.Serve)
}

// Send reads the volume and does the controller's tasks until ctx ends.
func Send(ctx context.Context, o *SendOptions) error {
	self, files, err := setUp(ctx, &o.Options)
	if err != nil {
		return err
	}
	data, err := files.Client(o.Move, moverapi.Receiver)
	if err != nil {
		return err
	}
	controlled, err := files.Server(o.Move, moverapi.Controller)
	if err != nil {
		return err
	}
	store, err := o.store(self)
	if err != nil {
		return err
	}
	pacer := wire.NewPacer()
	connection := wire.NewConnector(data, wire.DefaultTiming, pacer.Wait)
	sender := send.New(send.Config{
		Self: self, Volume: o.Volume, Block: o.Block, Snapshot: o.Snapshot, Scratch: o.scratch("source"), Version: version.Get().GitVersion,
		Connector: connection, Pacer: pacer,
		Store: store, StoreFrom: o.StoreFrom,
	})
	if err := sender.RemovePartialFiles(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer func() { stop(nil); working.Wait(); removeStored(ctx, sender) }()
	working.Go(func() { connection.DialPeers(ctx) })
	if o.Peer != "" {
		connection.SetPeers([]string{o.Peer})
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
		Runner: &control.Runner{Run: sender.Run, Context: ctx}, Sender: sender, Connector: connection,
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

// serve serves the controller until ctx ends.
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

// memoryLimit is the memory that the mover's own process tries to stay below, in bytes; rsync's
// processes need more.
const memoryLimit = 32 << 20

// store returns the object store or the claim that the keys of this end are for; nil if they are
// for none.
func (o *Options) store(self string) (*restic.Store, error) {
	ticket, err := moverapi.ReadTicket(o.Keys)
	if ticket == nil || err != nil {
		return nil, err
	}
	if err := restic.Installed(); err != nil {
		return nil, err
	}
	store := &restic.Store{Ticket: *ticket, Self: self, Temporary: filepath.Join(o.Scratch, "restic"), Root: o.Repository}
	if len(ticket.Authority) > 0 {
		store.Authority = filepath.Join(o.Keys, moverapi.StoreAuthorityFile)
	}
	if err := os.RemoveAll(store.Temporary); err != nil {
		return nil, fmt.Errorf("remove what an earlier life of restic has left: %w", err)
	}
	return store, nil
}

// removeTimeout limits the removal of the repository's content. The sender's pod has a little
// longer to end.
const removeTimeout = 25 * time.Second

// removeStored removes the sender's content from the repository.
func removeStored(ctx context.Context, sender *send.Sender) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer stop()
	if err := sender.RemoveStored(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Something of this move may be left in its repository")
	}
}
