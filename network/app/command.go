// Package app is the network agent as a program: its commands and flags (NewCommand). Read command.go first.
package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/network/agent/apply"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
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
	cmd.AddCommand(command.Complete(run, o.Logs, o.Validate, o.Run))

	probing := newProbeOptions()
	probe := &cobra.Command{Use: "probe", Short: "Probe the whole way to pods of other clusters, as a pod, and answer such probes"}
	probing.addFlags(probe.Flags())
	cmd.AddCommand(command.Complete(probe, probing.Logs, probing.validate, probing.run))

	passing := newHomeAPIOptions()
	pass := &cobra.Command{Use: "home-api", Short: "Pass connections of a namespace's pods, which may run in other clusters, on to the API " +
		"server"}
	passing.addFlags(pass.Flags())
	cmd.AddCommand(command.Complete(pass, passing.Logs, passing.validate, passing.run))

	cmd.AddCommand(newAnswer(), newCheck())

	var state string
	remove := &cobra.Command{Use: "remove",
		Short: "Remove all that agents have ever made in the kernel of this node, and what it was told last"}
	logs := logsapi.NewLoggingConfiguration()
	logsapi.AddFlags(logs, remove.Flags())
	remove.Flags().StringVar(&state, "state", stateDirectory, stateHelp)
	cmd.AddCommand(command.Complete(remove, logs, func() error { return validateState(state) }, func(context.Context) error {
		return errors.Join(apply.Remove(), forget(state))
	}))

	var rotate, wireGuard bool
	key := &cobra.Command{
		Use:   "key",
		Short: "Print the public key of this gateway, and make it first if there is none; two of them, a line each, while it is changed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wireGuard {
				if rotate {
					if err := lane.ChangeWireGuardKey(state, 0); err != nil {
						return err
					}
				}
				private, err := lane.LoadWireGuardKey(state)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), private.Public())
				return err
			}
			keys := lane.NewKeys(state)
			if rotate {
				if err := keys.Begin(); err != nil {
					return err
				}
			}
			published, err := keys.Published()
			for _, key := range published {
				fmt.Fprintln(cmd.OutOrStdout(), key)
			}
			return err
		},
	}
	key.Flags().StringVar(&state, "state", stateDirectory, stateHelp)
	key.Flags().BoolVar(&rotate, "rotate", false, "have another key made, which the agent uses once all gateways of other clusters know it")
	key.Flags().BoolVar(&wireGuard, "wireguard", false, "print the public key for WireGuard, not that for TLS")
	cmd.AddCommand(key)
	return cmd
}
