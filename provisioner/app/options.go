// Package app is the provisioner as a program: its flags, its clients, and the one place
// where its parts are connected. NewCommand is the entry point; it makes a Config from
// Options and calls Run. Start with run.go: it lists all parts in the order in which they
// are built.
package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	validation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
	"github.com/lodestone-storage/lodestone/provisioner/copying/transport"
)

// Options are the flags of the provisioner.
type Options struct {
	program.Options
	ClusterID        string
	StorageNamespace string
	ProbeInterval    time.Duration
	RefusalPeriod    time.Duration
	Workers          int
	PublishCapacity  bool
	MoverImage       string
	MoverNetworks    []string
	MoverScratch     string

	MaxMoves             int
	MaxMovesPerNamespace int
	ForcedDeletionMargin time.Duration
	MoveSettling         time.Duration

	LabelMovingNamespaces bool

	ClusterProfilesNamespace string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Options:          program.NewOptions("lodestone-system"),
		StorageNamespace: "lodestone-storage",
		ProbeInterval:    5 * time.Second,
		RefusalPeriod:    time.Minute,
		Workers:          32,
		PublishCapacity:  true,
		MoverImage:       "lodestone-mover",

		MaxMoves:             10,
		MaxMovesPerNamespace: 3,
		ForcedDeletionMargin: time.Minute,
		MoveSettling:         10 * time.Second,
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags, "the home cluster", "the provisioner's lease and of the kubeconfig Secrets")
	flags.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "ID of the home cluster, up to 40 lower-case letters, digits and '-'; empty: "+
		"the first 8 characters of the UID of namespace kube-system; do not change it while volumes exist")
	flags.StringVar(&o.StorageNamespace, "storage-namespace", o.StorageNamespace,
		"namespace of the real claims behind virtual volumes whose data is at home")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "how often each remote cluster is looked at; 1s to 30s is sensible")
	flags.DurationVar(&o.RefusalPeriod, "refusal-period", o.RefusalPeriod, "how long a cluster or node that refused a claim is passed over "+
		"for it; longer than the 10s that kube-scheduler backs off")
	flags.BoolVar(&o.PublishCapacity, "publish-capacity", o.PublishCapacity, "tell kube-scheduler how much room the virtual classes have in "+
		"each cluster; false: let it ask for none, and remove what was published")
	flags.StringVar(&o.MoverImage, "mover-image", o.MoverImage, "image of the pods that copy volumes, in the home cluster and in remote "+
		"ones; of the provisioner's own version")
	flags.StringVar(&o.MoverScratch, "mover-scratch", o.MoverScratch,
		"how much a pod that copies a volume may keep on the disk of its node, as 20Gi; empty: 4Gi and a 16th of the volume")
	flags.StringSliceVar(&o.MoverNetworks, "mover-networks", o.MoverNetworks, "networks, as 10.1.0.0/16,fd00:1::/64, in which the pods that "+
		"copy volumes may dial each other, and the provisioner those of remote clusters; empty: wherever a pod may have its address, in a "+
		"remote cluster with podNetwork Routed in its podCIDRs")
	flags.IntVar(&o.MaxMoves, "max-moves", o.MaxMoves, "how many moves of volumes may be under way at once; the others wait, and the "+
		"namespaces take turns; those that only keep the copy at the source do not count")
	flags.IntVar(&o.MaxMovesPerNamespace, "max-moves-per-namespace", o.MaxMovesPerNamespace, "how many of these may be of one namespace; "+
		"1 to --max-moves")
	flags.DurationVar(&o.ForcedDeletionMargin, "forced-deletion-margin", o.ForcedDeletionMargin, "how long after its grace period a pod "+
		"counts as running that was deleted by force while its volume is moved; longer than --node-monitor-grace-period of the clusters' "+
		"kube-controller-managers, whose default is 50s")
	flags.DurationVar(&o.MoveSettling, "move-settling", o.MoveSettling, "how long after a move has let go of its claims pods are still let "+
		"through its gate that an API server put there late; longer than API servers of the home cluster take to hear of a change; at least 1s")
	flags.BoolVar(&o.LabelMovingNamespaces, "label-moving-namespaces", o.LabelMovingNamespaces, "label namespaces while a volume is moved "+
		"there: for a gate that is a webhook, which is called for those alone (deploy/components/webhook)")
	flags.StringVar(&o.ClusterProfilesNamespace, "cluster-profiles-namespace", o.ClusterProfilesNamespace, "namespace in which each "+
		"RemoteCluster is shown as a ClusterProfile (deploy/components/cluster-profiles); empty: in none")
	flags.IntVar(&o.Workers, "workers", o.Workers, "how many claims are worked on at once; a wait for a volume takes none of them")
}

