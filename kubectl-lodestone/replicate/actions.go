// This file has the verbs pause, resume, accept and delete, and what they share with status: which VolumeReplica is meant.

package replicate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// pausing returns the command that writes spec.paused.
func pausing(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, verb string, paused bool, short,
	long string) *cobra.Command {
	var output cli.Output
	command := &cobra.Command{
		Use:               verb + " pvc/NAME | volumereplica/NAME",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  # The copy of claim data\n  kubectl lodestone replicate %s pvc/data -n shop", verb),
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Ask(cmd.Context(), flags, streams.Out, output, args, verb,
				func(ctx context.Context, home *cli.Cluster, r *v1alpha1.VolumeReplica) (*v1alpha1.VolumeReplica, error) {
					return patchSpec(ctx, home, r, map[string]any{"paused": paused})
				})
		},
	}
	named.AskFlags(command, &output)
	return command
}

// patchSpec writes fields of the specification of a VolumeReplica, and returns it as it is then.
func patchSpec(ctx context.Context, home *cli.Cluster, r *v1alpha1.VolumeReplica, spec map[string]any) (*v1alpha1.VolumeReplica, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID}, "spec": spec})
	if err != nil {
		return r, fmt.Errorf("encode patch: %w", err)
	}
	patched, err := home.Moves.Replicas(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return r, home.Explain("patch VolumeReplica "+r.Namespace+"/"+r.Name, err)
	}
	return patched, nil
}

func acceptCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	command := &cobra.Command{
		Use:   "accept pvc/NAME | volumereplica/NAME",
		Short: "Let the versions go that were pinned because much had changed",
		Long: `Accept says that what changed at once is in order: a restored database, or a file that is
written anew in whole. The versions from before it, which were pinned, go as others do.
What changes like that later pins versions again. It is refused (exit code 3) if none is
pinned.`,
		Example:           "  # The files of claim data were restored on purpose\n  kubectl lodestone replicate accept pvc/data -n shop",
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Ask(cmd.Context(), flags, streams.Out, output, args, "accept",
				func(ctx context.Context, home *cli.Cluster, r *v1alpha1.VolumeReplica) (*v1alpha1.VolumeReplica, error) {
					version := unaccepted(r)
					if version == "" {
						return r, cli.Refuse("no version of VolumeReplica %s/%s is pinned: kubectl lodestone replicate status shows what it has",
							r.Namespace, r.Name)
					}
					return patchSpec(ctx, home, r, map[string]any{"versions": map[string]any{"accepted": version}})
				})
		},
	}
	named.AskFlags(command, &output)
	return command
}

// unaccepted returns the name of the version because of whose changes versions are pinned; empty if none are. It is pure.
func unaccepted(r *v1alpha1.VolumeReplica) string {
	if len(r.Status.Standbys) == 0 {
		return ""
	}
	return r.Status.Standbys[0].Suspect
}

func deleteCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var yes bool
	var output cli.Output
	command := &cobra.Command{
		Use:   "delete pvc/NAME | volumereplica/NAME",
		Short: "Remove a copy, and all of its versions",
		Long: `Delete removes a VolumeReplica, and with it the copy at the standby and all of its
versions; the claim and its data stay. It asks for the name of the VolumeReplica.

It is refused (exit code 3) while the cluster that has the data does not answer: the copy
may then be all that is left of it. kubectl delete volumereplica deletes it all the same.`,
		Example:           "  # The copy of claim data\n  kubectl lodestone replicate delete pvc/data -n shop",
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Ask(cmd.Context(), flags, streams.Out, output, args, "delete",
				func(ctx context.Context, home *cli.Cluster, r *v1alpha1.VolumeReplica) (*v1alpha1.VolumeReplica, error) {
					return r, remove(ctx, home, streams, r, yes)
				})
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	named.AskFlags(command, &output)
	return command
}

// remove asks the user for confirmation, and deletes a VolumeReplica.
func remove(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, r *v1alpha1.VolumeReplica, yes bool) error {
	c := replica.Of(r, time.Now())
	if c.Sealed != nil && c.Primary != "" && c.Primary != keys.Home {
		remote, err := home.Remotes.Get(ctx, c.Primary, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			remote = nil
		case apierrors.IsForbidden(err):
			remote = &v1alpha1.RemoteCluster{} // what cannot be read forbids nothing
		case err != nil:
			return home.Explain("get RemoteCluster "+c.Primary, err)
		}
		if why := onlyCopy(c, remote); why != "" {
			return cli.Refuse("%s", why)
		}
	}
	fmt.Fprintf(streams.ErrOut, "The copy of claim %s/%s in cluster %s goes, with its sealed versions (%d). The claim and its data stay.\n",
		c.Namespace, c.Names(), c.Standby, c.Versions)
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, yes, r.Name); err != nil {
		return err
	}
	err := home.Moves.Replicas(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return home.Explain("delete VolumeReplica "+r.Namespace+"/"+r.Name, err)
	}
	return nil
}

// onlyCopy says why a copy may be all that is left of a claim's data; empty: it is not. remote is that of the cluster with the data,
// nil if there is none any more. It is pure.
func onlyCopy(c replica.Copy, remote *v1alpha1.RemoteCluster) string {
	if remote != nil && !meta.IsStatusConditionFalse(remote.Status.Conditions, v1alpha1.Reachable) {
		return ""
	}
	return fmt.Sprintf("cluster %q, which has the data of claim %s/%s, does not answer or is gone, so the copy may be all that is left "+
		"of it: %s; kubectl delete volumereplica %s -n %s removes it all the same", c.Primary, c.Namespace, c.Names(), c.Use(), c.Name,
		c.Namespace)
}

// named are the VolumeReplicas, as commands name them.
var named = cli.Named[v1alpha1.VolumeReplica, *v1alpha1.VolumeReplica]{
	Kind: v1alpha1.GroupVersion.WithKind("VolumeReplica"), As: cli.Replica, One: "VolumeReplica", Several: "VolumeReplicas",
	List: func(ctx context.Context, home *cli.Cluster, namespace string, options metav1.ListOptions) ([]v1alpha1.VolumeReplica, error) {
		replicas, err := home.Moves.Replicas(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err):
			return nil, tooOld(home)
		case err != nil:
			return nil, home.Explain("list VolumeReplicas", err)
		}
		return replicas.Items, nil
	},
	Claims: func(r *v1alpha1.VolumeReplica) []string { return r.Spec.Claims },
	Choose: choose, There: thereAre,
}

// choose returns the VolumeReplica of that name, else the one of the claim of that name; nil if there is none. Several are an error.
// It is pure.
func choose(all []v1alpha1.VolumeReplica, reference cli.Reference) (*v1alpha1.VolumeReplica, error) {
	var found *v1alpha1.VolumeReplica
	var names []string
	for i := range all {
		r := &all[i]
		switch {
		case reference.Kind != cli.Claim && r.Name == reference.Name:
			return r, nil
		case reference.Kind != cli.Replica && slices.Contains(r.Spec.Claims, reference.Name):
			found, names = r, append(names, r.Name)
		}
	}
	if len(names) > 1 {
		slices.Sort(names)
		return nil, cli.Misuse("claim %q has several copies: name one of %s", reference.Name, strings.Join(names, ", "))
	}
	return found, nil
}

// thereAre names the VolumeReplicas that there are.
func thereAre(all []v1alpha1.VolumeReplica, typed, namespace string) string {
	if len(all) == 0 {
		return "kubectl lodestone replicate status -A shows those of other namespaces"
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	return "there " + cli.ThereAre(names, typed, "kubectl lodestone replicate status -n "+namespace)
}
