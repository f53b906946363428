// Package daemonsets is the command daemonsets: it keeps DaemonSets off virtual nodes that were there
// before the policy which does that for all others, or that the policy missed. decide.go has the pure
// part: which DaemonSets, and what changes.
package daemonsets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// chosen are the flags and arguments of the command.
type chosen struct {
	scope  cli.Scope
	output cli.Output
	yes    bool
	// names are of one namespace, or without it of any, and an empty list means all.
	names []types.NamespacedName
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var c chosen
	command := &cobra.Command{
		Use:   "daemonsets [daemonset/NAME... | NAMESPACE/NAME...]",
		Short: "Keep DaemonSets that tolerate every taint off virtual nodes",
		Long: `No pod of a DaemonSet runs on a virtual node. One that tolerates every taint wants a
pod there all the same, which waits for ever, so that its rollout is never complete.

DaemonSets that are made, or whose template somebody changes, are kept off virtual
nodes by themselves. This command is for those that were there before: it lists them,
says what restarts, asks, and gives their templates the requirement that a node has no
label ` + keys.VirtualNodeRole + `. A changed template restarts the pods of a
DaemonSet, as its update strategy says.

With -n, -l or names, only those are looked at. With -o they are listed, and nothing is
changed.`,
		Example: `  # Which DaemonSets are that, and what would restart? Answer with Enter to change nothing
  kubectl lodestone daemonsets

  # Only this one, at a time that suits
  kubectl lodestone daemonsets daemonset/kube-proxy -n kube-system`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			c.names, err = parse(args)
			return err
		},
		ValidArgsFunction: cli.Complete(flags, allNames),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.output.Check(); err != nil {
				return err
			}
			if err := c.scope.Check(); err != nil {
				return err
			}
			if len(c.names) > 0 && c.scope.Selector != "" {
				return cli.Misuse("-l chooses by labels, and %q is a name: leave one or the other out", c.names[0].Name)
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := cli.Within(cmd.Context(), 5*time.Minute)
			defer cancel()
			return c.keep(ctx, home, streams, c.scope.In(*flags.Namespace))
		},
	}
	command.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	c.scope.Add(command, "the DaemonSets")
	c.output.Add(command, "only list them, and change nothing", cli.JSON, cli.YAML, cli.Name)
	return command
}

// parse returns the DaemonSets that arguments name: NAMESPACE/NAME, or as kubectl names them. It is pure.
func parse(args []string) (names []types.NamespacedName, err error) {
	if len(args) == 1 && cli.KindOf(args[0]) == cli.DaemonSet { // all of them
		return nil, nil
	}
	if len(args) > 1 && cli.KindOf(args[0]) != "" { // as in: daemonset proxy
		references, err := cli.References(args, cli.DaemonSet)
		for _, reference := range references {
			names = append(names, types.NamespacedName{Name: reference.Name})
		}
		return names, err
	}
	for _, arg := range args {
		namespace, name, ok := strings.Cut(arg, "/")
		if !ok || cli.KindOf(namespace) != "" {
			references, err := cli.References([]string{arg}, cli.DaemonSet)
			if err != nil {
				return nil, err
			}
			namespace, name = "", references[0].Name
		} else if len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) > 0 {
			return nil, cli.Misuse("%q is not understood: write daemonset/NAME, or NAMESPACE/NAME", arg)
		}
		names = append(names, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return names, nil
}

// allNames lists DaemonSets as NAMESPACE/NAME.
func allNames(ctx context.Context, home *cli.Cluster, _ string) ([]string, error) {
	sets, err := home.Client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, set := range sets.Items {
		names = append(names, set.Namespace+"/"+set.Name)
	}
	return names, nil
}

// found is a DaemonSet that wants pods on virtual nodes.
type found struct {
	appsv1.DaemonSet
	restarts string
	stuck    int
}

func (f found) name() string { return f.Namespace + "/" + f.DaemonSet.Name }

// Listed is a DaemonSet as -o json and -o yaml print it.
type Listed struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Waiting is how many of its pods wait on virtual nodes, Restarts what a change restarts.
	Waiting  int    `json:"waiting"`
	Restarts string `json:"restarts"`
}

