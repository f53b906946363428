// Package daemonsets is the command daemonsets: it keeps DaemonSets off virtual nodes that were there
// before the policy which does that for all others, or that the policy missed. decide.go has the pure
// part: which DaemonSets, and what changes.
package daemonsets

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var yes, everywhere bool
	var selector string
	command := &cobra.Command{
		Use:   "daemonsets [NAMESPACE/NAME...]",
		Short: "Keep DaemonSets that tolerate every taint off virtual nodes",
		Long: `No pod of a DaemonSet runs on a virtual node. One that tolerates every taint wants a
pod there all the same, which waits for ever, so that its rollout is never complete.

DaemonSets that are made, or whose template somebody changes, are kept off virtual
nodes by themselves. This command is for those that were there before: it lists them,
says what restarts, asks, and gives their templates the requirement that a node has no
label ` + keys.VirtualNodeRole + `. A changed template restarts the pods of a
DaemonSet, as its update strategy says.

With -n, or with names, only those are looked at.`,
		Example: `  # Which DaemonSets are that, and what would restart? Answer with Enter to change nothing
  kubectl lodestone daemonsets

  # Only this one, at a time that suits
  kubectl lodestone daemonsets kube-system/kube-proxy`,
		ValidArgsFunction: cli.Complete(flags, allNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if namespace, name, ok := strings.Cut(arg, "/"); !ok || namespace == "" || name == "" {
					return cli.Misuse("%q names no DaemonSet: write NAMESPACE/NAME, such as kube-system/kube-proxy", arg)
				}
			}
			chosen := *flags.Namespace
			if everywhere {
				chosen = metav1.NamespaceAll
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
			defer cancel()
			return keep(ctx, home, streams, chosen, selector, args, yes)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "look at all namespaces, as without -n")
	command.Flags().StringVarP(&selector, "selector", "l", "", "look at the DaemonSets with these labels, such as app=logs")
	return command
}

// allNames lists DaemonSets as the command takes them.
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

func keep(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, namespace, selector string, names []string,
	yes bool) error {
	all, err := find(ctx, home, namespace, selector, names)
	if err != nil {
		return err
	}
	if len(all) == 0 {
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
	fmt.Fprintf(streams.ErrOut, "The templates of these DaemonSets are to get the requirement that a node has no label %s.\n"+
		"Their pods restart as it says above.\n", keys.VirtualNodeRole)
	if err := cli.Confirm(streams.In, streams.ErrOut, yes, "restart"); err != nil {
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

// find returns the DaemonSets that want pods on virtual nodes, by namespace and name.
func find(ctx context.Context, home *cli.Cluster, namespace, selector string, names []string) ([]found, error) {
	nodes, err := home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: keys.VirtualNodeRole})
	if err != nil {
		return nil, home.Explain("list nodes", err)
	}
	sets, err := home.Client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, home.Explain("list daemonsets", err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(sets.Items, func(set appsv1.DaemonSet) bool { return set.Namespace+"/"+set.Name == name }) {
			return nil, fmt.Errorf("there is no DaemonSet %s: kubectl get daemonsets -A lists them", name)
		}
	}
	var all []found
	for _, set := range sets.Items {
		if len(names) > 0 && !slices.Contains(names, set.Namespace+"/"+set.Name) || !WantsVirtualNodes(&set, nodes.Items) {
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
