package status

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// readTimeout limits all reads together.
const readTimeout = time.Minute

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var lodestone string
	var scope cli.Scope
	var names []string
	command := &cobra.Command{
		Use:   "status [remotecluster/NAME...]",
		Short: "Show the remote clusters, and why pods and claims wait",
		Long: `Status shows each remote cluster: whether it is Ready and why not, its version,
what its virtual nodes offer, how many volumes and pods of home it holds, and its
storage classes. Then it shows how old second copies of claims are, and says in one
sentence each why pods and claims that have to do with remote clusters wait: those of
all namespaces, or with -n of one, or with -l those with some labels. What you may not
read is left out.

With names of clusters it shows these alone, and not what waits.`,
		Example: `  kubectl lodestone status
  # One cluster
  kubectl lodestone status west
  # With credentials and heartbeats
  kubectl lodestone status -o wide
  # For programs
  kubectl lodestone status -o json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			names, err = cli.RemoteClusters(args)
			return err
		},
		ValidArgsFunction: cli.CompleteReferences(flags, false, []cli.Kind{cli.RemoteCluster}, cli.RemoteCluster),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if err := scope.Check(); err != nil {
				return err
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			r := &reading{home: home, lodestone: lodestone}
			shown := only{namespace: scope.In(*flags.Namespace), labels: scope.Labels()}
			if shown.namespace != "" {
				if err := home.RequireNamespace(ctx, shown.namespace); err != nil {
					return err
				}
			}
			status, err := r.status(ctx, shown)
			if err != nil {
				return err
			}
			for _, name := range names {
				known := slices.ContainsFunc(status.Clusters, func(c Cluster) bool { return c.Name == name })
				if !known && !slices.Contains(status.Unread, remoteClusters) {
					return home.Missing(ctx, cli.RemoteCluster, "", name)
				}
			}
			if len(names) > 0 {
				status.limitTo(names)
				status.Notes = notes(status, time.Now())
			}
			if len(r.unread) > 0 {
				fmt.Fprintf(streams.ErrOut, "note: left out what you may not read: %s\n", strings.Join(r.unread, ", "))
			}
			return write(streams, output, status)
		},
	}
	output.Add(command, "more columns, all that is known, or names; default: a table", cli.Wide, cli.JSON, cli.YAML, cli.Name)
	scope.Add(command, "the claims, pods, moves and replicas")
	command.Flags().StringVar(&lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	return command
}

func (r *reading) status(ctx context.Context, shown only) (Status, error) {
	if err := installed(r.home); err != nil {
		return Status{}, err
	}
	f, err := r.read(ctx, shown.namespace)
	if err != nil {
		return Status{}, err
	}
	now := time.Now()
	status := f.status(shown, now)
	status.addUnknown(slices.Contains(r.unread, remoteClusters))
	// Users who may not get namespace kube-system see no ID.
	status.HomeID, _ = r.home.HomeID(ctx, r.lodestone)
	status.Waiting, status.Omitted, err = r.waiting(ctx, f, shown)
	status.Unread, status.Notes = r.unread, notes(status, now)
	return status, err
}

// installed returns an error for a cluster without Lodestone.
func installed(home *cli.Cluster) error {
	served, err := home.Serves("lodestone.dev/v1alpha1", "remoteclusters")
	if err == nil && !served {
		err = home.NotInstalled()
	}
	return err
}

func write(streams genericiooptions.IOStreams, output cli.Output, status Status) error {
	switch {
	case output.IsObject():
		return output.Write(streams.Out, status)
	case output.Format != cli.Name:
		return tables(streams.Out, status, output.Format == cli.Wide, time.Now())
	}
	for _, c := range status.Clusters {
		if _, err := fmt.Fprintln(streams.Out, "remotecluster.lodestone.dev/"+c.Name); err != nil {
			return err
		}
	}
	return nil
}

// tables prints a status for people; wide shows all columns.
func tables(out io.Writer, status Status, wide bool, now time.Time) error {
	if len(status.Clusters) == 0 {
		text := "There are no remote clusters: kubectl lodestone peer --help says how to get one."
		if slices.Contains(status.Unread, remoteClusters) {
			text = "You may not read which remote clusters there are."
		}
		if _, err := fmt.Fprintln(out, text); err != nil || len(status.Waiting)+len(status.Replicas) == 0 {
			return err
		}
	} else if err := cli.PrintTable(out, clusterTable(status.Clusters, now), wide); err != nil {
		return err
	}
	var lines []string
	for _, c := range status.Clusters {
		if !c.Ready {
			lines = append(lines, c.Name+": "+c.Message)
		}
		for _, n := range c.Nodes {
			if !n.Ready && c.Ready {
				lines = append(lines, "node "+n.Name+": "+n.Message)
			}
		}
	}
	lines = append(lines, notes(status, now)...)
	for i, line := range lines {
		if i == 0 {
			line = "\n" + line
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	if err := replicaTable(out, status.Replicas, wide, now); err != nil || len(status.Waiting) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if err := cli.PrintTable(out, waitingTable(status.Waiting), wide); err != nil {
		return err
	}
	if status.Omitted > 0 {
		_, err := fmt.Fprintf(out, "and up to %d more: kubectl lodestone why -A lists them\n", status.Omitted)
		return err
	}
	return nil
}

// troubles says what is wrong with volumes.
func troubles(clusters []Cluster) []string {
	var lines []string
	for _, c := range clusters {
		if c.VolumeHealth == nil {
			continue
		}
		for _, t := range c.VolumeHealth.Troubles {
			lines = append(lines, fmt.Sprintf("%s: %s: volumes: %d; kubectl lodestone why pvc -A says of each what to do", c.Name, t.Reason,
				t.Volumes))
		}
	}
	return lines
}

func clusterTable(clusters []Cluster, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Name", false), cli.Column("Ready", false), cli.Column("Reason", false), cli.Column("Version", false),
		cli.Column("Nodes", false),
		cli.Column("CPU", false), cli.Column("Memory", false), cli.Column("Volumes", false), cli.Column("Pods", false),
		cli.Column("Classes", false),
		cli.Column("Login", true), cli.Column("Expires", true), cli.Column("Heartbeat", true),
	}}
	for _, c := range clusters {
		ready, up := "False", 0
		if c.Ready {
			ready = "True"
		}
		cpu, memory := resource.Quantity{}, resource.Quantity{}
		var heartbeat *metav1.Time
		for _, n := range c.Nodes {
			if n.Ready {
				up++
			}
			cpu.Add(n.Allocatable[corev1.ResourceCPU])
			memory.Add(n.Allocatable[corev1.ResourceMemory])
			if n.Heartbeat != nil && (heartbeat == nil || heartbeat.Before(n.Heartbeat)) {
				heartbeat = n.Heartbeat
			}
		}
		login, expires := "<unknown>", "<unknown>"
		if c.Credentials != nil {
			login, expires = c.Credentials.Kind, "never"
			if c.Credentials.Expires != nil {
				expires = until(c.Credentials.Expires.Sub(now))
			}
		}
		beat := cli.None
		if heartbeat != nil {
			beat = duration.HumanDuration(now.Sub(heartbeat.Time)) + " ago"
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			c.Name, ready, c.Reason, cli.OrNone(c.KubernetesVersion), fmt.Sprintf("%d/%d", up, len(c.Nodes)),
			amount(cpu), amount(memory), c.Volumes, c.Pods, cli.OrNone(strings.Join(c.StorageClasses, ",")),
			login, expires, beat,
		}})
	}
	return table
}

func waitingTable(waiting []Waiting) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Namespace", false), cli.Column("Kind", false), cli.Column("Name", false), cli.Column("Why", false),
	}}
	for _, w := range waiting {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{w.Namespace, w.Kind, w.Name, w.Why}})
	}
	return table
}

func amount(q resource.Quantity) string {
	if q.IsZero() {
		return cli.None
	}
	return q.String()
}

func until(left time.Duration) string {
	if left <= 0 {
		return "ended"
	}
	return "in " + duration.HumanDuration(left)
}
