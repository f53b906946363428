// Package app is the wiring of the extender: flags to options, options to
// clients and listeners, and one place that puts the parts together.
package app

import (
	"context"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/pkg/command"
)

// NewCommand returns the command lodestone-extender.
func NewCommand() *cobra.Command {
	options := NewOptions()
	cmd := &cobra.Command{
		Use:   "lodestone-extender",
		Short: "Keeps pods near their data: a kube-scheduler extender for Lodestone volumes",
		Long: "lodestone-extender answers kube-scheduler's extender calls: it refuses nodes of clusters where a pod's volumes\n" +
			"are not or cannot be made, prefers those where the pod's data is, and keeps pods from being evicted in vain.",
	}
	options.AddFlags(cmd.Flags())
	logsapi.AddFlags(options.Logs, cmd.Flags())
	cmd.AddCommand(newCertificatesCommand())
	return command.Complete(cmd, options.Logs, options.Validate, func(ctx context.Context) error {
		config, err := options.Config(ctx)
		if err != nil {
			return err
		}
		return Run(ctx, config)
	})
}
