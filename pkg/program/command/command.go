// Package command makes the commands of programs. It knows nothing of Kubernetes' clients, which the mover has none of.
package command

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// Complete makes the command of a program that takes no arguments from a command with a name and
// help texts, and returns it. The command sets up logging as its flags say, validates the flags,
// and runs the program until SIGINT or SIGTERM ends its context. A second signal ends the program
// at once.
func Complete(command *cobra.Command, logging *logsapi.LoggingConfiguration, validate func() error,
	run func(context.Context) error) *cobra.Command {
	logs.InitLogs()
	command.Version = version.Get().GitVersion
	command.Args = cobra.NoArgs
	command.SilenceUsage = true
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := logsapi.ValidateAndApply(logging, nil); err != nil {
			return fmt.Errorf("set up logging: %w", err)
		}
		defer logs.FlushLogs()
		if err := validate(); err != nil {
			return err
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop)
		ctx = klog.NewContext(ctx, klog.Background())
		klog.FromContext(ctx).Info("Starting "+command.Name(), "version", command.Version)
		return run(ctx)
	}
	return command
}
