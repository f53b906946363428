package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const long = `Move carries the volumes of claims to another cluster, node or real class while
their application runs, and stops it only for the last changes. The claims stay as
they are; pods that use them wait meanwhile, whoever owns them, and run at the target
afterwards. The copy is compared with the source before it is used; until then, and
for --keep-source-for after, the source stays as it was.

Claims that are named together, or that one pod uses, move together. The provisioner
does the work: ending this command ends nothing.`

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   "move PVC [PVC...] | move statefulset NAME",
		Short: "Move the volumes of claims to another cluster, node or class",
		Long:  long,
		Example: `  # Move the volume of claim data to cluster west
  kubectl lodestone move data -n shop --target-cluster west

  # Move all volumes of a StatefulSet home, replica by replica
  kubectl lodestone move statefulset db -n shop --target-cluster home

  # What would that do, and does anything forbid it?
  kubectl lodestone move data -n shop --target-cluster west --dry-run

  # Have a look at all moves, give one up
  kubectl lodestone move status -A
  kubectl lodestone move abort data -n shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return outcome.Misuse("say what to move: kubectl lodestone move PVC, or move statefulset NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := o.spec(); err != nil {
				return err
			}
			if err := checkOutput(o.Output); err != nil {
				return err
			}
			home, namespace, err := reach(flags)
			if err != nil {
				return err
			}
			sets, claims, err := parse(args)
			if err != nil {
				return err
			}
			r := &runner{Options: o, home: home, streams: streams, namespace: namespace}
			if sets == "" {
				return r.run(cmd.Context(), [][]string{claims})
			}
			r.set = true
			groups, err := ofStatefulSet(cmd.Context(), home, namespace, sets)
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), groups)
		},
	}
	o.flags(command.Flags())
	command.Flags().BoolVar(&o.Together, "together", false, "move the replicas of a StatefulSet at once, not one after another")
	command.Flags().StringVarP(&o.Output, "output", "o", "", "json: write the VolumeMove when it is done, also if it fails; those of a StatefulSet as one List")
	command.AddCommand(statusCommand(flags, streams), rollbackCommand(flags, streams), giveUpCommand(flags, streams),
		action(flags, streams, "abort", v1alpha1.ActionAbort, "End a move that is not committed: everything stays at the source",
			`Abort ends a move that is not committed. The claims keep the volumes that they have,
their pods run again, and the copy at the target is removed.`),
		action(flags, streams, "finalize", v1alpha1.ActionFinalize, "Remove the copy at the source of a move that is done, before its time",
			`Finalize removes the copy at the source of a move that is done, instead of keeping it
for the rest of --keep-source-for.`))
	return command
}

// parse tells a StatefulSet from claims; both may be written as kind/name.
func parse(args []string) (set string, claims []string, err error) {
	kinds := []string{"statefulset", "statefulsets", "sts"}
	if len(args) == 2 && slices.Contains(kinds, args[0]) {
		return args[1], nil, nil
	}
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		switch {
		case !ok:
			claims = append(claims, arg)
		case slices.Contains(kinds, kind) && len(args) == 1:
			return name, nil, nil
		case kind == "pvc" || kind == "persistentvolumeclaim":
			claims = append(claims, name)
		default:
			return "", nil, outcome.Misuse("%q is not something to move: name claims, or one StatefulSet", arg)
		}
	}
	slices.Sort(claims)
	return "", slices.Compact(claims), nil
}

func reach(flags *genericclioptions.ConfigFlags) (*access.Cluster, string, error) {
	home, err := access.Home(flags)
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", outcome.Misuse("the namespace cannot be found: %w; give -n", err)
	}
	return home, namespace, nil
}

func statusCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output string
	var everywhere bool
	command := &cobra.Command{
		Use:   "status [MOVE|PVC]",
		Short: "Show how far moves are",
		Long: `Status lists the moves of a namespace, or one, named by itself or by a claim that it
moves: the phase, what is done of it, how fast, what it waits for and, of one, how its
data travels.`,
		Example: `  # How far is the move of claim data?
  kubectl lodestone move status data -n shop`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			home, namespace, err := reach(flags)
			if err != nil {
				return err
			}
			if everywhere {
				namespace = metav1.NamespaceAll
			}
			moves := &v1alpha1.VolumeMoveList{}
			if len(args) == 1 {
				move, err := find(cmd.Context(), home, namespace, args[0])
				if err != nil {
					return err
				}
				moves.Items = append(moves.Items, *move)
			} else if moves, err = home.Moves.In(namespace).List(cmd.Context(), metav1.ListOptions{}); err != nil {
				return home.Explain("list VolumeMoves", err)
			}
			switch {
			case output != "" && len(args) == 1:
				return write(streams.Out, &moves.Items[0])
			case output != "":
				return writeAll(streams.Out, moves.Items)
			}
			if len(moves.Items) == 0 {
				_, err := fmt.Fprintln(streams.Out, "there are no moves")
				return err
			}
			if err := table(streams.Out, moves.Items, time.Now()); err != nil || len(args) == 0 {
				return err
			}
			return ways(streams.Out, &moves.Items[0])
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json: write the VolumeMove that is named, or a List of them")
	command.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "show the moves of all namespaces")
	return command
}

// action returns the command that asks something of a move.
func action(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, verb string, wanted v1alpha1.MoveAction, short, long string) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:     verb + " MOVE|PVC",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  # The latest move of claim data\n  kubectl lodestone move %s data -n shop", verb),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			home, namespace, err := reach(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			move, err := find(ctx, home, namespace, args[0])
			if err != nil {
				return err
			}
			move, err = want(ctx, home, move, wanted)
			return asked(streams.Out, output, move, verb, err)
		},
	}
	outputFlag(command.Flags(), &output)
	return command
}
