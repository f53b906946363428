// Package move is the command move: it moves the volumes of claims to another class or cluster, and
// shows the progress. The provisioner does the work: the command creates a VolumeMove and follows
// it, so a move goes on when the command ends. Read command.go for the flags, run.go for the
// creation, follow.go for the progress; status.go, actions.go, rollback.go and giveup.go have the
// subcommands.
package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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
		Use:   "move PVC... | statefulset/NAME | deployment/NAME | pod/NAME",
		Short: "Move the volumes of claims to another cluster, node or class",
		Long:  long,
		Example: `  # Move the volume of claim data to cluster west
  kubectl lodestone move data -n shop --target-cluster west

  # Move all volumes of a StatefulSet home, replica by replica
  kubectl lodestone move statefulset/db -n shop --target-cluster home

  # Move the volumes of a Deployment together
  kubectl lodestone move deployment/writer -n shop --target-cluster west

  # What would that do, and does anything forbid it?
  kubectl lodestone move data -n shop --target-cluster west --dry-run

  # Look at all moves, and abort one
  kubectl lodestone move status -A
  kubectl lodestone move abort data -n shop`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := cli.ClaimsOrWorkload(cmd, args)
			return err
		},
		ValidArgsFunction: cli.CompleteReferences(flags, false, []cli.Kind{cli.Claim}, cli.Movable...),
		RunE: func(cmd *cobra.Command, args []string) error {
			workload, claims, err := cli.ClaimsOrWorkload(cmd, args)
			if err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkTarget(cmd, workload, claims); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			if err := o.requireTarget(cmd.Context(), home); err != nil {
				return err
			}
			r := &runner{Options: o, home: home, streams: streams, namespace: namespace, statefulSet: workload.Kind == cli.StatefulSet}
			groups := [][]string{claims}
			if workload.Name != "" {
				if groups, err = home.ClaimsOf(cmd.Context(), namespace, workload, "move"); err != nil {
					return err
				}
			}
			return r.run(cmd.Context(), groups)
		},
	}
	o.flags(command.Flags())
	command.Flags().BoolVar(&o.Together, "together", false, "move the replicas of a StatefulSet at once, not one after another")
	o.Output.Add(command, "write the VolumeMove when it is done, also if it fails; those of a StatefulSet as one List", cli.JSON, cli.YAML,
		cli.Name)
	cli.CompleteFlag(command, flags, "target-cluster", cli.Clusters)
	cli.CompleteFlag(command, flags, "target-node", cli.NamesOf(cli.Node))
	cli.CompleteFlag(command, flags, "class", func(ctx context.Context, home *cli.Cluster, _ string) ([]string, error) {
		return cli.ClassesAt(ctx, home, o.Cluster)
	})
	completeVerify(command)
	command.AddCommand(statusCommand(flags, streams), rollbackCommand(flags, streams), giveUpCommand(flags, streams),
		action(flags, streams, "abort", v1alpha1.ActionAbort, "End a move that is not committed: everything stays at the source",
			`Abort ends a move that is not committed. The claims keep the volumes that they have,
their pods run again, and the copy at the target is removed.`),
		action(flags, streams, "finalize", v1alpha1.ActionFinalize, "Remove the copy at the source of a move that is done, before its time",
			`Finalize removes the copy at the source of a move that is done, instead of keeping it
for the rest of --keep-source-for.`))
	return command
}

func completeVerify(command *cobra.Command) {
	_ = command.RegisterFlagCompletionFunc("verify", cobra.FixedCompletions([]string{string(v1alpha1.VerifyQuick),
		string(v1alpha1.VerifyFull)}, cobra.ShellCompDirectiveNoFileComp))
}

// requireTarget returns an error if the target that was given is known not to exist.
func (o *Options) requireTarget(ctx context.Context, home *cli.Cluster) error {
	if o.Cluster != "" {
		return home.RequireCluster(ctx, o.Cluster)
	}
	_, err := home.Client.CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil // the provisioner knows
	case apierrors.IsNotFound(err):
		return home.Missing(ctx, cli.Node, "", o.Node)
	}
	return home.Explain("get node "+o.Node, err)
}

// Options are the flags of move.
type Options struct {
	Cluster, Node, Class string
	// Into is the VolumeMove that keeps the copy to go back into; empty: the data goes to new real claims.
	Into             string
	Verify           string
	Passes           int32
	Offline          bool
	Rootless         bool
	Bandwidth        string
	KeepSource       time.Duration
	TTL              time.Duration
	RollBackAfter    time.Duration
	Together, Detach bool
	DryRun           bool
	Output           cli.Output
}

func newOptions() *Options {
	return &Options{Verify: string(v1alpha1.VerifyQuick), Passes: 3, KeepSource: time.Hour, RollBackAfter: 10 * time.Minute,
		TTL: 24 * time.Hour}
}

