package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// This file is for commands on objects of ours that are named by themselves or by a claim that they are of.

// OneOf checks the arguments of a command that takes one object, which is named by one of the kinds; what says what it is.
func OneOf(cmd *cobra.Command, args []string, what string, kinds ...Kind) error {
	references, err := SomeReferences(cmd, args, kinds...)
	if err == nil && len(references) > 1 {
		err = Misuse("%q is one argument too many: the command takes one %s at a time; usage: %s", args[len(args)-1], what, cmd.UseLine())
	}
	return err
}

// CompleteOneOf completes the first argument of such a command: kinds, and the names that list returns, of the objects and their claims.
func CompleteOneOf(flags *genericclioptions.ConfigFlags, list func(context.Context, *Cluster, string) ([]string, error),
	kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || strings.Contains(toComplete, "/") {
			return CompleteReferences(flags, true, nil, kinds...)(cmd, args, toComplete)
		}
		return Complete(flags, func(ctx context.Context, home *Cluster, namespace string) ([]string, error) {
			names, err := list(ctx, home, namespace)
			slices.Sort(names)
			return slices.Compact(names), err
		})(cmd, args, toComplete)
	}
}

// None says that there are none of some objects, if there is the namespace.
func (c *Cluster) None(ctx context.Context, out io.Writer, what, namespace, selector string) error {
	text := "there are no " + what
	if selector != "" {
		text += " with labels " + selector
	}
	if namespace != metav1.NamespaceAll {
		if err := c.RequireNamespace(ctx, namespace); err != nil {
			return err
		}
		text += fmt.Sprintf(" in namespace %q: -A shows those of all", namespace)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
