package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// Named is a kind of objects of ours that are named by themselves or by a claim that they are of, and what the commands on them have in
// common.
type Named[T any, P object[T]] struct {
	Kind schema.GroupVersionKind
	// As is the kind as arguments name it, One and Several are what messages call the objects.
	As           Kind
	One, Several string
	// List returns the objects of a namespace, or of all if that is empty. Its error says what to do.
	List func(ctx context.Context, home *Cluster, namespace string, options metav1.ListOptions) ([]T, error)
	// Claims returns the names of the claims that an object is of.
	Claims func(one P) []string
	// Choose returns the object that a reference means, nil if there is none. It is pure.
	Choose func(all []T, reference Reference) (P, error)
	// There says which objects there are, where a name means none of them. It is pure.
	There func(all []T, name, namespace string) string
}

// OneOf checks the arguments of a command that takes one object.
func (k Named[T, P]) OneOf(cmd *cobra.Command, args []string) error {
	references, err := SomeReferences(cmd, args, Claim, k.As)
	if err == nil && len(references) > 1 {
		err = Misuse("%q is one argument too many: the command takes one %s at a time; usage: %s", args[len(args)-1], k.One, cmd.UseLine())
	}
	return err
}

// OneOrAll checks the arguments of a command that takes one object, or all.
func (k Named[T, P]) OneOrAll(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return k.OneOf(cmd, args)
}

// Complete completes the first argument of such commands: kinds, and the names of the objects and their claims.
func (k Named[T, P]) Complete(flags *genericclioptions.ConfigFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || strings.Contains(toComplete, "/") {
			return CompleteReferences(flags, true, nil, Claim, k.As)(cmd, args, toComplete)
		}
		return Complete(flags, func(ctx context.Context, home *Cluster, namespace string) (names []string, err error) {
			all, err := k.List(ctx, home, namespace, metav1.ListOptions{})
			for i := range all {
				names = append(append(names, P(&all[i]).GetName()), k.Claims(&all[i])...)
			}
			slices.Sort(names)
			return slices.Compact(names), err
		})(cmd, args, toComplete)
	}
}

// Find returns the object that arguments name. If there is none, the error says which there are.
func (k Named[T, P]) Find(ctx context.Context, home *Cluster, namespace string, args []string) (P, error) {
	references, err := References(args, Claim, k.As)
	if err != nil {
		return nil, err
	}
	all, err := k.List(ctx, home, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found, err := k.Choose(all, references[0])
	if err != nil || found != nil {
		return found, err
	}
	if len(all) == 0 {
		if err := home.RequireNamespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	return nil, k.Missing(references[0], namespace, all)
}

// Missing says that there is no object as a user names it, and which there are.
func (k Named[T, P]) Missing(named Reference, namespace string, all []T) error {
	there := k.There(all, named.Name, namespace)
	if len(all) == 0 {
		return fmt.Errorf("namespace %q has no %s; %s", namespace, k.Several, there)
	}
	what := fmt.Sprintf("%s %q", k.One, named.Name)
	switch named.Kind {
	case Claim:
		what = fmt.Sprintf("%s of claim %q", k.One, named.Name)
	case "":
		what += fmt.Sprintf(" and no %s of a claim %q", k.One, named.Name)
	default: // k.As
	}
	return fmt.Errorf("namespace %q has no %s; %s", namespace, what, there)
}

// AskFlags adds the flag of a command that calls Ask.
func (k Named[T, P]) AskFlags(command *cobra.Command, output *Output) {
	output.Add(command, "write the "+k.Kind.Kind+", also if that is refused", JSON, YAML, Name)
}

// Ask finds the object that args name, has ask ask something of it, and prints that.
func (k Named[T, P]) Ask(ctx context.Context, flags *genericclioptions.ConfigFlags, out io.Writer, output Output, args []string,
	verb string, ask func(ctx context.Context, home *Cluster, one P) (P, error)) error {
	if err := output.Check(); err != nil {
		return err
	}
	home, namespace, err := Connect(flags)
	if err != nil {
		return err
	}
	ctx, cancel := Within(ctx, time.Minute)
	defer cancel()
	one, err := k.Find(ctx, home, namespace, args)
	if err != nil {
		return err
	}
	one, err = ask(ctx, home, one)
	return k.PrintAsked(out, output, one, verb, err)
}

// PrintAsked prints that something was asked of an object, or returns err, which says why not; with an output format it writes the
// object either way.
func (k Named[T, P]) PrintAsked(out io.Writer, output Output, one P, verb string, err error) error {
	if output.Format != "" {
		if unwritten := output.WriteOne(out, k.Kind, one); err == nil {
			err = unwritten
		}
		return err
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "%s/%s: asked to %s\n", k.As, one.GetName(), verb)
	}
	return err
}

// ShowFlags adds the flags of a command that calls Show.
func (k Named[T, P]) ShowFlags(command *cobra.Command, output *Output, scope *Scope) {
	output.Add(command, "write the "+k.Kind.Kind+" that is named, or a List of them; wide shows more columns", JSON, YAML, Wide, Name)
	scope.Add(command, "the "+k.Several)
}

// Show writes the object that args name, or without args those of the scope; what is to be read by people is printed by table.
func (k Named[T, P]) Show(ctx context.Context, flags *genericclioptions.ConfigFlags, out io.Writer, output Output, scope Scope,
	args []string, table func(home *Cluster, namespace string, all []T) error) error {
	if err := output.Check(); err != nil {
		return err
	}
	if err := scope.Check(); err != nil {
		return err
	}
	if len(args) > 0 && scope.Given() {
		return Misuse("%q names one %s, and -A and -l list several: leave one or the other out", args[len(args)-1], k.One)
	}
	home, namespace, err := Connect(flags)
	if err != nil {
		return err
	}
	namespace = scope.In(namespace)
	var all []T
	if len(args) > 0 {
		one, err := k.Find(ctx, home, namespace, args)
		if err != nil {
			return err
		}
		all = append(all, *one)
	} else if all, err = k.List(ctx, home, namespace, scope.Options()); err != nil {
		return err
	}
	switch {
	case output.Format != "" && output.Format != Wide:
		return k.Write(out, output, all, len(args) == 0)
	case len(all) == 0:
		return home.None(ctx, out, k.Several, namespace, scope.Selector)
	}
	return table(home, namespace, all)
}

// Write writes objects as the format says: as a list, or if there is at most one as that one.
func (k Named[T, P]) Write(out io.Writer, output Output, all []T, list bool) error {
	switch {
	case list || len(all) > 1:
		return WriteAll[T, P](output, out, k.Kind, all)
	case len(all) == 0:
		return nil
	}
	return output.WriteOne(out, k.Kind, P(&all[0]))
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
		text += fmt.Sprintf(" in namespace %q: give -A for all namespaces", namespace)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
