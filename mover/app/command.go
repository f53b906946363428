package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/engine"
	"github.com/lodestone-storage/lodestone/pkg/command"
)

// Helper does what the mover starts itself for, if that is what the arguments say:
// to confine rsync, or to be its remote shell.
func Helper(arguments []string) bool {
	if len(arguments) == 0 {
		return false
	}
	var err error
	switch arguments[0] {
	case confine.Word:
		err = confine.Become(arguments[1:])
	case engine.ShellWord:
		err = engine.Shell()
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lodestone-mover:", err)
		os.Exit(1)
	}
	return true
}

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lodestone-mover",
		Short: "One end of a volume's move",
		Long: `lodestone-mover copies a volume to another cluster while its application runs.
One of them reads the source volume, one writes the target volume. They talk over
TLS 1.3 with keys made for this move alone, and hold no credential of a cluster.`,
		Version: version.Get().GitVersion,
	}
	sending := &SendOptions{Options: NewOptions()}
	send := &cobra.Command{
		Use:   "send",
		Short: "Read the volume, and do what the controller of the move says",
	}
	sending.AddFlags(send.Flags())
	cmd.AddCommand(command.Complete(send, sending.Logs, sending.Validate, func(ctx context.Context) error {
		return Send(ctx, sending)
	}))
	receiving := &ReceiveOptions{Options: NewOptions()}
	receive := &cobra.Command{
		Use:   "receive",
		Short: "Write the volume as the sender says",
	}
	receiving.AddFlags(receive.Flags())
	cmd.AddCommand(command.Complete(receive, receiving.Logs, receiving.Validate, func(ctx context.Context) error {
		return Receive(ctx, receiving)
	}))
	return cmd
}
