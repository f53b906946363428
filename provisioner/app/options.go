// Package app is the provisioner as a program: its flags, the clients that they
// mean, and the one place where its parts are put together.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	validation "k8s.io/apimachinery/pkg/util/validation"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/pkg/command"
)

// Options are the flags of the provisioner.
type Options struct {
	Kubeconfig       string
	ClusterID        string
	Namespace        string
	StorageNamespace string
	HTTPAddress      string
	LeaderElect      bool
	LeaseDuration    time.Duration
	ProbeInterval    time.Duration
	RefusalPeriod    time.Duration
	Workers          int
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
		StorageNamespace: "lodestone-storage",
		HTTPAddress:      ":8081",
		LeaderElect:      true,
		LeaseDuration:    15 * time.Second,
		ProbeInterval:    5 * time.Second,
		RefusalPeriod:    time.Minute,
		Workers:          32,
		Logs:             logsapi.NewLoggingConfiguration(),
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the home cluster; empty: the pod's service account")
	flags.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "ID of the home cluster, up to 40 lower-case letters, digits and '-'; empty: the first 8 characters of the UID of namespace kube-system; do not change it while volumes exist")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the provisioner's lease and of the kubeconfig Secrets")
	flags.StringVar(&o.StorageNamespace, "storage-namespace", o.StorageNamespace, "namespace of the real claims behind virtual volumes whose data is at home")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "let one of several replicas work at a time")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration, "how long other replicas wait before they replace a silent leader; at least 3s")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "how often each remote cluster is looked at; 1s to 30s is sensible")
	flags.DurationVar(&o.RefusalPeriod, "refusal-period", o.RefusalPeriod, "how long a cluster or node that refused a claim is passed over for it; longer than the 10s that kube-scheduler backs off")
	flags.IntVar(&o.Workers, "workers", o.Workers, "how many claims are worked on at once; a wait for a volume takes none of them")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.ClusterID != "" {
		if len(validation.IsDNS1123Label(o.ClusterID)) > 0 || len(o.ClusterID) > 40 || o.ClusterID == "home" {
			errs = append(errs, fmt.Errorf("--cluster-id %q cannot be used: give up to 40 lower-case letters, digits and '-', other than \"home\"", o.ClusterID))
		}
	}
	for flag, namespace := range map[string]string{"--namespace": o.Namespace, "--storage-namespace": o.StorageNamespace} {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			errs = append(errs, fmt.Errorf("%s %q is not the name of a namespace", flag, namespace))
		}
	}
	if o.LeaseDuration < 3*time.Second {
		errs = append(errs, fmt.Errorf("--lease-duration %v is too short: give at least 3s", o.LeaseDuration))
	}
	if o.ProbeInterval <= 0 || o.RefusalPeriod <= 0 {
		errs = append(errs, errors.New("--probe-interval and --refusal-period must be more than 0"))
	}
	if o.Workers < 1 {
		errs = append(errs, errors.New("--workers must be at least 1"))
	}
	return errors.Join(errs...)
}

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "lodestone-provisioner",
		Short: "Gives the claims of virtual storage classes their volumes",
		Long: `lodestone-provisioner gives each claim of a virtual storage class (provisioner
lodestone.dev) its volume in the cluster, home or remote, where the claim's
first pod is scheduled, and keeps the volume in step with the real one.`,
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
