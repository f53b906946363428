// Package network is the command network: status shows how the networks of home and of remote clusters are joined, test tries it with a
// pod on each side. Read status.go and test.go.
package network

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "network status | test",
		Short: "Show and try how pods of several clusters reach each other",
		Long: `Network shows how the networks of home and of remote clusters are joined, and tries it
with a pod on each side.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Misuse("there is no command \"network %s\": write network status or network test", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(statusCommand(flags, streams), testCommand(flags, streams))
	return command
}
