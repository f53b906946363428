// Package app is the network agent as a program: its commands and flags (NewCommand). Read command.go first.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/network/agent"
	"github.com/lodestone-storage/lodestone/network/agent/apply"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/pkg/program"
)

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lodestone-network",
		Short: "Lets pods of several clusters reach each other",
		Long: `lodestone-network runs on each node of a cluster. It brings packets for pods of other
clusters to the gateways, which are two or more of the nodes, and these bring them to
the gateways there. Only pods that are named are reached, and reach anybody.`,
		Version: version.Get().GitVersion,
	}
	o := NewOptions()
	run := &cobra.Command{Use: "agent", Short: "Keep this node in line with what it is told"}
	o.AddFlags(run.Flags())
	cmd.AddCommand(program.Complete(run, o.Logs, o.Validate, o.Run))

	remove := &cobra.Command{Use: "remove", Short: "Remove all that agents have ever made in the kernel of this node"}
	logs := logsapi.NewLoggingConfiguration()
	logsapi.AddFlags(logs, remove.Flags())
	cmd.AddCommand(program.Complete(remove, logs, func() error { return nil }, func(context.Context) error { return apply.Remove() }))

	var state string
	key := &cobra.Command{
		Use:   "key",
		Short: "Print the public key of this gateway, and make it first if there is none",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			identity, err := lane.LoadIdentity(state)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), identity.Key)
			return err
		},
	}
	key.Flags().StringVar(&state, "state", stateDirectory, stateHelp)
	cmd.AddCommand(key)
	return cmd
}

const (
	stateDirectory = "/var/lib/lodestone-network"
	stateHelp      = "directory for the key of a gateway, which nobody else may read"
)

// Options are the flags of the agent.
type Options struct {
	Node        string
	Site        string
	State       string
	Listen      string
	Connections int
	HTTPAddress string
	Logs        *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Node: os.Getenv("NODE_NAME"), State: stateDirectory, Listen: ":7473", Connections: 4, HTTPAddress: "127.0.0.1:7475",
		Logs: logsapi.NewLoggingConfiguration()}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Node, "node", o.Node, "name of this node; default: the variable NODE_NAME")
	flags.StringVar(&o.Site, "site", o.Site, "file of nodes, gateways and other clusters; it may change at any time")
	flags.StringVar(&o.State, "state", o.State, stateHelp)
	flags.StringVar(&o.Listen, "listen", o.Listen, "address at which a gateway is dialed by those of other clusters; empty: it only dials")
	flags.IntVar(&o.Connections, "connections", o.Connections, "how many connections a gateway has to each gateway of another cluster")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Node == "" {
		errs = append(errs, errors.New("--node is missing: give the name of this node"))
	}
	if !filepath.IsAbs(o.Site) {
		errs = append(errs, fmt.Errorf("--site=%s is not the absolute path of a file", o.Site))
	}
	if o.Connections < 1 || o.Connections > 64 {
		errs = append(errs, fmt.Errorf("--connections=%d: give 1 to 64", o.Connections))
	}
	return errors.Join(errs...)
}

// Run runs the agent until ctx ends.
func (o *Options) Run(ctx context.Context) error {
	probes := program.NewProbes()
	probes.WaitFor("this node to be in line with the network")
	metrics := prometheus.NewRegistry()
	stop, err := probes.Serve(ctx, o.HTTPAddress, metrics)
	if err != nil {
		return err
	}
	defer stop()
	told := &file{path: o.Site}
	return agent.Run(ctx, agent.Settings{Self: o.Node, State: o.State, Listen: o.Listen, Connections: o.Connections, Told: told.read,
		Ready: probes.Ready, Metrics: metrics})
}
