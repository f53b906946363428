package move

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Options are the flags of move.
type Options struct {
	Cluster, Node, Class string
	Verify               string
	Passes               int32
	Offline              bool
	Bandwidth            string
	KeepSource           time.Duration
	TTL                  time.Duration
	RollBackAfter        time.Duration
	Together, Detach     bool
	DryRun               bool
	Output               string
}

func newOptions() *Options {
	return &Options{Verify: string(v1alpha1.VerifyQuick), Passes: 3, KeepSource: time.Hour, RollBackAfter: 10 * time.Minute, TTL: 24 * time.Hour}
}

func (o *Options) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Cluster, "target-cluster", "", "move to this cluster: the ID of a remote cluster, or home")
	flags.StringVar(&o.Node, "target-node", "", "move to this node of home, or to the cluster that it stands for")
	flags.StringVar(&o.Class, "class", "", "real storage class at the target; by default as for a new claim")
	flags.BoolVar(&o.Detach, "detach", false, "do not wait for the move")
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be moved, or what forbids it, and do nothing")
	o.copyFlags(flags)
}

// copyFlags are the flags that say how data is moved, wherever to.
func (o *Options) copyFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Verify, "verify", o.Verify, "how the copies are compared: Quick reads again what was written at last, Full reads all")
	flags.Int32Var(&o.Passes, "passes", o.Passes, "how often to copy while the application runs, at most")
	flags.BoolVar(&o.Offline, "offline", false, "allow that pods stand still while all of their ReadWriteOncePod claims is copied, where no snapshot of them can be: nothing can read those beside a pod")
	flags.StringVar(&o.Bandwidth, "bandwidth-limit", "", "bytes a second, such as 50Mi; by default as many as can")
	flags.DurationVar(&o.KeepSource, "keep-source-for", o.KeepSource, "how long to keep the copy at the source once the pods run at the target")
	flags.DurationVar(&o.TTL, "ttl", o.TTL, "how long to keep the VolumeMove once all is done; negative: for ever")
	flags.DurationVar(&o.RollBackAfter, "roll-back-after", o.RollBackAfter, "how long pods may wait for a copy that stands still before the move goes back by itself")
}

// spec returns the part of a VolumeMove that the flags say, or what is wrong with
// them.
func (o *Options) spec() (v1alpha1.VolumeMoveSpec, error) {
	spec := v1alpha1.VolumeMoveSpec{
		Target:    v1alpha1.MoveTarget{Cluster: o.Cluster, Node: o.Node},
		ClassName: o.Class, Verify: v1alpha1.MoveVerify(o.Verify),
		Passes: &o.Passes, KeepSourceFor: &metav1.Duration{Duration: o.KeepSource}, RollBackAfter: &metav1.Duration{Duration: o.RollBackAfter},
		Offline: v1alpha1.OfflineForbid, Action: v1alpha1.ActionMove, DryRun: o.DryRun,
	}
	if o.Offline {
		spec.Offline = v1alpha1.OfflineAllow
	}
	switch {
	case (o.Cluster == "") == (o.Node == ""):
		return spec, outcome.Misuse("say where to: give either --target-cluster or --target-node")
	case !oneOf(spec.Verify, v1alpha1.VerifyQuick, v1alpha1.VerifyFull):
		return spec, outcome.Misuse("--verify %q is not known: give Quick or Full", o.Verify)
	case o.Passes < 0 || o.Passes > 20:
		return spec, outcome.Misuse("--passes %d is out of range: give a number from 0 to 20", o.Passes)
	case o.DryRun && o.Detach:
		return spec, outcome.Misuse("--dry-run waits for its answer: leave --detach out")
	case o.RollBackAfter < 0:
		return spec, outcome.Misuse("--roll-back-after cannot be negative: give a time such as 10m")
	case o.KeepSource < 0:
		return spec, outcome.Misuse("--keep-source-for cannot be negative: give a time such as 1h, or 0s")
	}
	if o.Bandwidth != "" {
		limit, err := resource.ParseQuantity(o.Bandwidth)
		if err != nil || limit.Value() <= 0 {
			return spec, outcome.Misuse("--bandwidth-limit %q is not a number of bytes above 0: give one such as 50Mi", o.Bandwidth)
		}
		spec.BandwidthLimit = &limit
	}
	if o.TTL >= 0 {
		spec.TTLSecondsAfterFinished = ptr.To(int32(min(o.TTL/time.Second, 1<<31-1)))
	}
	return spec, nil
}

func oneOf[T comparable](value T, allowed ...T) bool {
	for _, a := range allowed {
		if value == a {
			return true
		}
	}
	return false
}

// object returns the VolumeMove of claims.
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
