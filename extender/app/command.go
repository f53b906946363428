// Package app is the wiring of the extender: flags to options, options to
// clients and listeners, and one place that puts the parts together.
package app

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// NewCommand returns the command lodestone-extender.
func NewCommand() *cobra.Command {
	options := NewOptions()
	command := &cobra.Command{
		Use:   "lodestone-extender",
		Short: "Keeps pods near their data: a kube-scheduler extender for Lodestone volumes",
		Long: "lodestone-extender answers kube-scheduler's extender calls: it refuses nodes of clusters where a pod's volumes\n" +
			"are not or cannot be made, prefers those where the pod's data is, and keeps pods from being evicted in vain.",
		Version:       version.Get().GitVersion,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(options.Logs, nil); err != nil {
				return fmt.Errorf("set up logging: %w", err)
			}
			return runUntilSignal(command.Context(), options)
		},
	}
	options.AddFlags(command.Flags())
	logsapi.AddFlags(options.Logs, command.Flags())
	return command
}

func runUntilSignal(ctx context.Context, options *Options) error {
	if err := options.Validate(); err != nil {
		return fmt.Errorf("check flags: %w", err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	ctx = klog.NewContext(ctx, klog.Background())
	config, err := options.Config(ctx)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting lodestone-extender", "version", version.Get().GitVersion)
	return Run(ctx, config)
}
