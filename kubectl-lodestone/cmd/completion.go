package cmd

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// scripts write what a shell needs to complete command lines.
var scripts = map[string]func(root *cobra.Command) error{
	"bash":       func(root *cobra.Command) error { return root.GenBashCompletionV2(root.OutOrStdout(), true) },
	"fish":       func(root *cobra.Command) error { return root.GenFishCompletion(root.OutOrStdout(), true) },
	"powershell": func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(root.OutOrStdout()) },
	"zsh":        func(root *cobra.Command) error { return root.GenZshCompletion(root.OutOrStdout()) },
}

// completion returns the command that prints them.
func completion() *cobra.Command {
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script with which a shell completes commands, flags and names",
		Long: `Completion prints a script with which a shell (bash, fish, powershell, zsh) completes
calls of kubectl-lodestone: commands, flags, and the names of what is in your clusters.

For calls of kubectl lodestone, kubectl's own completion does that, if your PATH has a
program kubectl_complete-lodestone: docs/kubectl-lodestone.md says how to make it.`,
		Example: `  # Complete in this bash
  source <(kubectl lodestone completion bash)

  # Complete in every fish
  kubectl lodestone completion fish > ~/.config/fish/completions/kubectl-lodestone.fish`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cli.Misuse("say for which shell: %s; usage: %s", cli.Or(shells), cmd.UseLine())
			case !slices.Contains(shells, args[0]):
				return cli.Misuse("there is no completion for shell %q: there is for %s", args[0], cli.Or(shells))
			case len(args) > 1:
				return cli.Misuse("%q is one argument too many: name one shell; usage: %s", args[1], cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return scripts[args[0]](cmd.Root()) },
	}
}

// completions has the shell complete namespaces and what is in the kubeconfig, and offer files only where a file is to be named.
func completions(root *cobra.Command, flags *genericclioptions.ConfigFlags) {
	cli.CompleteFlag(root, flags, "namespace", cli.NamesOf(cli.Namespace))
	for flag, names := range map[string]func(*clientcmdapi.Config) []string{
		"context": contexts,
		"cluster": func(config *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(config.Clusters)) },
		"user":    func(config *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(config.AuthInfos)) },
	} {
		_ = root.RegisterFlagCompletionFunc(flag, fromKubeconfig(flags, names))
	}
	var each func(*cobra.Command)
	each = func(command *cobra.Command) {
		if command.LocalNonPersistentFlags().Lookup("remote-context") != nil {
			_ = command.RegisterFlagCompletionFunc("remote-context", fromKubeconfig(flags, contexts))
		}
		if command.ValidArgsFunction == nil && command.ValidArgs == nil {
			command.ValidArgsFunction = cobra.NoFileCompletions
		}
		noFiles := func(flag *pflag.Flag) {
			if _, known := command.GetFlagCompletionFunc(flag.Name); !known && !files[flag.Name] {
				_ = command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions)
			}
		}
		command.LocalNonPersistentFlags().VisitAll(noFiles)
		command.PersistentFlags().VisitAll(noFiles)
		for _, inner := range command.Commands() {
			each(inner)
		}
	}
	each(root)
}

// files are the flags whose values are files or folders.
var files = map[string]bool{
	"kubeconfig": true, "remote-kubeconfig": true, "remote-ca-file": true, "cache-dir": true, "certificate-authority": true,
	"client-certificate": true, "client-key": true, "values": true, "node-root": true, "bundle": true,
	"remote-token-file": true,
}

func contexts(config *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(config.Contexts)) }

// fromKubeconfig completes a flag with names in the kubeconfig, of --remote-context with those in that of the remote cluster.
func fromKubeconfig(flags *genericclioptions.ConfigFlags, names func(*clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = *flags.KubeConfig
		if file := cmd.Flag("remote-kubeconfig"); file != nil && file.Value.String() != "" {
			rules.ExplicitPath = file.Value.String()
		}
		config, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(config), cobra.ShellCompDirectiveNoFileComp
	}
}
