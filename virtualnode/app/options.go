// Package app is the virtual node program: its flags, the clients that they mean,
// and the one place where its parts are put together.
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
	validation "k8s.io/apimachinery/pkg/util/validation"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/pkg/command"
)

// Options are the flags of the program.
type Options struct {
	Kubeconfig       string
	ClusterID        string
	Namespace        string
	HTTPAddress      string
	LeaderElect      bool
	LeaseDuration    time.Duration
	ProbeInterval    time.Duration
	Heartbeat        time.Duration
	NodeIP           string
	KubeletAddress   string
	KubeletPortsFrom int
	Logs             *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = "lodestone-system"
	}
	return &Options{
		Namespace:        namespace,
		HTTPAddress:      ":8081",
		LeaderElect:      true,
		LeaseDuration:    15 * time.Second,
		ProbeInterval:    5 * time.Second,
		Heartbeat:        10 * time.Second,
		NodeIP:           os.Getenv("POD_IP"),
		KubeletPortsFrom: 10350,
		Logs:             logsapi.NewLoggingConfiguration(),
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the home cluster; empty: the pod's service account")
	flags.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "ID of the home cluster, up to 40 lower-case letters, digits and '-', the same as the provisioner's; empty: the first 8 characters of the UID of namespace kube-system")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the program's lease and of the kubeconfig Secrets")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "let one of several replicas work at a time")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration, "how long other replicas wait before they replace a silent leader; at least 3s")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "how often each remote cluster is asked how it is; its node becomes NotReady after three failures in a row")
	flags.DurationVar(&o.Heartbeat, "heartbeat-interval", o.Heartbeat, "how often the leases of virtual nodes, and the heartbeat in each remote cluster, are renewed; both count as silent after 40s")
	flags.StringVar(&o.NodeIP, "node-ip", o.NodeIP, "address at which the API server of the home cluster reaches this program; empty: that of the pod (POD_IP)")
	flags.StringVar(&o.KubeletAddress, "kubelet-address", o.KubeletAddress, "address that the kubelet APIs of virtual nodes are served at; empty: all of the pod")
	flags.IntVar(&o.KubeletPortsFrom, "kubelet-ports-from", o.KubeletPortsFrom, "first port of the kubelet APIs; each virtual node takes the next free one; 0: any free ports")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.ClusterID != "" && (len(validation.IsDNS1123Label(o.ClusterID)) > 0 || len(o.ClusterID) > 40 || o.ClusterID == "home") {
		errs = append(errs, fmt.Errorf("--cluster-id %q cannot be used: give up to 40 lower-case letters, digits and '-', other than \"home\"", o.ClusterID))
	}
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q is not the name of a namespace", o.Namespace))
	}
	if o.LeaseDuration < 3*time.Second {
		errs = append(errs, fmt.Errorf("--lease-duration %v is too short: give at least 3s", o.LeaseDuration))
	}
	if o.ProbeInterval <= 0 {
		errs = append(errs, errors.New("--probe-interval must be more than 0"))
	}
	if o.Heartbeat <= 0 || o.Heartbeat > 15*time.Second {
		errs = append(errs, fmt.Errorf("--heartbeat-interval %v cannot be used: give more than 0 and at most 15s, since a lease holds for 40s", o.Heartbeat))
	}
	if net.ParseIP(o.NodeIP) == nil {
		errs = append(errs, fmt.Errorf("--node-ip %q is not an IP address: give the one at which the API server reaches this program, or set POD_IP", o.NodeIP))
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
