// Package app is the remote agent as a program: its flags, the clients that they
// mean, and the one place where its parts are put together.
package app

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lodestone-storage/lodestone/pkg/command"
)

// userAgent is the name of the program in logs, events and requests.
const userAgent = "lodestone-remote-agent"

// Options are the flags of the remote agent.
type Options struct {
	command.Options
	AwayAfter  time.Duration
	SettleTime time.Duration
	Workers    int
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Options:    command.NewOptions("lodestone-remote"),
		AwayAfter:  40 * time.Second,
		SettleTime: 15 * time.Second,
		Workers:    16,
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags, "the cluster to serve", "the agent's lease")
	flags.DurationVar(&o.AwayAfter, "away-after", o.AwayAfter, "how long a home cluster may be silent before it counts as away, and its pods are kept up from here; home renews its heartbeat every 10s")
	flags.DurationVar(&o.SettleTime, "settle-time", o.SettleTime, "how long a request whose outcome is unknown may still take effect; a pod that may have been made is not called gone before")
	flags.IntVar(&o.Workers, "workers", o.Workers, "how many pods are worked on at once")
}

// Validate returns all that is wrong with the options.
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
		Use:   userAgent,
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
