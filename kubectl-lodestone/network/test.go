package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// deployed is the name of the network program's DaemonSet.
const deployed = "lodestone-network"

// firstAnswer is how long a pod waits for a first answer: gateways have to hear of the new pods.
const firstAnswer = 15 * time.Second

// options are the flags of a test.
type options struct {
	output  cli.Output
	to      string
	image   string
	timeout time.Duration
}

// end is a cluster in which a pod tries the way to that of another one.
type end struct {
	name string
	// remote is nil for home.
	remote *v1alpha1.RemoteCluster
	pod    *corev1.Pod
}

func testCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "test remotecluster/NAME",
		Short: "Try with a pod on each side whether pods reach each other",
		Long: `Test makes a pod at home, or in the remote cluster that --to names, and one in a remote
cluster, in the namespace of -n, which has to be offloaded. Each sends UDP packets of 64,
850, 1400 and 9000 bytes and opens TCP connections that carry 64 bytes and 128 KiB, to
the other one and back, and sees whether the other one was reached from its own address.
The pods are deleted again in any case.

It ends with 0 if all of it came through, and else says in one sentence what is wrong.`,
		Example: `  kubectl lodestone network test west -n shop

  # Between two remote clusters
  kubectl lodestone network test west --to east -n shop

  # With an image that the remote cluster can pull
  kubectl lodestone network test west -n shop --image registry.example.com/lodestone-network:v1.0.0`,
		Args:              cli.TakesOne(cli.RemoteCluster),
		ValidArgsFunction: cli.CompleteReferences(flags, true, []cli.Kind{cli.RemoteCluster}, cli.RemoteCluster),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, cli.RemoteCluster)
			if err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
			}
			if o.timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 3m")
			}
			if o.to == named.Name {
				return cli.Misuse("--to=%s is the cluster itself: give home, or another remote cluster", o.to)
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			return o.run(ctx, home, streams, namespace, named.Name)
		},
	}
	o.output.Add(command, "all that was tried, for programs; default: a table", cli.JSON, cli.YAML)
	command.Flags().StringVar(&o.to, "to", keys.Home, "the other cluster: home, or another remote one")
	cli.CompleteFlag(command, flags, "to", cli.Clusters)
	command.Flags().StringVar(&o.image, "image", "", "image of lodestone-network that both pods run; default: that which runs at home")
	command.Flags().DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long to wait until all is tried")
	return command
}

func (o *options) run(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, namespace, name string) (err error) {
	ends := []*end{{name: o.to}, {name: name}}
	for _, e := range ends {
		if e.name == keys.Home {
			continue
		}
		if e.remote, err = joined(ctx, home, e.name); err != nil {
			return err
		}
	}
	if err := together(ends[0], ends[1]); err != nil {
		return err
	}
	if err := offloaded(ctx, home, namespace); err != nil {
		return err
	}
	image := o.image
	if image == "" {
		if image, err = imageOf(ctx, home); err != nil {
			return err
		}
	}
	reporter := cli.Reporter{Out: streams.ErrOut}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx), home, reporter, ends)) }()
	for _, e := range ends {
		pod, err := home.Client.CoreV1().Pods(namespace).Create(ctx, podOf(namespace, image, e.name), metav1.CreateOptions{})
		if err != nil {
			return home.Explain(fmt.Sprintf("create a pod in namespace %q", namespace), err)
		}
		e.pod = pod
	}
	for _, e := range ends {
		if e.pod, err = ready(ctx, home, reporter, e.pod, e.name); err != nil {
			return err
		}
	}
	trial := Trial{Cluster: name, Other: o.to, Namespace: namespace}
	if trial.Ways, err = both(ctx, home, ends[0], ends[1]); err != nil {
		return err
	}
	trial.Problem = wrong(trial.Ways, unready(ends))
	trial.Works = trial.Problem == ""
	if o.output.IsObject() {
		err = o.output.Write(streams.Out, trial)
	} else {
		err = cli.PrintTable(streams.Out, trialTable(trial), false)
	}
	switch {
	case err != nil:
		return err
	case !trial.Works:
		return errors.New(trial.Problem)
	case o.output.IsObject():
		return nil
	}
	_, err = fmt.Fprintf(streams.Out, "\nPods %s and %s reach each other.\n", where(o.to), where(name))
	return err
}

// unready is why the condition NetworkReady of a cluster is not True, empty if it is or there is none.
func unready(ends []*end) string {
	for _, e := range ends {
		if e.remote == nil {
			continue
		}
		c := meta.FindStatusCondition(e.remote.Status.Conditions, v1alpha1.NetworkReady)
		if c != nil && c.Status != metav1.ConditionTrue {
			return sentence.Plain(c.Message, 512)
		}
	}
	return ""
}

// where says in which cluster something is.
func where(cluster string) string {
	if cluster == keys.Home {
		return "at home"
	}
	return "in cluster " + cluster
}

// together returns an error unless pods of two clusters are meant to reach each other. Each of them and home are.
func together(a, b *end) error {
	if a.remote == nil || b.remote == nil {
		return nil
	}
	through := func(e *end) bool {
		return e.remote.Spec.PodNetwork == v1alpha1.Fabric && e.remote.Spec.PodTransit.Passes()
	}
	routed := func(e *end) bool { return e.remote.Spec.PodNetwork == v1alpha1.Routed }
	if through(a) && through(b) || routed(a) && routed(b) {
		return nil
	}
	return fmt.Errorf("pods in clusters %s and %s are not meant to reach each other: set spec.podTransit of both RemoteClusters, whose "+
		"podNetwork is Fabric, to %s or %s", b.name, a.name, v1alpha1.TransitEnabled, v1alpha1.TransitDirect)
}

