package cmd

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
)

// completions adds what the shell can complete from the kubeconfig alone.
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
	for _, command := range root.Commands() {
		if command.Flag("remote-context") != nil {
			_ = command.RegisterFlagCompletionFunc("remote-context", contexts)
		}
	}
}
