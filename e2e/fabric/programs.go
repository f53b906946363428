package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/processes"
	extender "github.com/lodestone-storage/lodestone/extender/app"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// Program is one of Lodestone's programs, running inside this process.
type Program struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(ctx context.Context, run func(context.Context) error) *Program {
	ctx, cancel := context.WithCancel(ctx)
	p := &Program{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(ctx)
	}()
	return p
}

// Stop ends the program as SIGTERM would, waits for it and returns its error.
func (p *Program) Stop() error {
	p.cancel()
	return p.Wait()
}

// Wait waits for the program to end and returns its error.
func (p *Program) Wait() error {
	<-p.done
	return p.err
}

// StartProvisioner starts a provisioner with the rights of its ServiceAccount.
// tune changes its flags, and its client, before the start.
func (f *Fabric) StartProvisioner(ctx context.Context, tune ...func(*provisioner.Config)) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, "lodestone-provisioner")
	if err != nil {
		return nil, err
	}
	options := provisioner.NewOptions()
	options.HTTPAddress = ""
	options.LeaseDuration = 15 * time.Second
	options.ProbeInterval = time.Second
	options.RefusalPeriod = 5 * time.Second
	options.ForcedDeletionMargin, options.MoveSettling = time.Second, 2*time.Second
	options.MoverNetworks = []string{processes.Network}
	config := &provisioner.Config{Options: *options, Home: home}
	for _, t := range tune {
		t(config)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, func(ctx context.Context) error { return provisioner.Run(ctx, config) }), nil
}

// StartExtender starts the extender where kube-scheduler looks for it, with the
// rights of its ServiceAccount, and waits until it is ready.
func (f *Fabric) StartExtender(ctx context.Context) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, "lodestone-extender")
	if err != nil {
		return nil, err
	}
	verbs, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.extender)
	if err != nil {
		return nil, fmt.Errorf("listen for the scheduler: %w", err)
	}
	return startExtender(ctx, home, verbs)
}

func startExtender(ctx context.Context, home *rest.Config, verbs net.Listener) (*Program, error) {
	status, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, verbs.Close())
	}
	p := start(ctx, func(ctx context.Context) error {
		return extender.Run(ctx, &extender.Config{Home: home, Verbs: verbs, Status: status, ShutdownGrace: 10 * time.Millisecond})
	})
	return p, awaitHTTP(ctx, "http://"+status.Addr().String()+"/readyz")
}
