package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
)

// Run runs the remote agent until ctx ends, and then returns nil once every step
// that was begun is done and leadership is given up. An error means that it
// could not start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	remote := prepared(config.Remote)
	client, err := kubernetes.NewForConfig(remote)
	if err != nil {
		return fmt.Errorf("make client of the cluster: %w", err)
	}
	registry, probes := prometheus.NewRegistry(), newProbes()
	stopHTTP, err := serveHTTP(ctx, config.HTTPAddress, registry, probes)
	if err != nil {
		return err
	}
	defer stopHTTP()
	probes.ready()
	return lead(ctx, client, config, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}