// joined returns the RemoteCluster if pods of it and of home are meant to reach each other.
func joined(ctx context.Context, home *cli.Cluster, name string) (*v1alpha1.RemoteCluster, error) {
	remote, err := home.Remotes.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, home.Missing(ctx, cli.RemoteCluster, "", name)
	case err != nil:
		return nil, home.Explain("get RemoteCluster "+name, err)
	case !remote.Spec.PodNetwork.Joined():
		return nil, fmt.Errorf("pods of home and of cluster %s are not meant to reach each other, since podNetwork of the RemoteCluster is %s: "+
			"repeat kubectl lodestone peer with --pod-network Fabric", name, cmp.Or(remote.Spec.PodNetwork, v1alpha1.Isolated))
	}
	return remote, nil
}

// offloaded returns an error if pods of a namespace cannot be in remote clusters. Of one that the user may not read nothing is known.
func offloaded(ctx context.Context, home *cli.Cluster, name string) error {
	namespace, err := home.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return home.Missing(ctx, cli.Namespace, "", name)
	case err != nil:
		return home.Explain(fmt.Sprintf("get namespace %q", name), err)
	case namespace.Labels[keys.Offload] != keys.OffloadEnabled:
		return fmt.Errorf("pods of namespace %q reach no other cluster, since it is not offloaded: name one that is with -n, or run "+
			"kubectl label namespace %s %s=%s", name, name, keys.Offload, keys.OffloadEnabled)
	}
	return nil
}

// imageOf returns the image of the network program at home.
func imageOf(ctx context.Context, home *cli.Cluster) (string, error) {
	set, err := home.Client.AppsV1().DaemonSets(keys.NetworkNamespace).Get(ctx, deployed, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("the network program, whose image the pods run, is not installed in the cluster of context %q: install it, or "+
			"give --image", home.Context)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("you may not read which image the network program has in the cluster of context %q: give --image (%w)",
			home.Context, err)
	case err != nil:
		return "", home.Explain("get the DaemonSet of the network program", err)
	}
	return set.Spec.Template.Spec.Containers[0].Image, nil
}

func ready(ctx context.Context, home *cli.Cluster, reporter cli.Reporter, pod *corev1.Pod, cluster string) (*corev1.Pod, error) {
	where := where(cluster)
	err := reporter.Await(ctx, fmt.Sprintf("pod %s %s", pod.Name, where), func(ctx context.Context) (string, bool, error) {
		latest, err := home.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, home.Explain("get pod "+pod.Name, err)
		}
		state, done := stateOf(latest)
		if latest.Status.Phase == corev1.PodFailed {
			return "", false, fmt.Errorf("pod %s %s failed: %s", pod.Name, where, state)
		}
		pod = latest
		return state, done, nil
	})
	return pod, err
}

// both tries both directions at once.
func both(ctx context.Context, home *cli.Cluster, a, b *end) ([]Way, error) {
	atA, err := b.reaches(a.pod.Status.PodIP)
	if err != nil {
		return nil, err
	}
	atB, err := a.reaches(b.pod.Status.PodIP)
	if err != nil {
		return nil, err
	}
	ways := []Way{{From: a.name, To: b.name, FromAddress: atA, ToAddress: atB}, {From: b.name, To: a.name, FromAddress: atB, ToAddress: atA}}
	done := make(chan error)
	for i, e := range []*end{a, b} {
		go func() {
			results, err := check(ctx, home, e.pod, ways[i], firstAnswer)
			ways[i].Results = results
			done <- err
		}()
	}
	return ways, errors.Join(<-done, <-done)
}

// reaches is the address by which pods in the cluster reach one elsewhere, from that by which home does, which its pod at home has.
func (e *end) reaches(pod string) (string, error) {
	if e.remote == nil {
		return pod, nil
	}
	translations, err := remotecluster.ParseTranslations(e.remote.Spec.HomePodTranslations)
	if err != nil {
		return "", fmt.Errorf("spec.homePodTranslations of RemoteCluster %s cannot be used: %w", e.name, err)
	}
	own, err := netip.ParseAddr(pod)
	if err != nil {
		return "", fmt.Errorf("a pod has no address: %w", err)
	}
	as, ok := translations.Reached(own)
	if !ok {
		return "", fmt.Errorf("from cluster %s another pod is reached by %s, the address of the pod that was made: give another range in "+
			"spec.homePodTranslations of the RemoteCluster", e.name, pod)
	}
	return as.String(), nil
}

// remove deletes the pods and waits until they are gone.
func remove(ctx context.Context, home *cli.Cluster, reporter cli.Reporter, ends []*end) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, e := range ends {
		pod := e.pod
		if pod == nil {
			continue
		}
		client := home.Client.CoreV1().Pods(pod.Namespace)
		err := client.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%w; delete pod %s of namespace %q by hand", home.Explain("delete a pod", err), pod.Name, pod.Namespace))
			continue
		}
		errs = append(errs, reporter.Await(ctx, fmt.Sprintf("the end of pod %s", pod.Name), func(ctx context.Context) (string, bool, error) {
			latest, err := client.Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && latest.UID != pod.UID {
				return "", true, nil
			}
			return "", false, home.Explain("get pod "+pod.Name, err)
		}))
	}
	return errors.Join(errs...)
}

func trialTable(trial Trial) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("From", false), cli.Column("To", false), cli.Column("Protocol", false), cli.Column("Bytes", false),
		cli.Column("Result", false), cli.Column("Time", false),
	}}
	for _, way := range trial.Ways {
		for _, r := range way.Results {
			result := "ok"
			if r.Problem != "" {
				result = "failed"
			}
			table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{way.From, way.To, r.Protocol, r.Bytes, result, took(r.Microseconds)}})
		}
	}
	return table
}
