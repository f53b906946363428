// Package adopt is the command adopt: the owner of a remote cluster keeps what a home cluster that is lost had there, as ordinary claims.
// Plan decides what becomes of each claim and is pure; read plan.go first.
package adopt

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
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// adoption is one run of the command.
type adoption struct {
	cli.Reporter
	streams   genericiooptions.IOStreams
	remote    *cli.Cluster
	snapshots dynamic.NamespaceableResourceInterface

	name, before string
	// heir is the home cluster that gets the namespaces, nil: they become this cluster's own.
	heir        *remotev1alpha1.HomeCluster
	until       time.Time
	dryRun, yes bool
	timeout     time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	a := &adoption{Reporter: cli.Reporter{Out: streams.ErrOut}, streams: streams, timeout: 10 * time.Minute}
	command := &cobra.Command{
		Use:   "adopt HOMECLUSTER",
		Short: "Keep what a home cluster that is lost had in this remote cluster, as claims of its own",
		Long: `Adopt is for the owner of a remote cluster, and runs there (--context), when the home
cluster is lost for good. Claims whose data is there become ordinary claims. Claims of
which second copies are there (kubectl lodestone replicate) are made of the newest
versions, under their names at home. Apply your workloads there afterwards.

First all rights of the home cluster end, and its pods there: if it comes back it changes
nothing any more. Pods that still run in it, or elsewhere, go on beside yours. Then its
namespaces become this cluster's own, with all that is in them. Versions stay.

A new home cluster gets the namespaces instead if its HomeCluster there names the lost one
in spec.succeeds. kubectl lodestone import then makes the claims at that one.

It shows a plan and asks for the name. It is refused (exit code 3) while the home cluster
is heard of: there, kubectl lodestone failover and move do without loss what this does.`,
		Example: `  # Which claims would there be, and how old?
  kubectl lodestone adopt 3f2a91c0 --context west --dry-run
  kubectl lodestone adopt 3f2a91c0 --context west

  # The newest versions are spoiled: use older ones
  kubectl lodestone adopt 3f2a91c0 --context west --before 2026-11-27T09:00:00Z`,
		Args:              cli.TakesOne(cli.HomeCluster),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.HomeCluster}),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.HomeCluster)
			if err != nil {
				return err
			}
			if a.name = named.Name; a.timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 10m")
			}
			if a.before != "" {
				if a.until, err = time.Parse(time.RFC3339, a.before); err != nil {
					return cli.Misuse("--before %q is not a time: give one such as 2026-11-27T09:00:00Z", a.before)
				}
			}
			if a.remote, err = cli.ConnectHome(flags); err != nil {
				return err
			}
			client, err := dynamic.NewForConfig(a.remote.Config)
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			a.snapshots = client.Resource(volumesnapshot.Snapshots)
			ctx, cancel := cli.Within(cmd.Context(), a.timeout)
			defer cancel()
			return a.run(ctx)
		},
	}
	command.Flags().StringVar(&a.before, "before", "", "use versions of no later moment than this, such as 2026-11-27T09:00:00Z")
	command.Flags().BoolVar(&a.dryRun, "dry-run", false, "show the plan, and do nothing")
	command.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&a.timeout, "timeout", a.timeout, "how long to wait in all; run the same command again to go on")
	return command
}

