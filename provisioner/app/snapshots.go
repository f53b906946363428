package app

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

// snapshotsOf returns the snapshots of the home cluster.
func snapshotsOf(home *rest.Config) (*snapshots.Home, error) {
	// Custom resources have no protobuf form; the dynamic client sees to that.
	client, err := dynamic.NewForConfig(home)
	if err != nil {
		return nil, fmt.Errorf("make dynamic client of the home cluster: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfig(home)
	if err != nil {
		return nil, fmt.Errorf("make discovery client of the home cluster: %w", err)
	}
	return snapshots.NewHome(client, resources), nil
}
