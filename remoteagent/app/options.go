// Package app is the remote agent as a program: its flags (Options), and Run, which makes the
// clients and informers, creates the controllers of the other packages and runs them while this
// replica leads. Read run.go first.
package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// name is the program's in logs, events and requests, and that of its Lease.
const name = "lodestone-remote-agent"

// Options are the flags of the remote agent.
type Options struct {
	program.Options
	AwayAfter  time.Duration
	SettleTime time.Duration
	Workers    int
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Options:    program.NewOptions("lodestone-remote"),
		AwayAfter:  40 * time.Second,
		SettleTime: 15 * time.Second,
		Workers:    16,
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags, "the cluster to serve", "the agent's lease")
	flags.DurationVar(&o.AwayAfter, "away-after", o.AwayAfter, "how long a home cluster may be silent before it counts as away, and its "+
		"pods are kept up from here; home renews its heartbeat every 10s")
	flags.DurationVar(&o.SettleTime, "settle-time", o.SettleTime, "how long a request whose outcome is unknown may still take effect; a pod "+
		"that may have been made is not called gone before")
	flags.IntVar(&o.Workers, "workers", o.Workers, "how many pods are worked on at once")
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate()}
	if o.AwayAfter <= 0 || o.SettleTime <= 0 {
		errs = append(errs, errors.New("--away-after and --settle-time must be more than 0"))
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
		Use:   name,
		Short: "Gives home clusters what the owner of this cluster allows, and runs their pods",
		Long: `lodestone-remote-agent runs in a remote cluster, for its owner. For each
HomeCluster object it makes an identity with narrow rights, the namespaces that
the home cluster asks for within what the owner allows, and the pods of its
ShadowPods, and it publishes what the cluster has to offer.`,
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
	// Remote reaches the cluster that the agent runs in.
	Remote *rest.Config
}

// Config makes the configuration from the options.
func (o *Options) Config() (*Config, error) {
	remote, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster to serve (set --kubeconfig outside a pod): %w", err)
	}
	return &Config{Options: *o, Remote: remote}, nil
}
