package replicate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

func statusCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var scope cli.Scope
	command := &cobra.Command{
		Use:   "status [pvc/NAME | volumereplica/NAME]",
		Short: "Show how old the copies are",
		Long: `Status lists the VolumeReplicas of a namespace, or one, named by itself or by its claim:
where the data and the copy are, the newest sealed version, how old that is and may be,
what is wrong, and which claims were made from versions (failover --test).`,
		Example: `  # How old is the copy of claim data?
  kubectl lodestone replicate status data -n shop

  # All copies, with their classes, how many versions there are and what was sent
  kubectl lodestone replicate status -A -o wide`,
		Args:              named.OneOrAll,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Show(cmd.Context(), flags, streams.Out, output, scope, args,
				func(home *cli.Cluster, namespace string, all []v1alpha1.VolumeReplica) error {
					if err := show(streams.Out, all, scope.Everywhere, output.Format == cli.Wide, time.Now()); err != nil {
						return err
					}
					// Whoever may not list claims sees the copies.
					claims, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).List(cmd.Context(), metav1.ListOptions{})
					if err != nil {
						return nil //nolint:nilerr // As said above.
					}
					return showDrills(streams.Out, all, claims.Items)
				})
		},
	}
	named.ShowFlags(command, &output, &scope)
	return command
}

// show prints VolumeReplicas as a table, and below it what is wrong with each.
func show(out io.Writer, all []v1alpha1.VolumeReplica, namespaces, wide bool, now time.Time) error {
	var copies []replica.Copy
	for i := range all {
		copies = append(copies, replica.Of(&all[i], now))
	}
	slices.SortFunc(copies, func(a, b replica.Copy) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if err := cli.PrintTable(out, Table(copies, namespaces, now), wide); err != nil {
		return err
	}
	first := true
	for _, c := range copies {
		name := c.Name
		if namespaces {
			name = c.Namespace + "/" + name
		}
		for _, say := range []string{c.Message, c.CannotRun()} {
			gap := ""
			switch {
			case say == "":
				continue
			case first:
				gap, first = "\n", false
			}
			if _, err := fmt.Fprintf(out, "%s%s: %s\n", gap, name, say); err != nil {
				return err
			}
		}
	}
	return nil
}

// showDrills prints which claims were made from versions, as failover --test makes them.
func showDrills(out io.Writer, all []v1alpha1.VolumeReplica, claims []corev1.PersistentVolumeClaim) error {
	gap := "\n"
	for i := range claims {
		claim := &claims[i]
		of := claim.Spec.DataSourceRef
		if of == nil || of.Kind != named.Kind.Kind || ptr.Deref(of.APIGroup, "") != named.Kind.Group || !slices.ContainsFunc(all,
			func(r v1alpha1.VolumeReplica) bool { return r.Namespace == claim.Namespace && r.Name == of.Name }) {
			continue
		}
		version := "a version"
		if name := claim.Annotations[keys.ReplicaVersion]; name != "" {
			version = name
		}
		if _, err := fmt.Fprintf(out, "%sclaim %s/%s is made from %s of VolumeReplica %s\n", gap, claim.Namespace, claim.Name, version,
			of.Name); err != nil {
			return err
		}
		gap = ""
	}
	return nil
}

// Table shows copies, with their namespaces if they are of several.
func Table(copies []replica.Copy, namespaces bool, now time.Time) *metav1.Table {
	table := &metav1.Table{}
	if namespaces {
		table.ColumnDefinitions = append(table.ColumnDefinitions, cli.Column("Namespace", false))
	}
	for _, name := range []string{"Replica", "Claim", "Data", "Standby", "Version", "Lag", "RPO", "State"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, cli.Column(name, false))
	}
	for _, name := range []string{"Class", "Versions", "Consistency", "Runnable", "Sent", "Point"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, cli.Column(name, true))
	}
	for _, c := range copies {
		version, sent := "", ""
		if c.Sealed != nil {
			version, sent = fmt.Sprint(c.Version), sentence.Size(c.Sent)
		}
		cells := []any{c.Name, c.Names(), cli.OrNone(c.Primary), c.Standby, cli.OrNone(version), cli.OrNone(c.Lag(now)),
			replica.Short(c.RPO.Duration), c.Words(), cli.OrNone(c.Class), c.Versions, cli.OrNone(c.Consistency), cli.OrNone(c.Runnable),
			cli.OrNone(sent), cli.OrNone(c.Point)}
		if namespaces {
			cells = slices.Insert(cells, 0, any(c.Namespace))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return table
}
