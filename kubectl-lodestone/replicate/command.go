// Package replicate is the command replicate: it has second copies of claims kept in another cluster, shows how old they are, pauses
// them and removes them. The provisioner does the work: the command creates a VolumeReplica, which stays. Read command.go for the flags,
// run.go for the creation, refuse.go for what is said before; status.go and actions.go have the subcommands.
package replicate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const long = `Replicate has a second copy of each claim kept in another cluster, its standby: every so
often a snapshot of its volume is copied there, compared, and sealed by a snapshot. The
application goes on meanwhile, and nothing of it is stopped.

Each claim gets a VolumeReplica of its own, which stays until replicate delete removes it
and the copy. The provisioner does the work: ending this command ends nothing.

With --group the claims that are named get one VolumeReplica, and so do those of each pod
of a StatefulSet: each version has all of them, of one moment. A database that keeps its
log in another claim needs that. The driver must have a VolumeGroupSnapshotClass; without
one nothing is copied, and replicate status says so.

Where the class of the copy has no snapshots, versions are in two claims there, which are
written in turn: that takes twice the room, and keeps two versions at most. --dry-run says
so beforehand, and --slots chooses it in any case.

With --freeze and --thaw each version is of a moment at which the application was frozen:
both are commands, as JSON arrays, that run without a shell in each pod that mounts a
claim, before and after the snapshot is taken. You need the right to run commands there,
and so does the provisioner: a RoleBinding to ClusterRole lodestone-freeze gives it that.
Where a freeze fails there is no version.`

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   "replicate PVC... | statefulset/NAME | deployment/NAME | pod/NAME",
		Short: "Keep second copies of claims in another cluster",
		Long:  long,
		Example: `  # Keep a copy of claim data in cluster east, at most 15 minutes old
  kubectl lodestone replicate data -n shop --to east --rpo 15m

  # One of each claim of a StatefulSet
  kubectl lodestone replicate statefulset/db -n shop --to east

  # A database and its log, of one moment
  kubectl lodestone replicate data wal -n shop --to east --group

  # An application that writes nothing while a file is there
  kubectl lodestone replicate data -n shop --to east \
    --freeze '["touch","/run/app/frozen"]' --thaw '["rm","-f","/run/app/frozen"]'

  # How much would the first copy send, and does anything forbid it?
  kubectl lodestone replicate data -n shop --to east --dry-run

  # How old are the copies? No new ones for now
  kubectl lodestone replicate status -A
  kubectl lodestone replicate pause data -n shop`,
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
			if err := o.check(cmd, claims); err != nil {
				return err
			}
			home, namespace, err := cli.Connect(flags)
			if err != nil {
				return err
			}
			if err := home.RequireCluster(cmd.Context(), o.To); err != nil {
				return err
			}
			r := &runner{Options: o, home: home, streams: streams, namespace: namespace, many: workload.Name != ""}
			groups := [][]string{claims}
			if workload.Name != "" {
				if groups, err = home.ClaimsOf(cmd.Context(), namespace, workload, "replicate"); err != nil {
					return err
				}
			}
			if !o.Group {
				groups = eachAlone(groups)
			}
			if most := slices.MaxFunc(groups, func(a, b []string) int { return len(a) - len(b) }); len(most) > mostClaims {
				return cli.Refuse("%s are %d claims, and a group has up to %d: leave out those that need not be of the same moment",
					strings.Join(most, ", "), len(most), mostClaims)
			}
			return r.run(cmd.Context(), groups)
		},
	}
	o.flags(command.Flags())
	o.Output.Add(command, "write the VolumeReplica; those of several claims as one List", cli.JSON, cli.YAML, cli.Name)
	cli.CompleteFlag(command, flags, "to", cli.Clusters)
	cli.CompleteFlag(command, flags, "class", func(ctx context.Context, home *cli.Cluster, _ string) ([]string, error) {
		return cli.ClassesAt(ctx, home, o.To)
	})
	command.AddCommand(statusCommand(flags, streams),
		pausing(flags, streams, "pause", true, "Have no new version made",
			`Pause has no new version made. One that is being made ends, and what is sealed stays.`),
		pausing(flags, streams, "resume", false, "Have versions made again",
			`Resume has versions made again, the next one at once if it is due.`),
		acceptCommand(flags, streams), deleteCommand(flags, streams))
	return command
}

