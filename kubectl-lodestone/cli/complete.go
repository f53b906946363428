package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// completionTimeout limits what a shell waits for names.
const completionTimeout = 5 * time.Second

// Lister returns the values that a flag or an argument can have.
type Lister func(ctx context.Context, home *Cluster, namespace string) ([]string, error)

// Complete completes a flag, or the first argument, with what list returns. Where the cluster does not answer, nothing is
// completed: an error could not be shown.
func Complete(flags *genericclioptions.ConfigFlags, list Lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		home, namespace, err := Connect(flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names, err := list(ctx, home, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// NamesOf lists the objects of kinds.
func NamesOf(kinds ...Kind) Lister {
	return func(ctx context.Context, home *Cluster, namespace string) ([]string, error) {
		var all []string
		for _, kind := range kinds {
			names, err := home.Names(ctx, namespace, kind)
			if err != nil {
				return all, err
			}
			all = append(all, names...)
		}
		return all, nil
	}
}

// Clusters lists home and the RemoteClusters.
func Clusters(ctx context.Context, home *Cluster, namespace string) ([]string, error) {
	names, err := NamesOf(RemoteCluster)(ctx, home, namespace)
	return append([]string{keys.Home}, names...), err
}

// CompleteReferences completes arguments as References reads them: names of the kinds that need no kind before them, kinds, and
// after a kind its names. A command that takes one object is completed for one.
func CompleteReferences(flags *genericclioptions.ConfigFlags, one bool, bare []Kind, takes ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		var kind Kind
		if len(args) > 0 {
			kind = KindOf(args[0])
		}
		if one && (len(args) > 1 || len(args) == 1 && kind == "") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word, _, slash := strings.Cut(toComplete, "/")
		switch {
		case slash && (kind == "" || !slices.Contains(takes, kind)):
			names, directive := Complete(flags, NamesOf(onlyOf(takes, KindOf(word))...))(cmd, args, toComplete)
			for i := range names {
				names[i] = word + "/" + names[i]
			}
			return without(names, args), directive
		case len(args) > 0 && slices.Contains(takes, kind):
			names, directive := Complete(flags, NamesOf(kind))(cmd, args, toComplete)
			return without(names, args[1:]), directive
		}
		names, directive := Complete(flags, NamesOf(bare...))(cmd, args, toComplete)
		if len(args) == 0 {
			for _, kind := range takes {
				names = append(names, string(kind))
			}
		}
		return without(names, args), directive
	}
}

func onlyOf(kinds []Kind, kind Kind) []Kind {
	if slices.Contains(kinds, kind) {
		return []Kind{kind}
	}
	return nil
}

func without(names, given []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) })
}

// CompleteFlag completes a flag of a command with what list returns.
func CompleteFlag(cmd *cobra.Command, flags *genericclioptions.ConfigFlags, name string, list Lister) {
	_ = cmd.RegisterFlagCompletionFunc(name, Complete(flags, list))
}
