// Package app is the virtual node program: its flags (Options), and Run, which makes the clients
// and informers, creates the parts of the other packages and runs them while this replica leads.
// Read run.go first.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// Options are the flags of the program.
type Options struct {
	program.Options
	ClusterID        string
	ProbeInterval    time.Duration
	Heartbeat        time.Duration
	NodeIP           string
	KubeletAddress   string
	KubeletPortsFrom int
	// MultiClusterServices has Services shared that are exported.
	MultiClusterServices bool
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Options:          program.NewOptions("lodestone-system"),
		ProbeInterval:    5 * time.Second,
		Heartbeat:        10 * time.Second,
		NodeIP:           os.Getenv("POD_IP"),
		KubeletPortsFrom: 10350,
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags, "the home cluster", "the program's lease and of the kubeconfig Secrets")
	flags.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "ID of the home cluster, up to 40 lower-case letters, digits and '-', the same "+
		"as the provisioner's; empty: the first 8 characters of the UID of namespace kube-system")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval,
		"how often each remote cluster is asked how it is; its node becomes NotReady after three failures in a row")
	flags.DurationVar(&o.Heartbeat, "heartbeat-interval", o.Heartbeat, "how often the leases of virtual nodes, and the heartbeat in each "+
		"remote cluster, are renewed; at most 15s, since both count as silent after 40s")
	flags.StringVar(&o.NodeIP, "node-ip", o.NodeIP, "address at which the API server of the home cluster reaches this program; empty: that "+
		"of the pod (POD_IP)")
	flags.StringVar(&o.KubeletAddress, "kubelet-address", o.KubeletAddress,
		"address that the kubelet APIs of virtual nodes are served at; empty: all of the pod")
	flags.IntVar(&o.KubeletPortsFrom, "kubelet-ports-from", o.KubeletPortsFrom,
		"first port of the kubelet APIs; each virtual node takes the next free one; 0: any free ports")
	flags.BoolVar(&o.MultiClusterServices, "multi-cluster-services", o.MultiClusterServices, "share the Services that ServiceExports name "+
		"(multicluster.x-k8s.io) between home and the remote clusters whose pod networks are joined")
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate(), program.ValidateClusterID(o.ClusterID)}
	if o.ProbeInterval <= 0 {
		errs = append(errs, errors.New("--probe-interval must be more than 0"))
	}
	if o.Heartbeat <= 0 || o.Heartbeat > 15*time.Second {
		errs = append(errs, fmt.Errorf("--heartbeat-interval %v cannot be used: give more than 0 and at most 15s, since a lease holds for 40s",
			o.Heartbeat))
	}
	if net.ParseIP(o.NodeIP) == nil {
		errs = append(errs, fmt.Errorf("--node-ip %q is not an IP address: give the one at which the API server reaches this program, "+
			"or set POD_IP", o.NodeIP))
	}
	if o.KubeletAddress != "" && net.ParseIP(o.KubeletAddress) == nil {
		errs = append(errs, fmt.Errorf("--kubelet-address %q is not an IP address", o.KubeletAddress))
	}
	if o.KubeletPortsFrom != 0 && (o.KubeletPortsFrom < 1024 || o.KubeletPortsFrom > 65000) {
		errs = append(errs, fmt.Errorf("--kubelet-ports-from %d cannot be used: give 0, or 1024 to 65000", o.KubeletPortsFrom))
	}
	return errors.Join(errs...)
}

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "lodestone-virtualnode",
		Short: "Registers a virtual node for each remote cluster",
		Long: `lodestone-virtualnode registers a node of the home cluster for each
RemoteCluster, has the pods that are bound to it run in the remote cluster, and
brings their state, logs and streams back.`,
	}
	o.AddFlags(cmd.Flags())
	return command.Complete(cmd, o.Logs, o.Validate, func(ctx context.Context) error {
		config, err := o.Config()
		if err != nil {
			return err
		}
		return Run(ctx, config)
	})
}

// Config is what Run needs.
type Config struct {
	Options
	// Home reaches the home cluster.
	Home *rest.Config
	// Workers returns what runs for each session; nil: all workers that there are.
	Workers func(Shared) ([]Worker, error)
}

// Config makes the configuration from the options.
func (o *Options) Config() (*Config, error) {
	home, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the home cluster (set --kubeconfig outside a pod): %w", err)
	}
	return &Config{Options: *o, Home: home}, nil
}