func (c *chosen) keep(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, namespace string) error {
	all, err := c.find(ctx, home, namespace)
	switch {
	case err != nil:
		return err
	case c.output.Format != "":
		return c.list(streams.Out, all)
	case len(all) == 0:
		_, err := fmt.Fprintln(streams.Out, "no DaemonSet wants a pod on a virtual node: nothing to do")
		return err
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "DAEMONSET\tWAIT ON VIRTUAL NODES\tRESTARTS")
	for _, f := range all {
		fmt.Fprintf(table, "%s\t%d\t%s\n", f.name(), f.stuck, f.restarts)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	fmt.Fprintf(streams.ErrOut, "The templates of these DaemonSets will get the requirement that a node has no label %s.\n"+
		"Their pods restart as it says above.\n", keys.VirtualNodeRole)
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, c.yes, "restart"); err != nil {
		return err
	}
	var failed []error
	for _, f := range all {
		if err := change(ctx, home, &f.DaemonSet); err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintf(streams.Out, "daemonset/%s -n %s kept off virtual nodes\n", f.DaemonSet.Name, f.Namespace)
	}
	return errors.Join(failed...)
}

// list writes what was found, for programs.
func (c *chosen) list(out io.Writer, all []found) error {
	items := []Listed{}
	for _, f := range all {
		items = append(items, Listed{Namespace: f.Namespace, Name: f.DaemonSet.Name, Waiting: f.stuck, Restarts: f.restarts})
		if c.output.Format == cli.Name {
			if _, err := fmt.Fprintln(out, "daemonset.apps/"+f.DaemonSet.Name); err != nil {
				return err
			}
		}
	}
	if c.output.Format == cli.Name {
		return nil
	}
	return c.output.Write(out, map[string]any{"items": items})
}

// find returns the DaemonSets that want pods on virtual nodes, by namespace and name.
func (c *chosen) find(ctx context.Context, home *cli.Cluster, namespace string) ([]found, error) {
	nodes, err := home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: keys.VirtualNodeRole})
	if err != nil {
		return nil, home.Explain("list nodes", err)
	}
	sets, err := home.Client.AppsV1().DaemonSets(namespace).List(ctx, c.scope.Options())
	if err != nil {
		return nil, home.Explain("list daemonsets", err)
	}
	if len(sets.Items) == 0 && namespace != "" {
		if err := home.RequireNamespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	if sets.Items, err = named(sets.Items, c.names); err != nil {
		return nil, err
	}
	var all []found
	for _, set := range sets.Items {
		if !WantsVirtualNodes(&set, nodes.Items) {
			continue
		}
		pods, err := podsOf(ctx, home, &set)
		if err != nil {
			return nil, err
		}
		running, stuck := Count(&set, pods, nodes.Items)
		all = append(all, found{DaemonSet: set, restarts: Restarts(&set, running), stuck: stuck})
	}
	return all, nil
}

// named returns the DaemonSets that have one of the names, all if there are no names, or an error for a name that none has or
// several have. It is pure.
func named(sets []appsv1.DaemonSet, names []types.NamespacedName) ([]appsv1.DaemonSet, error) {
	if len(names) == 0 {
		return sets, nil
	}
	var there []string
	for _, set := range sets {
		there = append(there, set.Namespace+"/"+set.Name)
	}
	slices.Sort(there)
	var chosen []appsv1.DaemonSet
	for _, name := range names {
		var same []string
		for _, set := range sets {
			if set.Name == name.Name && (name.Namespace == "" || name.Namespace == set.Namespace) {
				same, chosen = append(same, set.Namespace+"/"+set.Name), append(chosen, set)
			}
		}
		typed := strings.TrimPrefix(name.String(), "/")
		switch {
		case len(there) == 0:
			return nil, fmt.Errorf("there is no daemonset %q, nor any other: give another -n or --context if it is elsewhere", typed)
		case len(same) == 0:
			return nil, fmt.Errorf("there is no daemonset %q; there %s", typed, cli.ThereAre(there, typed, "kubectl get daemonsets -A"))
		case len(same) > 1:
			return nil, cli.Misuse("several DaemonSets are called %q: name %s", typed, cli.Or(same))
		}
	}
	return chosen, nil
}

func podsOf(ctx context.Context, home *cli.Cluster, set *appsv1.DaemonSet) ([]corev1.Pod, error) {
	pods, err := home.Client.CoreV1().Pods(set.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return nil, home.Explain("list pods in namespace "+set.Namespace, err)
	}
	return pods.Items, nil
}

// change writes one DaemonSet, unless it was changed since it was listed: then what was shown may no
// longer be what would restart.
func change(ctx context.Context, home *cli.Cluster, set *appsv1.DaemonSet) error {
	patch, err := Patch(set)
	if err != nil {
		return err
	}
	_, err = home.Client.AppsV1().DaemonSets(set.Namespace).Patch(ctx, set.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	switch {
	case apierrors.IsNotFound(err):
		return nil // gone, and its pods with it
	case apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return fmt.Errorf("DaemonSet %s/%s was changed meanwhile, so it was left as it is: run the same command again (%w)",
			set.Namespace, set.Name, err)
	}
	return home.Explain("patch daemonset "+set.Namespace+"/"+set.Name, err)
}
