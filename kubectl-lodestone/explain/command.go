package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// readTimeout limits all reads for one answer together, listTimeout those for a list.
const readTimeout, listTimeout = 30 * time.Second, 2 * time.Minute

// kinds are those of which it can be asked why they wait.
var kinds = append([]cli.Kind{cli.Pod, cli.Claim, cli.Namespace}, workloads...)

// workloads make pods.
var workloads = []cli.Kind{cli.Deployment, cli.StatefulSet, cli.ReplicaSet, cli.DaemonSet, cli.Job}

// asking is one run of the command.
type asking struct {
	streams   genericiooptions.IOStreams
	lodestone string
	scope     cli.Scope
	output    cli.Output
}

// New returns the command why.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	a := &asking{streams: streams}
	command := &cobra.Command{
		Use:   "why [pod/NAME | pvc/NAME | namespace/NAME | WORKLOAD/NAME | pods | pvcs]",
		Short: "Say in one sentence why a pod or a claim waits",
		Long: `Why says first why a pod, a claim or the pods of a workload wait, then the facts: the
conditions and events of the pod and of its claims, who refused these until when, what
the remote cluster says, and what Lodestone's extender told the scheduler. Of a
namespace that is being deleted it says what it waits for. What you may not read is
left out.

Without a name it lists the pods and claims of the namespace that wait, or with -A
those of all, each with its sentence, and with -o wide the facts; with pods or pvcs
only these.`,
		Example: `  # Why does web-1 of namespace shop not run?
  kubectl lodestone why pod/web-1 -n shop

  # Why is claim data-web-1 pending, why do pods of Deployment web wait?
  kubectl lodestone why pvc/data-web-1 -n shop
  kubectl lodestone why deploy web -n shop

  # What waits at all?
  kubectl lodestone why -A`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := parse(cmd, args)
			return err
		},
		ValidArgsFunction: cli.CompleteReferences(flags, true, nil, kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.output.Check(); err != nil {
				return err
			}
			if err := a.scope.Check(); err != nil {
				return err
			}
			named, listed, err := parse(cmd, args)
			switch {
			case err != nil:
				return err
			case named.Name != "" && a.scope.Given():
				return cli.Misuse("%s/%s names one object, and -A and -l list several: leave one or the other out", named.Kind, named.Name)
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			g := &Gatherer{Home: home, Lodestone: a.lodestone}
			if named.Name != "" {
				ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
				defer cancel()
				answer, err := g.Answer(ctx, namespace, named)
				if err != nil {
					return err
				}
				return a.write(named, answer)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			return a.list(ctx, g, a.scope.In(namespace), listed)
		},
	}
	a.output.Add(command, "the facts of a list, too; for programs; or names of what waits. Default: text",
		cli.Wide, cli.JSON, cli.YAML, cli.Name)
	command.Flags().StringVar(&a.lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	a.scope.Add(command, "the pods and claims")
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	return command
}

// parse returns the object that arguments name, or the kinds of which those that wait are listed. It is pure.
func parse(cmd *cobra.Command, args []string) (named cli.Reference, listed []cli.Kind, err error) {
	switch {
	case len(args) == 0:
		return named, []cli.Kind{cli.Pod, cli.Claim}, nil
	case len(args) == 1 && (cli.KindOf(args[0]) == cli.Pod || cli.KindOf(args[0]) == cli.Claim):
		return named, []cli.Kind{cli.KindOf(args[0])}, nil
	}
	named, err = cli.OneReference(cmd, args, kinds...)
	return named, nil, err
}

func (a *asking) write(named cli.Reference, answer why.Answer) error {
	switch {
	case a.output.IsObject():
		return a.output.Write(a.streams.Out, answer)
	case a.output.Format == cli.Name && !answer.Waiting:
		return nil
	case a.output.Format == cli.Name:
		_, err := fmt.Fprintf(a.streams.Out, "%s/%s\n", named.Kind, named.Name)
		return err
	}
	text := answer.Sentence + "\n"
	for _, fact := range answer.Facts {
		text += "  " + fact + "\n"
	}
	_, err := io.WriteString(a.streams.Out, text)
	return err
}

// Waits is a pod or a claim that waits.
type Waits struct {
	Kind      cli.Kind `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	why.Answer
}

// mostListed is how many pods and claims are explained at once: each costs some requests.
const mostListed = 100

func (a *asking) list(ctx context.Context, g *Gatherer, namespace string, listed []cli.Kind) error {
	found, omitted, err := g.Waiting(ctx, namespace, a.scope.Options(), listed)
	if err != nil {
		return err
	}
	if a.output.IsObject() {
		return a.output.Write(a.streams.Out, map[string]any{"items": found, "omitted": omitted})
	}
	if a.output.Format == cli.Name {
		for _, one := range found {
			if _, err := fmt.Fprintf(a.streams.Out, "%s/%s\n", one.Kind, one.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if len(found) == 0 && omitted == 0 {
		where := fmt.Sprintf("in namespace %q: give -A for all namespaces", namespace)
		if namespace == metav1.NamespaceAll {
			where = "in any namespace"
		} else if err := g.Home.RequireNamespace(ctx, namespace); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.streams.Out, "nothing waits %s\n", where)
		return err
	}
	if len(found) > 0 {
		if err := table(a.streams.Out, found, a.output.Format == cli.Wide); err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
	}
	if omitted > 0 {
		_, err = fmt.Fprintf(a.streams.Out, "and up to %d more, which were not looked at: give -n or -l to see those\n", omitted)
	}
	return err
}

// table writes what waits, a line each; wide writes the facts below.
func table(out io.Writer, found []Waits, wide bool) error {
	columns := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(columns, "NAMESPACE\tNAME\tWHY")
	for _, one := range found {
		fmt.Fprintf(columns, "%s\t%s/%s\t%s\n", one.Namespace, one.Kind, one.Name, one.Sentence)
		for _, fact := range one.Facts {
			if wide {
				fmt.Fprintf(columns, "\t\t  %s\n", fact)
			}
		}
	}
	return columns.Flush()
}

// Waiting returns the pods and claims of a namespace, or of all, that wait, and how many were not looked at.
func (g *Gatherer) Waiting(ctx context.Context, namespace string, options metav1.ListOptions,
	listed []cli.Kind) (found []Waits, omitted int, err error) {
	found = []Waits{}
	var candidates []Waits
	if slices.Contains(listed, cli.Pod) {
		pods, err := g.Home.Client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, 0, g.Home.Explain("list pods", err)
		}
		for i := range pods.Items {
			if PodMayWait(&pods.Items[i]) {
				candidates = append(candidates, Waits{Kind: cli.Pod, Namespace: pods.Items[i].Namespace, Name: pods.Items[i].Name})
			}
		}
	}
	if slices.Contains(listed, cli.Claim) {
		claims, err := g.Home.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, options)
		if err != nil {
			return nil, 0, g.Home.Explain("list persistentvolumeclaims", err)
		}
		going, err := g.goingVolumes(ctx)
		if err != nil {
			return nil, 0, err
		}
		for i := range claims.Items {
			if ClaimMayWait(&claims.Items[i]) || going[claims.Items[i].Spec.VolumeName] {
				candidates = append(candidates, Waits{Kind: cli.Claim, Namespace: claims.Items[i].Namespace, Name: claims.Items[i].Name})
			}
		}
	}
	slices.SortFunc(candidates, func(a, b Waits) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
	for i, one := range candidates {
		if i == mostListed {
			return found, len(candidates) - i, nil
		}
		answer, is, err := g.Find(ctx, one.Namespace, cli.Reference{Kind: one.Kind, Name: one.Name})
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return found, len(candidates) - i, nil // what was found is of use
		case err != nil:
			return nil, 0, err
		case is && answer.Waiting: // one that is gone meanwhile does not wait
			one.Answer = answer
			found = append(found, one)
		}
	}
	return found, 0, nil
}

// goingVolumes returns the volumes that somebody has deleted. It is no error if the user may not list volumes.
func (g *Gatherer) goingVolumes(ctx context.Context) (map[string]bool, error) {
	volumes, err := g.Home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if ok, err := g.read("list persistentvolumes", err); !ok {
		return nil, err
	}
	going := map[string]bool{}
	for _, volume := range volumes.Items {
		going[volume.Name] = volume.DeletionTimestamp != nil
	}
	return going, nil
}

// PodMayWait reports whether what is written on a pod gives reason to explain it.
func PodMayWait(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return pod.Status.Phase != corev1.PodSucceeded || pod.DeletionTimestamp != nil
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue
	})
}

// ClaimMayWait reports whether what is written on a claim gives reason to explain it. Another reason is that its volume is being deleted.
func ClaimMayWait(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound || claim.Annotations[keys.Move] == keys.NoMove ||
		len(claim.Status.Conditions) > 0
}
