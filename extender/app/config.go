package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/extender/mtls"
)

// Config is what Run needs.
type Config struct {
	// Home reaches the API server of the home cluster.
	Home *rest.Config
	// Verbs is where kube-scheduler calls, Status where probes and Prometheus
	// do. Run closes both.
	Verbs, Status net.Listener
	// TLS says who may call at Verbs; nil: everybody, in plain http.
	TLS *mtls.Settings
	// ShutdownGrace is how long calls are still answered after the end of Run's
	// context.
	ShutdownGrace time.Duration
	// MaxStaleness is for how long a kind of object may be out of sight while the
	// program is ready.
	MaxStaleness time.Duration
}

// Config opens what the options name. The caller must hand it to Run or Close it.
func (o *Options) Config(ctx context.Context) (*Config, error) {
	home, err := homeCluster(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config := &Config{Home: home, TLS: o.TLS.settings(), ShutdownGrace: o.ShutdownGrace, MaxStaleness: o.MaxStaleness}
	var listen net.ListenConfig
	if config.Verbs, err = listen.Listen(ctx, "tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("open --listen: %w", err)
	}
	if config.Status, err = listen.Listen(ctx, "tcp", o.HTTPAddress); err != nil {
		return nil, errors.Join(fmt.Errorf("open --http-address: %w", err), config.Close())
	}
	return config, nil
}

func homeCluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		home, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the home cluster: outside a pod, set --kubeconfig: %w", err)
		}
		return home, nil
	}
	home, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	return home, nil
}

// Close closes the listeners of a Config that was not handed to Run.
func (c *Config) Close() error {
	var problems []error
	for _, listener := range []net.Listener{c.Verbs, c.Status} {
		if listener != nil {
			problems = append(problems, listener.Close())
		}
	}
	return errors.Join(problems...)
}