// Options are the flags of replicate.
type Options struct {
	To, Class, Name string
	RPO             time.Duration
	Keep, Daily     int32
	Scrub           time.Duration
	Slots           bool
	Bandwidth       string
	Group           bool
	// Freeze and Thaw are commands, as JSON, FreezeIn the container that they run in, FreezeFor how long the application may be frozen.
	Freeze, Thaw, FreezeIn string
	FreezeFor              time.Duration
	Wait, DryRun           bool
	Output                 cli.Output
	// given says that the user said how many versions are to be kept.
	given bool
	// freezeFor says that the user gave FreezeFor.
	freezeFor bool
}

func newOptions() *Options {
	return &Options{RPO: 15 * time.Minute, Keep: 4, FreezeFor: 30 * time.Second}
}

func (o *Options) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.To, "to", "", "keep the copy in this cluster: home or the name of a RemoteCluster")
	flags.DurationVar(&o.RPO, "rpo", o.RPO, "how old the newest copy may be, from 10s on")
	flags.StringVar(&o.Class, "class", "", "real storage class there; by default as for a new claim")
	flags.Int32Var(&o.Keep, "keep", o.Keep, "how many sealed versions are kept there, from 1 to 32; without snapshots there 2 at most")
	flags.Int32Var(&o.Daily, "daily", 0, "of how many days the newest version stays, too, up to 90; takes snapshots there")
	flags.DurationVar(&o.Scrub, "scrub", 0, "how often to look for what storage has altered, from 1h on; by default never")
	flags.BoolVar(&o.Slots, "slots", false, "keep versions in two claims there that are written in turn, as without snapshots: it takes "+
		"twice the room")
	flags.StringVar(&o.Bandwidth, "bandwidth-limit", "", "bytes a second, such as 50Mi; default: no limit")
	flags.BoolVar(&o.Group, "group", false, "keep one copy of all claims, each version of which has all of one moment")
	flags.StringVar(&o.Freeze, "freeze", "", "freeze the application by this command, a JSON array, while a snapshot is taken")
	flags.StringVar(&o.Thaw, "thaw", "", "thaw it by this command, a JSON array, which must do no harm where nothing is frozen")
	flags.StringVar(&o.FreezeIn, "freeze-container", "", "container that both run in; by default the first that mounts a claim")
	flags.DurationVar(&o.FreezeFor, "freeze-timeout", o.FreezeFor, "for how long the application may be frozen, from 1s to 2m")
	flags.StringVar(&o.Name, "name", "", "name of the VolumeReplica of one claim or --group; by default those of the claim and of the cluster")
	flags.BoolVar(&o.Wait, "wait", false, "wait until the first copy is sealed, and say how far it is")
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be made and how much would be sent, or what forbids it, and do nothing")
}

// Limits of a VolumeReplica.
const (
	leastRPO   = 10 * time.Second
	mostKept   = 32
	mostDays   = 90
	leastScrub = time.Hour
	mostSlots  = 2
	mostClaims = 8
)

