package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// storageNamespace has the real claims behind virtual ones.
const storageNamespace = "lodestone-storage"

// NewUninstall returns the command uninstall.
func NewUninstall(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var remote, yes bool
	timeout := 5 * time.Minute
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what install has made; refused while volumes are there",
		Long: `Uninstall removes what install has brought into the cluster of kubectl's current
context, with --remote the remote agent: programs, rights, policies, custom resources and
namespaces.

It is refused (exit code 3) while anything depends on it, and lists what does: volumes,
claims that wait for one, moves and remote clusters at home, home clusters and their
claims and pods in a remote cluster, networks that are joined and Services that are shared
in both. It asks before it begins, and may be stopped and run
again at any time.`,
		Example: `  # Home, after kubectl lodestone unpeer and the end of all claims
  kubectl lodestone uninstall --context home

  # The remote agent
  kubectl lodestone uninstall --context west --remote`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 5m")
			}
			cluster, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			target, err := newTarget(cluster, cli.Reporter{Out: streams.ErrOut})
			if err != nil {
				return err
			}
			if err := target.mayAll(cmd.Context()); err != nil {
				return err
			}
			had, err := target.removal(cmd.Context(), remote)
			if err != nil {
				return err
			}
			fmt.Fprintf(streams.ErrOut, "Lodestone is removed from the cluster of context %q: %d objects, and what is in namespace %s.\n",
				cluster.Context, len(had), namespaceOf(remote))
			if err := cli.Ask(cmd.Context(), streams.In, streams.ErrOut, yes, cluster.Context); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if err := target.removeAll(ctx, had, remote); err != nil {
				return err
			}
			if !remote {
				if err := target.sayWhoStillAsks(ctx); err != nil {
					return err
				}
			}
			fmt.Fprintf(streams.Out, "Lodestone is gone from the cluster of context %q: %d objects removed\n", cluster.Context, len(had))
			return nil
		},
	}
	command.Flags().BoolVar(&remote, "remote", false, "remove the remote agent")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait in all; the same command goes on")
	return command
}

// removal returns what is to be removed, and an error if that is not known or would do harm.
func (t *target) removal(ctx context.Context, remote bool) ([]reference, error) {
	last, err := readRecord(ctx, t.Cluster, namespaceOf(remote))
	if err != nil {
		return nil, err
	}
	if !last.found {
		other, err := readRecord(ctx, t.Cluster, namespaceOf(!remote))
		switch {
		case err == nil && other.found && remote:
			return nil, fmt.Errorf("the cluster of context %q has no remote agent that install made, but Lodestone as a home cluster: leave "+
				"--remote out to remove that", t.Context)
		case err == nil && other.found:
			return nil, fmt.Errorf("the cluster of context %q has no Lodestone as a home cluster that install made, but the remote agent: give "+
				"--remote to remove that", t.Context)
		}
		return nil, fmt.Errorf("kubectl lodestone install has made nothing in the cluster of context %q: what was applied with kubectl is "+
			"removed with kubectl delete -k of the same folder, what a GitOps tool applied by taking it out there (docs/install.md#remove)",
			t.Context)
	}
	holds := t.holdsAtHome
	if remote {
		holds = t.holdsInRemote
	}
	held, err := holds(ctx)
	if err != nil {
		return nil, err
	}
	ofComponents, err := t.inUse(ctx, last.values)
	if err != nil {
		return nil, err
	}
	if held = append(held, ofComponents...); len(held) > 0 {
		return nil, cli.Refuse("Lodestone is in use in the cluster of context %q, and nothing was changed: %s (docs/install.md#remove has "+
			"all steps)", t.Context, strings.Join(held, "; "))
	}
	// Others may have their ClusterProfiles there, too.
	return slices.DeleteFunc(last.objects, func(r reference) bool {
		return r.kind.Kind == "Namespace" && r.name == inventoryNamespace
	}), nil
}

// holding says in words which objects are there, and how they are ended; empty if none is.
func holding(what, end string, names []string) []string {
	const most = 5
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d %s (%s", len(names), what, strings.Join(names[:min(most, len(names))], ", "))
	if len(names) > most {
		text += ", …"
	}
	return []string{text + "): " + end}
}

// holdsAtHome lists what depends on Lodestone in a home cluster.
func (t *target) holdsAtHome(ctx context.Context) ([]string, error) {
	volumes, err := t.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, t.Explain("list persistentvolumes", err)
	}
	classes, err := t.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, t.Explain("list storageclasses", err)
	}
	claims, err := t.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, t.Explain("list persistentvolumeclaims", err)
	}
	moves, err := t.Moves.In("").List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list volumemoves", err)
	}
	copies, err := t.Moves.Replicas("").List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list volumereplicas", err)
	}
	remotes, err := t.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list remoteclusters", err)
	}
	virtual := map[string]bool{}
	for _, class := range classes.Items {
		virtual[class.Name] = class.Provisioner == keys.Driver
	}
	var data, waiting, twins, moving, replicated, peered []string
	for _, volume := range volumes.Items {
		if cli.ClusterOf(&volume) != "" {
			data = append(data, volume.Name)
		}
	}
	for _, claim := range claims.Items {
		switch {
		case claim.Namespace == storageNamespace:
			twins = append(twins, claim.Name)
		case claim.Spec.VolumeName == "" && claim.Spec.StorageClassName != nil && virtual[*claim.Spec.StorageClassName]:
			waiting = append(waiting, claim.Namespace+"/"+claim.Name)
		}
	}
	if moves != nil {
		for _, move := range moves.Items {
			moving = append(moving, move.Namespace+"/"+move.Name)
		}
	}
	if copies != nil {
		for _, replica := range copies.Items {
			replicated = append(replicated, replica.Namespace+"/"+replica.Name)
		}
	}
	if remotes != nil {
		for _, cluster := range remotes.Items {
			peered = append(peered, cluster.Name)
		}
	}
	return slices.Concat(
		holding("moves", "kubectl delete volumemoves -A --all ends them", moving),
		holding("replicas", "kubectl delete volumereplicas -A --all removes them, with their copies", replicated),
		holding("volumes", "delete their claims, with their data; kubectl patch pv NAME -p "+
			`'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}' before that keeps it`, data),
		holding("claims that wait for a volume", "delete them", waiting),
		holding("claims in "+storageNamespace, "they go with those volumes", twins),
		holding("remote clusters", "kubectl lodestone unpeer NAME --remote-context CONTEXT", peered)), nil
}