func (a *adoption) run(ctx context.Context) error {
	home, err := a.remote.Remote.HomeClusters().Get(ctx, a.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return a.remote.Missing(ctx, cli.HomeCluster, "", a.name)
	case err != nil:
		return a.remote.Explain("get HomeCluster "+a.name, err)
	}
	if err := Judge(home); err != nil {
		return err
	}
	if a.heir, err = a.successor(ctx); err != nil {
		return err
	}
	facts, err := a.gather(ctx)
	if err != nil {
		return err
	}
	plan := Plan(facts)
	if err := a.show(plan); err != nil {
		return err
	}
	a.sayWhose(facts.Namespaces)
	if a.dryRun {
		return nil
	}
	a.Say("All rights of home cluster %s in the cluster of context %q end, and its pods there. Go on only if it is lost for good: what still "+
		"runs in it, or elsewhere, goes on beside yours.", a.name, a.remote.Context)
	if err := cli.Ask(ctx, a.streams.In, a.streams.ErrOut, a.yes, a.name); err != nil {
		return err
	}
	if err := a.end(ctx, home); err != nil {
		return err
	}
	// The owner may have thought better of it meanwhile.
	switch heir, err := a.successor(ctx); {
	case err != nil:
		return err
	case heir == nil && a.heir != nil, heir != nil && (a.heir == nil || heir.UID != a.heir.UID):
		return cli.Refuse("who gets the namespaces has changed since the plan was shown: run the command again")
	}
	// What its pods and movers did until they ended counts.
	if facts, err = a.gather(ctx); err != nil {
		return err
	}
	again, given := map[string]bool{}, false
	for _, line := range Plan(facts) {
		again[line.Namespace] = again[line.Namespace] || line.Again
		if err := a.adopt(ctx, line); err != nil {
			return err
		}
	}
	for _, namespace := range facts.Namespaces {
		if again[namespace.Name] {
			a.Say("namespace %s stays as it is, so that the command can be run again for what is left there: do what the plan says",
				namespace.Name)
			continue
		}
		if err := a.give(ctx, namespace); err != nil {
			return err
		}
		given = given || a.gets(namespace)
	}
	a.sayNext(given)
	return nil
}

// successor returns the home cluster that gets the namespaces, nil for none.
func (a *adoption) successor(ctx context.Context) (*remotev1alpha1.HomeCluster, error) {
	homes, err := a.remote.Remote.HomeClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, a.remote.Explain("list HomeClusters", err)
	}
	return Successor(a.name, homes.Items)
}

// gets says whether a home cluster gets a namespace, and not this cluster.
func (a *adoption) gets(namespace Namespace) bool { return a.heir != nil && namespace.passes() }

// sayWhose says who gets the namespaces, where that is not this cluster.
func (a *adoption) sayWhose(namespaces []Namespace) {
	if a.heir == nil {
		return
	}
	for _, namespace := range namespaces {
		if a.gets(namespace) {
			a.Say("Home cluster %s gets namespace %s, with all that is in it: spec.succeeds of its HomeCluster names %s.", a.heir.Name,
				namespace.Name, a.name)
			continue
		}
		a.Say("Namespace %s has the ID of %s in its name, and home cluster %s would ask for another: it becomes this cluster's own.",
			namespace.Name, a.name, a.heir.Name)
	}
}

// sayNext says what is to be done now; given: a successor has got something.
func (a *adoption) sayNext(given bool) {
	if !given {
		a.Say("Apply your workloads here now. Once you need no other version, remove them and the heads of the copies: kubectl --context %s "+
			"delete volumesnapshots,pvc -n NAMESPACE -l %s", a.remote.Context, keys.ReplicaOf)
		return
	}
	a.Say("At home cluster %[1]s open the namespaces to this cluster, and make each claim that is bound here one of there: kubectl lodestone "+
		"import pvc/CLAIM -n NAMESPACE --class CLASS --cluster CLUSTER --remote-context %[2]s. Then apply your workloads there. What pods of "+
		"%[3]s had brought is in the way of what those of %[1]s bring under the same names, and goes by kubectl --context %[2]s delete "+
		"configmaps,secrets,services -n NAMESPACE -l %[4]s=%[3]s; once no other version is needed, versions and heads of copies go by kubectl "+
		"--context %[2]s delete volumesnapshots,pvc -n NAMESPACE -l %[5]s,%[4]s=%[3]s", a.heir.Name, a.remote.Context, a.name,
		keys.HomeID, keys.ReplicaOf)
}

