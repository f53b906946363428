package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// failover has the flags of the command failover.
type failover struct {
	to, version, fence, name string
	yes, drill               bool
}

// NewFailover returns the command failover.
func NewFailover(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o, f := newOptions(), failover{fence: string(v1alpha1.FenceProven)}
	command := &cobra.Command{
		Use:   "failover PVC... | statefulset/NAME | deployment/NAME | pod/NAME",
		Short: "Give claims the second copies that they have, in place of volumes that are lost",
		Long: `Failover gives claims a sealed version of their second copies (kubectl lodestone
replicate), in place of the volumes that they have. The claims stay, and their pods go to
the cluster with the copy by themselves. What was written after the version is not in it.

Nothing is taken from the volume that a claim had: it is kept, with what was written
there since, until kubectl lodestone move finalize removes it. kubectl lodestone failback
brings the claim back there.

If the cluster of that volume does not answer, nobody can see whether pods still write
there. With --fence Lease it is waited until they have ended, if an administrator has set
spec.podLease of the RemoteCluster and the remote agent there has promised to end them
once home is silent. It proves nothing if that agent, or a node there, does not work.
If nobody writes there, or if what they do does not count, say so with --fence Declared:
they end when their cluster answers again. It takes the right to fence remoteclusters.

Each claim gets a version of its own: those of several claims are of different moments.
Claims that have one copy of one moment (replicate --group) fail over together, though only
one of them is named.

With --test nothing is failed over: a new claim is made from the version, which has what
the claim had, so that pods of a test show whether the application starts with that. The
claim, its pods and its copy go on as they are, and what the test writes is in no version.`,
		Example: `  # The cluster of claim data is lost
  kubectl lodestone failover data -n shop --fence Declared

  # It has promised to end its pods while home is silent: wait for that
  kubectl lodestone failover data -n shop --fence Lease

  # The application has spoiled its files: back to a version from before that
  kubectl lodestone replicate status data -n shop -o yaml
  kubectl lodestone failover data -n shop --version replica-0f7b153b-4645-44d9-9d0e-f64b2f68c8bb-v12-1795742003

  # Does the application start with the copy? Nothing of it is changed
  kubectl lodestone failover data -n shop --test

  # What would be done?
  kubectl lodestone failover statefulset/db -n shop --dry-run`,
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
			if err := f.check(o, workload, claims, cmd.Flags().Changed("fence")); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			word := workload.Name
			if word == "" {
				word = claims[0]
			} else {
				groups, err := home.ClaimsOf(cmd.Context(), namespace, workload, "fail over")
				if err != nil {
					return err
				}
				claims = slices.Concat(groups...)
			}
			r := &runner{Options: o, home: home, streams: streams, namespace: namespace, statefulSet: len(claims) > 1}
			if f.drill {
				return f.test(cmd.Context(), r, workload, claims)
			}
			return f.run(cmd.Context(), r, claims, word)
		},
	}
	command.Flags().StringVar(&f.to, "to", "", "use the copy in this cluster; needed only if a claim has several")
	command.Flags().StringVar(&f.version, "version", "", "name of the version, as replicate status -o yaml shows it; by default the newest")
	command.Flags().StringVar(&f.fence, "fence", f.fence, "who says that nobody writes to the volume that the claim has: Proven asks its "+
		"cluster; of one that does not answer Lease waits until its remote agent has ended the pods, as promised, and with Declared you vouch "+
		"for it")
	command.Flags().BoolVar(&f.drill, "test", false, "make a new claim from the version, and leave the claim and its copy as they are")
	command.Flags().StringVar(&f.name, "name", "", "name of the claim that --test makes; by default that of the claim with -drill")
	command.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&o.Detach, "detach", false, "do not wait until it is done")
	command.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, or what forbids it, and do nothing")
	o.Output.Add(command, "write the VolumeMove that did it, also if it failed, or the claim that --test made; those of several claims as "+
		"one List", cli.JSON, cli.YAML, cli.Name)
	cli.CompleteFlag(command, flags, "to", cli.Clusters)
	_ = command.RegisterFlagCompletionFunc("fence", cobra.FixedCompletions([]string{string(v1alpha1.FenceProven),
		string(v1alpha1.FenceLease), string(v1alpha1.FenceDeclared)}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (f *failover) check(o *Options, workload cli.Reference, claims []string, fenced bool) error {
	switch {
	case f.drill && fenced:
		return cli.Misuse("--fence is for a failover, and --test fails nothing over: leave one of them out")
	case f.name != "" && !f.drill:
		return cli.Misuse("--name names the claim that --test makes: give that too, or leave it out")
	case f.name != "" && len(validation.IsDNS1123Subdomain(f.name)) > 0:
		return cli.Misuse("--name %q cannot be a claim: names have up to 253 lower-case letters, digits, '-' and '.'", f.name)
	case f.name != "" && (workload.Name != "" || len(claims) != 1):
		return cli.Misuse("--name is for one claim: name only the claim to test")
	case !oneOf(v1alpha1.FailoverFence(f.fence), v1alpha1.FenceProven, v1alpha1.FenceLease, v1alpha1.FenceDeclared):
		return cli.Misuse("--fence %q is not known: give Proven, which asks the cluster of the volume; if that does not answer, Lease, "+
			"where it has promised to end its pods, or Declared, with which you vouch for it", f.fence)
	case f.to != "" && len(validation.IsDNS1123Label(f.to)) > 0:
		return cli.Misuse("--to %q cannot be a cluster: names have up to 63 lower-case letters, digits and '-'", f.to)
	case f.version != "" && len(validation.IsDNS1123Subdomain(f.version)) > 0:
		return cli.Misuse("--version %q cannot be the name of a version: replicate status -o yaml shows them", f.version)
	case f.version != "" && (workload.Name != "" || len(claims) != 1):
		return cli.Misuse("--version is of one claim: name only that claim")
	case o.DryRun && o.Detach:
		return cli.Misuse("--dry-run waits for its answer: leave --detach out")
	}
	return o.Output.Check()
}

// copiesOf returns the VolumeReplicas that claims are given versions of, each once.
func (f *failover) copiesOf(ctx context.Context, r *runner, claims []string) (all []*v1alpha1.VolumeReplica, err error) {
	list, err := r.home.Moves.Replicas(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, r.home.Explain("list VolumeReplicas in "+r.namespace, err)
	}
	for _, claim := range claims {
		if _, err := r.home.Claim(ctx, r.namespace, claim); err != nil {
			return nil, err
		}
		copied, err := chooseReplica(list.Items, claim, f.to, f.version)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, copied) {
			all = append(all, copied)
		}
	}
	return all, twice(all)
}

// twice refuses copies that two of them give to one claim. It is pure.
func twice(all []*v1alpha1.VolumeReplica) error {
	of := map[string]string{}
	for _, copied := range all {
		for _, claim := range copied.Spec.Claims {
			if other := of[claim]; other != "" {
				return cli.Misuse("claim %q has copies by VolumeReplica %s and by %s: name claims of one of them", claim, other, copied.Name)
			}
			of[claim] = copied.Name
		}
	}
	return nil
}

// run fails claims over, one copy after another, once the user has confirmed that. Claims that have one copy go together.
func (f *failover) run(ctx context.Context, r *runner, claims []string, word string) error {
	copies, err := f.copiesOf(ctx, r, claims)
	if err != nil {
		return err
	}
	groups := make([][]string, len(copies))
	for i, copied := range copies {
		groups[i] = copied.Spec.Claims
	}
	wanted, err := r.newMoves(ctx, groups)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, move := range wanted {
		copied := copies[i]
		move.Spec.Target.Cluster = copied.Spec.Standbys[0].Cluster
		move.Spec.Failover = &v1alpha1.MoveFailover{Replica: copied.Name, Version: f.version, Fence: v1alpha1.FailoverFence(f.fence)}
		fmt.Fprintln(r.streams.ErrOut, f.describe(copied, now))
	}
	if !r.DryRun {
		if err := cli.Ask(ctx, r.streams.In, r.streams.ErrOut, f.yes, word); err != nil {
			return err
		}
	}
	return r.runAll(ctx, wanted)
}

// chooseReplica returns the VolumeReplica of a claim that has a version; the newest one if none is named. It is pure.
func chooseReplica(all []v1alpha1.VolumeReplica, claim, to, version string) (*v1alpha1.VolumeReplica, error) {
	var found []*v1alpha1.VolumeReplica
	for i := range all {
		if r := &all[i]; slices.Contains(r.Spec.Claims, claim) && len(r.Spec.Standbys) == 1 && (to == "" || r.Spec.Standbys[0].Cluster == to) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0 && to != "":
		return nil, cli.Refuse("claim %q has no second copy in cluster %q: kubectl lodestone replicate status shows which there are", claim, to)
	case len(found) == 0:
		return nil, cli.Refuse("claim %q has no second copy, so there is nothing that it could get: kubectl lodestone replicate has one kept "+
			"for the next time", claim)
	}
	if found = useful(found, version); len(found) > 1 {
		at, names := []string{}, []string{}
		for _, r := range found {
			at, names = append(at, r.Spec.Standbys[0].Cluster), append(names, r.Name)
		}
		slices.Sort(at)
		if at = slices.Compact(at); len(at) == 1 {
			return nil, cli.Misuse("claim %q has several second copies in cluster %q (VolumeReplicas %s): say which with --version and the name "+
				"of one of its versions, as kubectl lodestone replicate status -o yaml shows it", claim, at[0], strings.Join(names, ", "))
		}
		return nil, cli.Misuse("claim %q has several second copies: say which with --to %s", claim, cli.Or(at))
	}
	has := replica.Of(found[0], time.Time{})
	if has.Sealed == nil {
		return nil, cli.Refuse("the second copy of claim %q in cluster %q has no sealed version yet: %s", claim, has.Standby, has.Message)
	}
	if version != "" && !slices.ContainsFunc(found[0].Status.Standbys[0].Versions, func(v v1alpha1.ReplicaVersion) bool {
		return v.Name == version
	}) {
		var names []string
		for _, v := range found[0].Status.Standbys[0].Versions {
			names = append(names, fmt.Sprintf("%s (%s)", v.Name, v.Cut.UTC().Format(time.RFC3339)))
		}
		return nil, cli.Refuse("the second copy of claim %q in cluster %q has no version %q; there are: %s", claim, has.Standby, version,
			strings.Join(names, ", "))
	}
	return found[0], nil
}

// useful leaves out, of several copies, those that are where the data is, and those without the version that is asked for; all of them if
// there is no other.
func useful(found []*v1alpha1.VolumeReplica, version string) []*v1alpha1.VolumeReplica {
	for _, drop := range []func(r *v1alpha1.VolumeReplica) bool{
		func(r *v1alpha1.VolumeReplica) bool {
			return r.Status.Primary == r.Spec.Standbys[0].Cluster && version == ""
		},
		func(r *v1alpha1.VolumeReplica) bool {
			return version != "" && !(len(r.Status.Standbys) > 0 && slices.ContainsFunc(r.Status.Standbys[0].Versions,
				func(v v1alpha1.ReplicaVersion) bool { return v.Name == version }))
		},
	} {
		if left := slices.DeleteFunc(slices.Clone(found), drop); len(left) > 0 {
			found = left
		}
	}
	return found
}

// describe says what a claim gets and what becomes of what it has.
func (f *failover) describe(copied *v1alpha1.VolumeReplica, now time.Time) string {
	has := replica.Of(copied, now)
	text := has.Has("cluster "+has.Standby, now)
	if f.version != "" {
		text = fmt.Sprintf("cluster %s has version %s of %s", has.Standby, f.version, has.Quoted())
	}
	if len(has.Claims) > 0 {
		text += ". All of these claims get that, of one moment; the volumes that they have are kept, with what was written since, and are not " +
			"used any more."
	} else {
		text += ". The claim gets that; the volume that it has is kept, with what was written since, and is not used any more."
	}
	switch v1alpha1.FailoverFence(f.fence) {
	case v1alpha1.FenceProven: // Then its cluster answers.
	case v1alpha1.FenceLease:
		text += " If its cluster does not answer, it is waited until the remote agent there has ended the pods, as it has promised: if that or " +
			"a node there does not work, they go on beside those that follow them."
	case v1alpha1.FenceDeclared:
		text += " If its cluster does not answer, pods there are taken for gone: if they run, they go on beside those that follow them."
	}
	return text
}

// NewFailback returns the command failback.
func NewFailback(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o, whole := newOptions(), false
	command := &cobra.Command{
		Use:   "failback pvc/NAME | volumemove/NAME",
		Short: "Bring a claim that was failed over back to the volume that it had",
		Long: `Failback brings a claim back to the cluster that it was failed over from, with all that
was written since. The data goes into the volume that the claim had, and only what
differs is sent. A snapshot of that volume is taken first, which has what was written
there after the version that the claim got; it is kept until kubectl lodestone move
finalize removes it. Where no snapshot can be taken failback is refused.

With --whole all data goes to a new volume, and the one that the claim had stays as it is
until that is committed.`,
		Example:           "  # The cluster that claim data came from is back\n  kubectl lodestone failback data -n shop",
		Args:              named.OneOf,
		ValidArgsFunction: named.Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rollBack(cmd.Context(), flags, streams, o, whole, args, rank, func(move *v1alpha1.VolumeMove) error {
				if move.Spec.Failover == nil {
					return cli.Refuse("VolumeMove %s moved claim %s and did not fail it over: kubectl lodestone move rollback moves it back", move.Name,
						strings.Join(move.Spec.Claims, ", "))
				}
				return nil
			})
		},
	}
	rollbackFlags(command, o, &whole)
	return command
}

// failedOver says what became of a claim that was failed over, for the end of the report on it.
func failedOver(move *v1alpha1.VolumeMove) string {
	text, has, its, is := "", "it has", "its volume", "is"
	if len(move.Spec.Claims) > 1 {
		has, its, is = "they have", "their volumes", "are"
	}
	if f := move.Status.Failover; f != nil {
		text = fmt.Sprintf("; %s what was written until %s (fence: %s)", has, f.Cut.UTC().Format(time.RFC3339), f.Fence)
	}
	from := keys.Home
	if len(move.Status.Claims) > 0 && move.Status.Claims[0].Source != nil {
		from = move.Status.Claims[0].Source.Cluster
	}
	return text + fmt.Sprintf("; %s in cluster %s %s kept (kubectl lodestone failback %s -n %s goes back there, kubectl lodestone "+
		"move finalize %s -n %s removes it)", its, from, is, move.Name, move.Namespace, move.Name, move.Namespace)
}