// Validate returns all that is wrong with the options.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate(), program.ValidateClusterID(o.ClusterID)}
	if len(validation.IsDNS1123Label(o.StorageNamespace)) > 0 {
		errs = append(errs, fmt.Errorf("--storage-namespace %q is not the name of a namespace", o.StorageNamespace))
	}
	if o.ClusterProfilesNamespace != "" && len(validation.IsDNS1123Label(o.ClusterProfilesNamespace)) > 0 {
		errs = append(errs, fmt.Errorf("--cluster-profiles-namespace %q is not the name of a namespace", o.ClusterProfilesNamespace))
	}
	if o.ProbeInterval <= 0 || o.RefusalPeriod <= 0 {
		errs = append(errs, errors.New("--probe-interval and --refusal-period must be more than 0"))
	}
	if o.MoveSettling < time.Second {
		errs = append(errs, errors.New("--move-settling must be at least 1s"))
	}
	if o.ForcedDeletionMargin <= 0 {
		errs = append(errs, errors.New("--forced-deletion-margin must be more than 0"))
	}
	if o.MaxMoves < 1 || o.MaxMovesPerNamespace < 1 || o.MaxMovesPerNamespace > o.MaxMoves {
		errs = append(errs, fmt.Errorf("--max-moves %d and --max-moves-per-namespace %d cannot be used: give at least 1, and for one "+
			"namespace at most as many as for all", o.MaxMoves, o.MaxMovesPerNamespace))
	}
	if o.MoverImage == "" {
		errs = append(errs, errors.New("--mover-image must name an image"))
	}
	if _, err := o.networks(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.scratch(); err != nil {
		errs = append(errs, err)
	}
	if o.Workers < 1 {
		errs = append(errs, errors.New("--workers must be at least 1"))
	}
	return errors.Join(errs...)
}

// scratch returns how many bytes of scratch space movers may use on the disks of their
// nodes; 0 lets the size of each volume decide.
func (o *Options) scratch() (int64, error) {
	if o.MoverScratch == "" {
		return 0, nil
	}
	quantity, err := resource.ParseQuantity(o.MoverScratch)
	if err != nil || quantity.Value() < 1<<20 {
		return 0, fmt.Errorf("--mover-scratch: %q is not a size of at least 1Mi, as 20Gi", o.MoverScratch)
	}
	return quantity.Value(), nil
}

// networks returns the networks in which movers may dial each other.
func (o *Options) networks() (transport.Networks, error) {
	var networks transport.Networks
	for _, text := range o.MoverNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--mover-networks: %q is not a network as 10.1.0.0/16", text)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "lodestone-provisioner",
		Short: "Gives the claims of virtual storage classes their volumes",
		Long: `lodestone-provisioner gives each claim of a virtual storage class (provisioner
lodestone.dev) its volume in the cluster, home or remote, where the claim's
first pod is scheduled, and keeps the volume in step with the real one.`,
	}
	o.AddFlags(cmd.Flags())
	return command.Complete(cmd, o.Logs, o.Validate, func(ctx context.Context) error {
		limitGarbage()
		config, err := o.Config()
		if err != nil {
			return err
		}
		return Run(ctx, config)
	})
}

// Config is what the provisioner runs with.
type Config struct {
	Options
	// Home is how the home cluster is reached.
	Home *rest.Config
}

// Config returns the configuration that the options mean.
func (o *Options) Config() (*Config, error) {
	home, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the home cluster (set --kubeconfig outside a pod): %w", err)
	}
	return &Config{Options: *o, Home: home}, nil
}

// garbage is the value of GOGC: how much garbage, in percent of the heap in use, may
// collect before the collector runs. Most of the heap is informer caches, which hardly
// change: Go's default of 100 would need twice their size.
const garbage = 24

// limitGarbage applies garbage to the whole process, unless GOGC is set.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
