// Package cmd is the plugin as a program: Main and Run run the root command that New makes of the
// commands of the other packages, and turn errors into messages and exit codes. Each command has a
// package of its own; New lists them.
package cmd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/choose"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/dashboard"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/explain"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/imports"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/lose"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/move"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/peer"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/rebind"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/release"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/unpeer"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/upgrade"
	versions "github.com/lodestone-storage/lodestone/kubectl-lodestone/version"
)

// Main runs the program and returns its exit code. The first interrupt ends the command's context,
// so that it can say where it stopped; the second one ends the program at once.
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
	return int(cli.ExitCodeOf(err))
}

// New returns the root command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	var root *cobra.Command
	root = &cobra.Command{
		Use:   "kubectl-lodestone",
		Short: "Peer clusters, see what became of them, and learn why a pod or claim waits",
		Long: `kubectl lodestone peers a cluster with others, whose nodes and storage its pods
then use, and says what became of that.

The home cluster is kubectl's current context; kubectl's own flags choose another.

Objects are named as kubectl names them: pod/web-0, pvc data, deployment/web.

Exit codes: 0 done; 1 failed or not done in time; 2 wrong command line; 3 refused,
because it would harm data or a peering that exists.`,
		SuggestionsMinimumDistance: 2,
		Version:                    version.Get().GitVersion,
		Annotations:                map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lodestone"},
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(root, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(peer.New(flags, streams), unpeer.New(flags, streams), imports.New(flags, streams), release.New(flags, streams),
		lose.New(flags, streams), move.New(flags, streams), daemonsets.New(flags, streams), status.New(flags, streams),
		dashboard.New(flags, streams),
		explain.New(flags, streams), upgrade.New(flags, streams), rebind.New(flags, streams), confirm.New(flags, streams),
		choose.New(flags, streams), versions.New(flags, streams))
	asUsage(root)
	completions(root, flags)
	return root
}

// unknown is the error for a command that there is not, with the one that may be meant.
func unknown(root *cobra.Command, name string) error {
	if meant := root.SuggestionsFor(name); len(meant) > 0 {
		return cli.Misuse("there is no command %q: did you mean %s?", name, cli.Or(meant))
	}
	return cli.Misuse("there is no command %q: kubectl lodestone --help lists them", name)
}

// asUsage gives errors in flags and arguments of a command and its subcommands the exit code Usage.
func asUsage(command *cobra.Command) {
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return cli.Misuse("%w: %s --help lists the flags", err, c.CommandPath())
	})
	if check := command.Args; check != nil {
		command.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && cli.ExitCodeOf(err) != cli.Usage {
				return cli.Misuse("%w: see %s --help", err, c.CommandPath())
			}
			return err
		}
	}
	for _, inner := range command.Commands() {
		asUsage(inner)
	}
}

// completions adds shell completion of the values that can be read from the kubeconfig.
func completions(root *cobra.Command, flags *genericclioptions.ConfigFlags) {
	contexts := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = *flags.KubeConfig
		if file := cmd.Flag("remote-kubeconfig"); file != nil && file.Value.String() != "" {
			rules.ExplicitPath = file.Value.String()
		}
		config, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
	_ = root.RegisterFlagCompletionFunc("context", contexts)
	cli.CompleteFlag(root, flags, "namespace", cli.NamesOf(cli.Namespace))
	if namespace, _, err := root.Find([]string{"rebind", "namespace"}); err == nil && namespace.ValidArgsFunction == nil {
		namespace.ValidArgsFunction = cli.CompleteReferences(flags, true, []cli.Kind{cli.Namespace})
	}
	for _, command := range root.Commands() {
		if command.Flag("remote-context") != nil {
			_ = command.RegisterFlagCompletionFunc("remote-context", contexts)
		}
	}
}