// Judge says why what is left of a home cluster cannot be adopted now; nil: it can. It is pure.
func Judge(home *remotev1alpha1.HomeCluster) error {
	connected := meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Connected)
	switch {
	case home.DeletionTimestamp != nil: // its rights have ended already
		return nil
	case connected == nil || connected.Status == metav1.ConditionUnknown:
		return cli.Refuse("it is not known yet whether home cluster %s is lost: the remote agent has just started, or does not run; try again "+
			"in a minute, and see its pods in lodestone-system if that does not help", home.Name)
	case connected.Status == metav1.ConditionTrue:
		return cli.Refuse("home cluster %s is not lost: it renews its heartbeat; kubectl lodestone failover there gives claims their second "+
			"copies", home.Name)
	}
	return nil
}

// gather reads what there is of the home cluster.
func (a *adoption) gather(ctx context.Context) (Facts, error) {
	f := Facts{HomeID: a.name, Before: a.until}
	core := a.remote.Client.CoreV1()
	namespaces, err := core.Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + a.name})
	if err != nil {
		return f, a.remote.Explain("list namespaces", err)
	}
	for _, namespace := range namespaces.Items {
		if home, _, _ := strings.Cut(namespace.Annotations[keys.MadeFor], "/"); home != a.name || namespace.DeletionTimestamp != nil {
			continue
		}
		claims, err := core.PersistentVolumeClaims(namespace.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return f, a.remote.Explain("list claims in "+namespace.Name, err)
		}
		f.Claims = append(f.Claims, claims.Items...)
		snapshots, err := a.snapshots.Namespace(namespace.Name).List(ctx, metav1.ListOptions{LabelSelector: keys.ReplicaOf})
		switch {
		case apierrors.IsNotFound(err): // this cluster has no VolumeSnapshots
		case err != nil:
			return f, a.remote.Explain("list VolumeSnapshots in "+namespace.Name, err)
		default:
			for i := range snapshots.Items {
				snapshot, err := volumesnapshot.Read[volumesnapshot.Snapshot](&snapshots.Items[i])
				if err != nil {
					return f, fmt.Errorf("read VolumeSnapshot %s/%s: %w", namespace.Name, snapshots.Items[i].GetName(), err)
				}
				f.Snapshots = append(f.Snapshots, *snapshot)
			}
		}
		if len(claims.Items) > 0 || snapshots != nil && len(snapshots.Items) > 0 {
			_, of, _ := strings.Cut(namespace.Annotations[keys.MadeFor], "/")
			f.Namespaces = append(f.Namespaces, Namespace{Name: namespace.Name, Of: of, UID: namespace.UID,
				ResourceVersion: namespace.ResourceVersion})
		}
	}
	classes, err := a.remote.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, a.remote.Explain("list storage classes", err)
	}
	for i := range classes.Items {
		f.Classes = append(f.Classes, classes.Items[i].Name)
	}
	return f, nil
}

func (a *adoption) show(plan []Line) error {
	if len(plan) == 0 {
		a.Say("Home cluster %s has no claims in the cluster of context %q, nor second copies of any.", a.name, a.remote.Context)
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{cli.Column("Namespace", false), cli.Column("Claim", false),
		cli.Column("Plan", false)}}
	now := time.Now()
	for _, line := range plan {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{line.Namespace, line.Claim, line.Text(now)}})
	}
	return cli.PrintTable(a.streams.Out, table, false)
}

// end has the remote agent take all rights of the home cluster back and end its pods, and waits until that is done: first of all it
// must not be able to change what is adopted.
func (a *adoption) end(ctx context.Context, home *remotev1alpha1.HomeCluster) error {
	homes := a.remote.Remote.HomeClusters()
	if home.DeletionTimestamp == nil {
		if err := homes.Delete(ctx, a.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &home.UID}}); err != nil {
			return a.remote.Explain("delete HomeCluster "+a.name, err)
		}
	}
	return a.Await(ctx, "the end of the home cluster's rights and pods here", func(ctx context.Context) (string, bool, error) {
		now, err := homes.Get(ctx, a.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != home.UID {
			return "", true, nil
		}
		if err != nil {
			return "", false, a.remote.Explain("get HomeCluster "+a.name, err)
		}
		shadows, err := a.remote.Remote.ShadowPods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, a.remote.Explain("list ShadowPods", err)
		}
		requests, err := a.remote.Remote.NamespaceRequests(keys.TenantPrefix+a.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, a.remote.Explain("list NamespaceRequests", err)
		}
		state := ""
		ready := meta.FindStatusCondition(now.Status.Conditions, remotev1alpha1.Ready)
		if ready != nil && ready.Reason == remotev1alpha1.Removing {
			state = ready.Message
		}
		of := func(shadow remotev1alpha1.ShadowPod) bool { return shadow.Spec.Home.Cluster == a.name }
		// The agent says that it removes what there is only after the rights have ended.
		return state, state != "" && !slices.ContainsFunc(shadows.Items, of) && len(requests.Items) == 0, nil
	})
}