func (o *Options) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Cluster, "target-cluster", "", "move to this cluster: home or the name of a RemoteCluster")
	flags.StringVar(&o.Node, "target-node", "", "move to this node of home, or to the cluster that it stands for")
	flags.StringVar(&o.Class, "class", "", "real storage class at the target; by default as for a new claim")
	flags.BoolVar(&o.Detach, "detach", false, "do not wait for the move")
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be moved, or what forbids it, and do nothing")
	o.copyFlags(flags)
}

// copyFlags adds the flags on how data is moved, whatever the target.
func (o *Options) copyFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Verify, "verify", o.Verify, "how the copies are compared: Quick reads again what was written at last, Full reads all")
	flags.Int32Var(&o.Passes, "passes", o.Passes, "how often to copy while the application runs, at most")
	flags.BoolVar(&o.Offline, "offline", false, "let pods stand still while all of their ReadWriteOncePod claims are copied, if no snapshot "+
		"can be copied instead: nothing can read such a claim beside its pod")
	flags.BoolVar(&o.Rootless, "rootless", false, "have movers in remote clusters run as the pods do that use the claims, and not as root, "+
		"for namespaces of Pod Security restricted")
	flags.StringVar(&o.Bandwidth, "bandwidth-limit", "", "bytes a second, such as 50Mi; default: no limit")
	flags.DurationVar(&o.KeepSource, "keep-source-for", o.KeepSource,
		"how long to keep the copy at the source once the pods run at the target")
	flags.DurationVar(&o.TTL, "ttl", o.TTL, "how long to keep the VolumeMove once all is done; negative: for ever")
	flags.DurationVar(&o.RollBackAfter, "roll-back-after", o.RollBackAfter,
		"how long pods may wait for a copy that stands still before the move goes back by itself")
}

// check returns what is wrong with the flags on how data is moved, and with the output.
func (o *Options) check() error {
	switch {
	case !oneOf(v1alpha1.MoveVerify(o.Verify), v1alpha1.VerifyQuick, v1alpha1.VerifyFull):
		return cli.Misuse("--verify %q is not known: give Quick, which reads again what was written at last, or Full, which reads all", o.Verify)
	case o.Passes < 0 || o.Passes > 20:
		return cli.Misuse("--passes %d is out of range: give a number from 0 to 20", o.Passes)
	case o.DryRun && o.Detach:
		return cli.Misuse("--dry-run waits for its answer: leave --detach out")
	case o.RollBackAfter < 0:
		return cli.Misuse("--roll-back-after cannot be negative: give a time such as 10m")
	case o.KeepSource < 0:
		return cli.Misuse("--keep-source-for cannot be negative: give a time such as 1h, or 0s")
	}
	if _, err := cli.Bandwidth(o.Bandwidth); err != nil {
		return err
	}
	return o.Output.Check()
}

// checkTarget returns what is wrong with the flags on where something is moved.
func (o *Options) checkTarget(cmd *cobra.Command, workload cli.Reference, claims []string) error {
	switch {
	case o.Cluster == "" && o.Node == "":
		if err := cli.NoSubcommand(cmd, claims, "--target-cluster or --target-node"); err != nil {
			return err
		}
		return cli.Misuse("say where to: give --target-cluster home or the name of a RemoteCluster, or --target-node a node of home")
	case o.Cluster != "" && o.Node != "":
		return cli.Misuse("--target-cluster and --target-node name two places: give one of them")
	case o.Together && workload.Kind != cli.StatefulSet:
		return cli.Misuse("--together is for the replicas of a StatefulSet: leave it out, since claims that are named together move together")
	}
	return nil
}

// spec returns the spec of a VolumeMove from flags that were checked, without its claims.
func (o *Options) spec() (v1alpha1.VolumeMoveSpec, error) {
	limit, err := cli.Bandwidth(o.Bandwidth)
	spec := v1alpha1.VolumeMoveSpec{
		Target:    v1alpha1.MoveTarget{Cluster: o.Cluster, Node: o.Node},
		ClassName: o.Class, Verify: v1alpha1.MoveVerify(o.Verify), BandwidthLimit: limit,
		Passes: &o.Passes, KeepSourceFor: &metav1.Duration{Duration: o.KeepSource}, RollBackAfter: &metav1.Duration{Duration: o.RollBackAfter},
		Offline: v1alpha1.OfflineForbid, Action: v1alpha1.ActionMove, DryRun: o.DryRun, Into: o.Into,
		Rootless: o.Rootless,
	}
	if o.Offline {
		spec.Offline = v1alpha1.OfflineAllow
	}
	if o.TTL >= 0 {
		spec.TTLSecondsAfterFinished = ptr.To(int32(min(o.TTL/time.Second, 1<<31-1)))
	}
	return spec, err
}

func oneOf[T comparable](value T, allowed ...T) bool {
	return slices.Contains(allowed, value)
}

func (o *Options) object(namespace string, claims ...string) (*v1alpha1.VolumeMove, error) {
	spec, err := o.spec()
	spec.Claims = claims
	name := claims[0]
	if len(name) > 200 {
		name = name[:200]
	}
	return &v1alpha1.VolumeMove{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeMove"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: fmt.Sprintf("%s-", name)}, Spec: spec,
	}, err
}
