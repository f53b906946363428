// Package upgrade is the command check-upgrade: it shows what the next version of Lodestone changes
// for the installation in a cluster, before anybody upgrades it. command.go reads the cluster and
// prints, findings.go decides what is worth a line and is pure. A change of a default or of a right
// adds its line to checks in findings.go.
package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/pager"

	"github.com/lodestone-storage/lodestone/deploy/remote/home"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
)

// readTimeout limits all reads together.
const readTimeout = 2 * time.Minute

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var marking, yes bool
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "check-upgrade",
		Short: "Show what the version of this plugin changes for an installation",
		Long: `Check-upgrade shows what changes for the Lodestone of a cluster when it is upgraded
to the version of this plugin: one line for each thing that would behave in another
way, with what to do about it. It changes nothing. Run it with the new plugin before
the upgrade, in the home cluster and in each remote cluster. What you may not read is
left out and named.

With --mark it lists the claims that are not of a class of Lodestone and that pods in
remote clusters use, asks, and annotates them lodestone.dev/usable-in: the next pods
of these claims may then go there as until now.`,
		Example: `  # Before home is upgraded
  kubectl lodestone check-upgrade

  # Before the remote agent of cluster west is upgraded
  kubectl lodestone check-upgrade --context west

  # Mark the claims that are used in remote clusters already
  kubectl lodestone check-upgrade --mark`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case yes && !marking:
				return cli.Misuse("--yes answers the question of --mark: give both, or neither")
			case marking && output.Format != "":
				return cli.Misuse("-o is for what changes, and --mark changes claims: leave one of them out")
			}
			if err := output.Check(); err != nil {
				return err
			}
			cluster, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			installation, unread, err := read(ctx, cluster)
			if err != nil {
				return err
			}
			if marking && len(unread) > 0 {
				return fmt.Errorf("you may not list %s, without which it is not certain which claims need a mark: ask an administrator",
					strings.Join(unread, ", "))
			}
			if len(unread) > 0 {
				fmt.Fprintf(streams.ErrOut, "note: left out what you may not read: %s\n", strings.Join(unread, ", "))
			}
			if marking {
				return mark(cmd.Context(), cluster, streams, yes, Markings(installation))
			}
			if output.IsObject() {
				return output.Write(streams.Out, map[string]any{"items": Findings(installation), "unread": append([]string{}, unread...)})
			}
			return write(streams, cluster.Context, Findings(installation))
		},
	}
	cmd.Flags().BoolVar(&marking, "mark", false, "annotate claims that are not Lodestone's with the remote clusters in which pods use them")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	output.Add(cmd, "for programs; default: text", cli.JSON, cli.YAML)
	return cmd
}

func write(streams genericiooptions.IOStreams, name string, findings []Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintf(streams.Out, "The upgrade changes nothing for what is in the cluster of context %q.\n", name)
		return err
	}
	for _, finding := range findings {
		if _, err := fmt.Fprintln(streams.Out, finding); err != nil {
			return err
		}
	}
	return nil
}

// read reads all that the findings are made from, and returns the names of the resources that the
// user may not list. A resource that the cluster does not serve has no objects.
func read(ctx context.Context, cluster *cli.Cluster) (i Installation, unread []string, err error) {
	core, storage := cluster.Client.CoreV1(), cluster.Client.StorageV1()
	for _, list := range []struct {
		resource string
		page     pager.ListPageFunc
		keep     func(runtime.Object)
	}{
		{"remoteclusters", all(cluster.Remotes.List), keep(&i.Remotes)},
		{"homeclusters", all(cluster.Remote.HomeClusters().List), keep(&i.Homes)},
		{"namespaces", all(core.Namespaces().List), keep(&i.Namespaces)},
		{"storageclasses", all(storage.StorageClasses().List), keep(&i.Classes)},
		{"persistentvolumes", all(core.PersistentVolumes().List), keep(&i.Volumes)},
		{"persistentvolumeclaims", all(core.PersistentVolumeClaims("").List), keep(&i.Claims)},
		{"nodes", all(core.Nodes().List), keep(&i.Nodes)},
		{"pods", all(core.Pods("").List), keep(&i.Pods)},
		{"daemonsets", all(cluster.Client.AppsV1().DaemonSets("").List), keep(&i.DaemonSets)},
		{"namespacerequests", all(cluster.Remote.NamespaceRequests("").List), keep(&i.Requests)},
	} {
		err := pager.New(list.page).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			list.keep(object)
			return nil
		})
		switch {
		case apierrors.IsForbidden(err):
			unread = append(unread, list.resource)
		case err != nil && !apierrors.IsNotFound(err):
			return i, nil, cluster.Explain("list "+list.resource, err)
		}
	}
	switch i.Confinement, err = readConfinement(ctx, cluster); {
	case apierrors.IsForbidden(err):
		unread = append(unread, policies)
	case err != nil:
		return i, nil, cluster.Explain("get what confines home clusters", err)
	}
	slices.Sort(unread)
	i.Unread = unread
	i.Built, err = confinement.Decode(home.Admission)
	return i, unread, err
}

// readConfinement reads the policy that confines home clusters, and its binding; nil for what is not
// there.
func readConfinement(ctx context.Context, cluster *cli.Cluster) (have confinement.Confinement, err error) {
	admission := cluster.Client.AdmissionregistrationV1()
	policy, err := admission.ValidatingAdmissionPolicies().Get(ctx, confinement.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		have.Policy = policy
	case !apierrors.IsNotFound(err):
		return have, err //nolint:wrapcheck // the caller explains it
	}
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, confinement.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		have.Binding = binding
	case !apierrors.IsNotFound(err):
		return have, err //nolint:wrapcheck // the caller explains it
	}
	return have, nil
}

// all makes a page function of the method List of a typed client.
func all[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// keep appends the objects of a list to objects.
func keep[T any, P interface {
	*T
	runtime.Object
}](objects *[]P) func(runtime.Object) {
	return func(object runtime.Object) {
		if o, ok := object.(P); ok {
			*objects = append(*objects, o)
		}
	}
}
