package app

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is what the remote agent runs with.
type Config struct {
	Options
	// Remote is how the cluster that the agent runs in is reached.
	Remote *rest.Config
}

// Config returns the configuration that the options mean.
func (o *Options) Config() (*Config, error) {
	remote, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster to serve (set --kubeconfig outside a pod): %w", err)
	}
	return &Config{Options: *o, Remote: remote}, nil
}

// prepared returns a copy of the client configuration with the rates that
// a burst of pods needs; the API server's own flow control does the rest.
func prepared(remote *rest.Config) *rest.Config {
	remote = rest.CopyConfig(remote)
	remote.UserAgent = userAgent
	remote.QPS, remote.Burst = 200, 400
	// Built-in objects are smaller and faster in protobuf.
	remote.ContentType = "application/vnd.kubernetes.protobuf"
	remote.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return remote
}

// forElection returns a copy of the client configuration with a rate of its own,
// which the pods do not use up.
func forElection(remote *rest.Config) *rest.Config {
	remote = rest.CopyConfig(remote)
	remote.QPS, remote.Burst = 5, 10
	return remote
}
