package move

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

func statusCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var scope cli.Scope
	command := &cobra.Command{
		Use:   "status [pvc/NAME | volumemove/NAME]",
		Short: "Show how far moves are",
		Long: `Status lists the moves of a namespace, or one, named by itself or by a claim that it
moves: the phase, what is done of it, how fast, what it waits for and, of one, what it
begins with, if something is at the target already, and how its data travels.`,
		Example: `  # How far is the move of claim data?
  kubectl lodestone move status data -n shop

  # All moves, with where they come from and how long pods stood still
  kubectl lodestone move status -A -o wide`,
		Args:              named.OneOrAll,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return named.Show(cmd.Context(), flags, streams.Out, output, scope, args,
				func(_ *cli.Cluster, _ string, moves []v1alpha1.VolumeMove) error {
					err := table(streams.Out, moves, scope.Everywhere, output.Format == cli.Wide, time.Now())
					if err != nil || len(args) == 0 {
						return err
					}
					return writeDetails(streams.Out, &moves[0])
				})
		},
	}
	named.ShowFlags(command, &output, &scope)
	return command
}

// table lists moves, the latest last: with namespaces if they are of several, and with more columns if wide.
func table(out io.Writer, moves []v1alpha1.VolumeMove, namespaces, wide bool, now time.Time) error {
	slices.SortFunc(moves, func(a, b v1alpha1.VolumeMove) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(namespace, name, claims, source, target, age, down, state string) {
		cells := []string{name, claims, target, age, state}
		if wide {
			cells = []string{name, claims, source, target, age, down, state}
		}
		if namespaces {
			cells = slices.Insert(cells, 0, namespace)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("NAMESPACE", "NAME", "CLAIMS", "SOURCE", "TARGET", "AGE", "DOWN", "STATE")
	for i := range moves {
		move := &moves[i]
		row(move.Namespace, move.Name, strings.Join(move.Spec.Claims, ","), sourceOf(move), move.Spec.Target.Cluster+move.Spec.Target.Node,
			duration.HumanDuration(now.Sub(move.CreationTimestamp.Time)), downOf(move.Status, now), progressLine(move, now))
	}
	return w.Flush()
}

// sourceOf returns the cluster that the data comes from.
func sourceOf(move *v1alpha1.VolumeMove) string {
	for _, claim := range move.Status.Claims {
		if claim.Source != nil {
			return claim.Source.Cluster
		}
	}
	return "<unknown>"
}

// downOf says for how long pods could not use the claims.
func downOf(status v1alpha1.VolumeMoveStatus, now time.Time) string {
	switch {
	case status.DownSince != nil:
		return "since " + duration.HumanDuration(now.Sub(status.DownSince.Time))
	case status.Downtime != nil:
		return status.Downtime.Round(10 * time.Millisecond).String()
	}
	return cli.None
}

// writeDetails writes what one move says of what it begins with, and how its data travels.
func writeDetails(out io.Writer, move *v1alpha1.VolumeMove) error {
	accepted := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.MoveAccepted)
	if accepted != nil && accepted.Status == metav1.ConditionTrue && accepted.Message != "" {
		if _, err := fmt.Fprintln(out, accepted.Message); err != nil {
			return err
		}
	}
	return writeRoutes(out, move)
}

// writeRoutes writes one sentence for each claim: by which route its data travels, or travelled,
// and why not directly.
func writeRoutes(out io.Writer, move *v1alpha1.VolumeMove) error {
	for _, claim := range move.Status.Claims {
		var text string
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			text = "directly from mover to mover"
		case v1alpha1.TransportSpliced:
			text = "through the provisioner"
			if legs := claim.Legs; legs != nil {
				text += fmt.Sprintf(", which reaches the mover at the source %s and the one at the target %s", legText(legs.Source),
					legText(legs.Target))
			}
			if claim.TransportMessage != "" {
				text += ": " + claim.TransportMessage
			}
		default: // not connected yet
			continue
		}
		if claim.Repository != "" {
			text = fmt.Sprintf("through the repository of cluster %s (%s so far), and the rest %s", claim.Repository,
				sentence.Size(claim.Stored), text)
		}
		if _, err := fmt.Fprintf(out, "the data of claim %s travels %s\n", claim.Name, text); err != nil {
			return err
		}
	}
	return nil
}

// routeSuffix returns in a few words the route of a move's data, for the end of a line; empty where
// it is not known.
func routeSuffix(status v1alpha1.VolumeMoveStatus) string {
	text := ""
	for _, claim := range status.Claims {
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			if text == "" {
				text = "  direct"
			}
		case v1alpha1.TransportSpliced:
			text = "  through the provisioner"
		default: // not connected yet
		}
		if claim.Repository != "" && claim.Transport != "" {
			text = "  through a repository"
		}
	}
	return text
}

func legText(leg v1alpha1.MoveLeg) string {
	switch leg {
	case v1alpha1.LegAddress:
		return "at its address"
	case v1alpha1.LegAPIServer:
		return "through the API server"
	default:
		return "in a way that is not known yet"
	}
}