// adopt does what a line of the plan says.
func (a *adoption) adopt(ctx context.Context, line Line) error {
	claims := a.remote.Client.CoreV1().PersistentVolumeClaims(line.Namespace)
	switch line.Verb {
	case Keep:
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": line.Kept.UID, "resourceVersion": line.Kept.ResourceVersion,
			"labels":      map[string]any{keys.HomeID: nil, keys.ClaimUID: nil},
			"annotations": map[string]any{keys.AdoptedFrom: ""},
			"finalizers":  slices.DeleteFunc(slices.Clone(line.Kept.Finalizers), func(f string) bool { return f == keys.BackingFinalizer }),
		}})
		if err != nil {
			return fmt.Errorf("write the change of claim %s/%s: %w", line.Namespace, line.Claim, err)
		}
		if _, err := claims.Patch(ctx, line.Claim, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return a.remote.Explain(fmt.Sprintf("change claim %s/%s", line.Namespace, line.Claim), err)
		}
	case Make:
		if _, err := claims.Create(ctx, line.NewClaim(), metav1.CreateOptions{}); err != nil {
			return a.remote.Explain(fmt.Sprintf("make claim %s/%s", line.Namespace, line.Claim), err)
		}
	case Leave:
		return nil
	}
	_, err := fmt.Fprintf(a.streams.Out, "persistentvolumeclaim/%s adopted in namespace %s\n", line.Claim, line.Namespace)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// give makes a namespace this cluster's own, or the successor's, in one write, if it is still as it was read: the bounds of the lost home
// cluster go, and the agent does not look at it any more, or makes those of the successor once that asks for it. EndpointSlices that came
// from the lost home go too: they would lead Services of the same names to pods that are gone, or are somebody else's by now.
func (a *adoption) give(ctx context.Context, namespace Namespace) error {
	core, of, name := a.remote.Client.CoreV1(), metav1.ListOptions{LabelSelector: keys.HomeID + "=" + a.name}, namespace.Name
	for what, remove := range map[string]func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error{
		"ResourceQuotas": core.ResourceQuotas(name).DeleteCollection, "LimitRanges": core.LimitRanges(name).DeleteCollection,
		"EndpointSlices": a.remote.Client.DiscoveryV1().EndpointSlices(name).DeleteCollection,
	} {
		if err := remove(ctx, metav1.DeleteOptions{}, of); err != nil {
			return a.remote.Explain(fmt.Sprintf("delete %s of namespace %s", what, name), err)
		}
	}
	labels := map[string]any{keys.HomeID: nil}
	annotations := map[string]any{keys.MadeFor: nil, keys.HomeUID: nil, keys.HomeNamespaceUID: nil, keys.StorageClasses: nil}
	if a.gets(namespace) {
		labels[keys.HomeID], annotations[keys.MadeFor] = a.heir.Name, a.heir.Name+"/"+namespace.Of
		if a.heir.Spec.ClusterUID != "" {
			annotations[keys.HomeUID] = a.heir.Spec.ClusterUID
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": namespace.UID,
		"resourceVersion": namespace.ResourceVersion, "labels": labels, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("write the change of namespace %s: %w", name, err)
	}
	_, err = core.Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	return a.remote.Explain("change namespace "+name, err)
}
