package app

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is what the program runs with.
type Config struct {
	Options
	// Home is how the home cluster is reached.
	Home *rest.Config
	// Workers returns what runs for each session; nil: all that there is.
	Workers func(Shared) ([]Worker, error)
}

// Config returns the configuration that the options mean.
func (o *Options) Config() (*Config, error) {
	home, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the home cluster (set --kubeconfig outside a pod): %w", err)
	}
	return &Config{Options: *o, Home: home}, nil
}

// prepared returns a copy of the client configuration with the rates that a
// burst of pods needs; the API server's own flow control does the rest.
func prepared(home *rest.Config) *rest.Config {
	home = rest.CopyConfig(home)
	home.UserAgent = "lodestone-virtualnode"
	home.QPS, home.Burst = 300, 600
	// Built-in objects are smaller and faster in protobuf.
	home.ContentType = "application/vnd.kubernetes.protobuf"
	home.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return home
}

// limited returns a copy of the client configuration with a rate of its own, in
// requests a second.
func limited(home *rest.Config, rate float32, burst int) *rest.Config {
	home = rest.CopyConfig(home)
	home.RateLimiter, home.QPS, home.Burst = nil, rate, burst
	return home
}