// check returns what is wrong with the flags.
func (o *Options) check(cmd *cobra.Command, claims []string) error {
	o.given, o.freezeFor = cmd.Flags().Changed("keep"), cmd.Flags().Changed("freeze-timeout")
	switch {
	case o.To == "":
		if err := cli.NoSubcommand(cmd, claims, "--to"); err != nil {
			return err
		}
		return cli.Misuse("say where to: give --to the name of a RemoteCluster, or home")
	case len(validation.IsDNS1123Label(o.To)) > 0:
		return cli.Misuse("--to %q cannot be a cluster: names have up to 63 lower-case letters, digits and '-'", o.To)
	case o.RPO < leastRPO:
		return cli.Misuse("--rpo %s is too short: give a time from %s on, such as 15m", replica.Short(o.RPO), leastRPO)
	case o.Keep < 1 || o.Keep > mostKept:
		return cli.Misuse("--keep %d is out of range: give a number from 1 to %d", o.Keep, mostKept)
	case o.Slots && o.given && o.Keep > mostSlots:
		return cli.Misuse("--keep %d is more than --slots has, which keeps %d versions at most: leave one of the two out", o.Keep, mostSlots)
	case o.Daily < 0 || o.Daily > mostDays:
		return cli.Misuse("--daily %d is out of range: give a number up to %d", o.Daily, mostDays)
	case o.Slots && o.Daily > 0:
		return cli.Misuse("--daily %d takes snapshots, and --slots keeps the last two versions alone: leave one of the two out", o.Daily)
	case cmd.Flags().Changed("scrub") && o.Scrub < leastScrub:
		return cli.Misuse("--scrub %s is too short: give a time from 1h on, such as 168h", replica.Short(o.Scrub))
	case o.Name != "" && len(validation.IsDNS1123Subdomain(o.Name)) > 0:
		return cli.Misuse("--name %q cannot be a name: names have lower-case letters, digits, '-' and '.'", o.Name)
	case o.Group && len(claims) == 1:
		return cli.Misuse("--group is for several claims of one moment, and %s is one: name the others, too, or leave it out", claims[0])
	case o.Name != "" && len(claims) != 1 && (!o.Group || len(claims) == 0):
		return cli.Misuse("--name %s is for the VolumeReplica of one claim: name one, or leave it out", o.Name)
	case o.DryRun && o.Wait:
		return cli.Misuse("--dry-run makes nothing that could be waited for: leave --wait out")
	}
	if _, err := cli.Bandwidth(o.Bandwidth); err != nil {
		return err
	}
	if err := o.checkFreeze(); err != nil {
		return err
	}
	return o.Output.Check()
}

// eachAlone has each claim be a group of its own.
func eachAlone(groups [][]string) (all [][]string) {
	for _, claim := range slices.Concat(groups...) {
		all = append(all, []string{claim})
	}
	return all
}

func (o *Options) object(namespace string, claims []string) (*v1alpha1.VolumeReplica, error) {
	limit, err := cli.Bandwidth(o.Bandwidth)
	if err != nil {
		return nil, err
	}
	hooks, err := o.hooks()
	consistency := v1alpha1.ReplicaConsistency("")
	if hooks != nil {
		consistency = v1alpha1.ConsistencyFrozen
	}
	name, claim := o.Name, claims[0]
	if name == "" {
		name = fmt.Sprintf("%s-%s", claim[:min(len(claim), validation.DNS1123SubdomainMaxLength-len(o.To)-1)], o.To)
	}
	versions := v1alpha1.ReplicaVersions{Keep: o.Keep, Daily: o.Daily}
	if o.Slots {
		versions = v1alpha1.ReplicaVersions{Keep: min(o.Keep, mostSlots), In: v1alpha1.InSlots}
	}
	var scrub *metav1.Duration
	if o.Scrub > 0 {
		scrub = &metav1.Duration{Duration: o.Scrub}
	}
	return &v1alpha1.VolumeReplica{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: named.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VolumeReplicaSpec{
			Claims: claims, Standbys: []v1alpha1.ReplicaStandby{{Cluster: o.To, ClassName: o.Class}},
			RPO: &metav1.Duration{Duration: o.RPO}, Versions: versions, ScrubEvery: scrub, BandwidthLimit: limit,
			Consistency: consistency, Hooks: hooks,
		},
	}, err
}
