package hollow

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// DefaultLeasePeriod suits the grace period that package testbed gives nodes.
const DefaultLeasePeriod = 2 * time.Second

// Options say what to play.
type Options struct {
	// Config reaches the cluster whose nodes are played, with all rights.
	Config *rest.Config

	// Nodes are registered by Start. AddNode adds more.
	Nodes []Node

	// LeasePeriod is the time between two renewals of a node's lease, and between two
	// probes of a remote cluster. Zero means DefaultLeasePeriod.
	LeasePeriod time.Duration

	// Runner really runs some of the pods; nil: all are played.
	Runner Runner
}

// Node is one node to play.
type Node struct {
	// Name is also the value of the label kubernetes.io/hostname.
	Name string

	// Labels are added to those that every node has.
	Labels map[string]string

	// Taints are set when the node is registered.
	Taints []corev1.Taint

	// Allocatable is the node's capacity too; by default 64 CPUs, 256 GiB and 500 pods.
	Allocatable corev1.ResourceList

	// Drivers are the CSI drivers that the node has, with the number of volumes that each
	// can attach; zero means no limit. They are published in the node's CSINode object.
	Drivers map[string]int32

	// Remote makes this a virtual node.
	Remote *Remote
}

// Remote is the cluster that a virtual node stands for.
type Remote struct {
	// ID is the cluster's ID, the value of the node's label lodestone.dev/cluster.
	ID string

	// Config reaches the remote cluster, with all rights.
	Config *rest.Config

	// HomeID tells this home's copies from those of another home; "home" by default.
	HomeID string

	// NamespaceFor maps a namespace of the home cluster to one of the remote cluster, which
	// must exist. By default they have the same name.
	NamespaceFor func(string) string

	// Taint gives the node the taint lodestone.dev/remote=<ID>:NoSchedule.
	Taint bool
}

func (o Options) leasePeriod() time.Duration {
	if o.LeasePeriod == 0 {
		return DefaultLeasePeriod
	}
	return o.LeasePeriod
}

func (n Node) validate() error {
	if n.Name == "" {
		return fmt.Errorf("a hollow node needs a name")
	}
	if n.Remote != nil && (n.Remote.ID == "" || n.Remote.Config == nil) {
		return fmt.Errorf("virtual node %s: its remote cluster needs an ID and a client configuration", n.Name)
	}
	return nil
}

func (r *Remote) homeID() string {
	if r.HomeID == "" {
		return "home"
	}
	return r.HomeID
}

func (r *Remote) namespaceFor(namespace string) string {
	if r.NamespaceFor == nil {
		return namespace
	}
	return r.NamespaceFor(namespace)
}