// holdsInRemote lists what depends on the agent in a remote cluster.
func (t *target) holdsInRemote(ctx context.Context) ([]string, error) {
	homes, err := t.Remote.HomeClusters().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list homeclusters", err)
	}
	requests, err := t.Remote.NamespaceRequests("").List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list namespacerequests", err)
	}
	shadows, err := t.Remote.ShadowPods("").List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, t.Explain("list shadowpods", err)
	}
	claims, err := t.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, t.Explain("list persistentvolumeclaims", err)
	}
	var served, requested, pods, data []string
	if homes != nil {
		for _, home := range homes.Items {
			served = append(served, home.Name)
		}
	}
	if requests != nil {
		for _, request := range requests.Items {
			requested = append(requested, request.Namespace+"/"+request.Name)
		}
	}
	if shadows != nil {
		for _, shadow := range shadows.Items {
			pods = append(pods, shadow.Namespace+"/"+shadow.Name)
		}
	}
	for _, claim := range claims.Items {
		// In a cluster that is a home, too, those of its own.
		if slices.Contains(claim.Finalizers, keys.BackingFinalizer) && claim.Namespace != storageNamespace {
			data = append(data, claim.Namespace+"/"+claim.Name)
		}
	}
	const unpeer = "they go when the home cluster runs kubectl lodestone unpeer"
	return slices.Concat(holding("home clusters", "have each run kubectl lodestone unpeer, or kubectl delete homecluster NAME here, which "+
		"keeps its data", served), holding("namespace requests", unpeer, requested),
		holding("pods of home clusters", "delete them at home", pods),
		holding("claims of home clusters", "delete them at home, with their data", data)), nil
}

// sayWhoStillAsks names the control-plane nodes whose kube-scheduler asks an extender that is gone.
func (t *target) sayWhoStillAsks(ctx context.Context) error {
	pods, err := t.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-scheduler"})
	if err != nil {
		return t.Explain("list pods -n kube-system", err)
	}
	var nodes []string
	for _, pod := range pods.Items {
		if pod.Annotations[stamp] != "" {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	if len(nodes) > 0 {
		t.Say("kube-scheduler still asks the extender on %s: on each of these nodes copy /%s to /%s (docs/install.md#remove, step 5)",
			strings.Join(nodes, ", "), lodestonePath+"/"+beforeFile, manifestPath)
	}
	return nil
}

// removeAll removes objects in the reverse order of their making, programs first, and the record at last.
func (t *target) removeAll(ctx context.Context, had []reference, remote bool) error {
	programs, others := []reference{}, []reference{}
	for _, r := range slices.Backward(had) {
		switch r.kind.Kind {
		case "Deployment", "DaemonSet", "Job", "CronJob":
			programs = append(programs, r)
		default:
			others = append(others, r)
		}
	}
	for _, r := range programs {
		if err := t.remove(ctx, r); err != nil {
			return err
		}
	}
	namespace := namespaceOf(remote)
	// Policies confine programs: they go after the last of these.
	err := t.Await(ctx, "the end of the programs", func(ctx context.Context) (string, bool, error) {
		pods, err := t.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=lodestone"})
		if err != nil {
			return "", false, t.Explain("list pods -n "+namespace, err)
		}
		return fmt.Sprintf("%d pods", len(pods.Items)), len(pods.Items) == 0, nil
	})
	if err != nil {
		return err
	}
	// The namespace with the record goes last, so that a run that was stopped is found by the next one.
	last := slices.IndexFunc(others, func(r reference) bool { return r.kind.Kind == "Namespace" && r.name == namespace })
	for i, r := range others {
		if i != last {
			if err := t.delete(ctx, r); err != nil {
				return err
			}
		}
	}
	for i, r := range others {
		if i != last {
			if err := t.awaitGone(ctx, r); err != nil {
				return err
			}
		}
	}
	if last >= 0 {
		return t.remove(ctx, others[last])
	}
	return t.remove(ctx, reference{kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), namespace: namespace, name: recordName})
}
