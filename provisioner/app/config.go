package app

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is what the provisioner runs with.
type Config struct {
	Options
	// Home is how the home cluster is reached.
	Home *rest.Config
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
// burst of claims needs; the API server's own flow control does the rest.
func prepared(home *rest.Config) *rest.Config {
	home = rest.CopyConfig(home)
	home.UserAgent = "lodestone-provisioner"
	home.QPS, home.Burst = 300, 600
	// Built-in objects are smaller and faster in protobuf.
	home.ContentType = "application/vnd.kubernetes.protobuf"
	home.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return home
}

// forElection returns a copy of the client configuration with a rate of its own,
// which the claims do not use up.
func forElection(home *rest.Config) *rest.Config {
	home = rest.CopyConfig(home)
	home.QPS, home.Burst = 5, 10
	return home
}
