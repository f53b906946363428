// Package cmd is the plugin as a program: Main and Run run the root command that New makes of the
// commands of the other packages, and turn errors into messages and exit codes. Each command has a
// package of its own; New lists them.
package cmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/adopt"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/choose"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/dashboard"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/discovery"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/doctor"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/explain"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/imports"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/lose"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/move"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/network"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/peer"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/rebind"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/release"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replicate"
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

Exit codes: 0 done; 1 failed, not done in time, or what was named is not there; 2 wrong
command line; 3 refused, because it would harm data or a peering that exists.`,
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
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return namespaceFlags(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(install.New(flags, streams), install.NewUninstall(flags, streams))
	root.AddCommand(peer.New(flags, streams), unpeer.New(flags, streams), imports.New(flags, streams), release.New(flags, streams),
		lose.New(flags, streams), move.New(flags, streams), move.NewFailover(flags, streams), move.NewFailback(flags, streams),
		replicate.New(flags, streams), adopt.New(flags, streams), daemonsets.New(flags, streams), status.New(flags, streams),
		dashboard.New(flags, streams), network.New(flags, streams),
		explain.New(flags, streams), upgrade.New(flags, streams), rebind.New(flags, streams), confirm.New(flags, streams),
		choose.New(flags, streams), versions.New(flags, streams), doctor.New(flags, streams),
		discovery.NewAnnounce(flags, streams), discovery.NewDiscover(flags, streams))
	root.AddCommand(completion())
	root.SetHelpCommand(help(root))
	root.InitDefaultHelpCmd()
	asUsage(root)
	completions(root, flags)
	return root
}

// namespaceFlags checks the flags of a command that name a namespace, but for -n, which is checked with the kubeconfig.
func namespaceFlags(cmd *cobra.Command) error {
	for _, name := range []string{"lodestone-namespace", "storage-namespace"} {
		if flag := cmd.Flag(name); flag != nil && len(validation.IsDNS1123Label(flag.Value.String())) > 0 {
			return cli.Misuse("--%s %q cannot be a namespace: names have up to 63 lower-case letters, digits and '-'", name, flag.Value)
		}
	}
	return nil
}

func help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Long:    "Help shows what a command does, as its flag --help does.",
		Example: "  kubectl lodestone help move abort",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if at, left, err := root.Find(args); err == nil && len(left) == 0 {
				for _, inner := range at.Commands() {
					names = append(names, cobra.CompletionWithDesc(inner.Name(), inner.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			at, left, err := root.Find(args)
			if err != nil || len(left) > 0 {
				return unknown(root, strings.Join(args, " "))
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// unknown is the error for a command that there is not, with those that may be meant: also one of a command of that name.
func unknown(root *cobra.Command, name string) error {
	like := root.SuggestionsFor(name)
	for _, command := range root.Commands() {
		for _, inner := range command.Commands() {
			if inner.Name() == name {
				like = append(like, command.Name()+" "+name)
			}
		}
	}
	if len(like) > 0 {
		return cli.Misuse("there is no command %q: did you mean %s?", name, cli.Or(like))
	}
	return cli.Misuse("there is no command %q: kubectl lodestone --help lists them", name)
}

// asUsage gives errors in flags and arguments of a command and its subcommands the exit code Usage.
func asUsage(command *cobra.Command) {
	command.SetFlagErrorFunc(cli.FlagError)
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
