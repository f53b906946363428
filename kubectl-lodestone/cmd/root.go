// Package cmd is the plugin as a program: its verbs, its help and its exit codes.
package cmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/imports"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/look"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/lose"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/move"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/peer"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/release"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/unpeer"
)

// Main runs the program and returns its exit code. The first interrupt lets it
// say where it stopped; the second one ends it at once.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return Run(ctx, streams, os.Args[1:]...)
}

// Run runs the program with arguments and returns its exit code.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args ...string) int {
	command := New(streams)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(streams.ErrOut, "error: %v\n", err)
	}
	return int(outcome.Of(err))
}

// New returns the root command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	root := &cobra.Command{
		Use:   "kubectl-lodestone",
		Short: "Peer clusters, see what became of them, and learn why a pod or claim waits",
		Long: `kubectl lodestone peers a cluster with others, whose nodes and storage its pods
then use, and says what became of that.

The home cluster is kubectl's current context; kubectl's own flags choose another.

Exit codes: 0 done; 1 failed or not done in time; 2 wrong command line; 3 refused,
because it would harm data or a peering that exists.`,
		Version:       version.Get().GitVersion,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lodestone"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return outcome.Misuse("there is no command %q: kubectl lodestone --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(peer.New(flags, streams), unpeer.New(flags, streams), imports.New(flags, streams), release.New(flags, streams), lose.New(flags, streams),
		move.New(flags, streams), status.New(flags, streams), look.New(flags, streams))
	asUsage(root)
	completions(root, flags)
	return root
}

// asUsage gives wrong flags and arguments of a command and its subcommands the
// exit code of a wrong command line.
func asUsage(command *cobra.Command) {
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return outcome.Misuse("%w: %s --help lists the flags", err, c.CommandPath())
	})
	if check := command.Args; check != nil {
		command.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && outcome.Of(err) != outcome.Usage {
				return outcome.Misuse("%w: see %s --help", err, c.CommandPath())
			}
			return err
		}
	}
	for _, inner := range command.Commands() {
		asUsage(inner)
	}
}
