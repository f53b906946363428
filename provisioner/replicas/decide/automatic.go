package decide

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Outage is what decides whether a claim fails over by itself.
type Outage struct {
	Replica *v1alpha1.VolumeReplica
	Record  *record.Record
	// Claim is the claim, nil if it is gone, and At the cluster that has its data, empty if it has none.
	Claim *corev1.PersistentVolumeClaim
	At    string
	// Silent is how long this process has seen that the API server of cluster At does not answer, without a break: 0 if it answers, or
	// if it is not known. It is measured by a clock that is never set. Since is when the outage began, by home's clock.
	Silent time.Duration
	Since  time.Time
	Now    time.Time
	// StandbyAway says why the standby cannot be used, empty if it can. Witness is a cluster that answers, is not home and not At, empty
	// if there is none.
	StandbyAway string
	Witness     string
	// Moving says that a move holds the claim, Tried that this version was failed over to before.
	Moving, Tried bool
}

// defaultAfter is how long a cluster must not have answered.
const defaultAfter = 10 * time.Minute

// FailsOver returns the failover that is to begin by itself; nil: none, or not yet. why says what holds it up, or when it begins, in one
// sentence for the user of the replica; empty: nothing is lost.
func (o Outage) FailsOver() (move *v1alpha1.VolumeMove, why string) {
	replica := o.Replica
	automatic := replica.Spec.AutomaticFailover
	switch {
	case automatic == nil || replica.DeletionTimestamp != nil || o.Record == nil || o.Silent <= 0:
		return nil, ""
	case o.Claim == nil || o.Claim.UID != o.Record.ClaimUID || o.Claim.DeletionTimestamp != nil:
		return nil, ""
	case o.Moving && o.Tried:
		return nil, "" // That is the failover.
	case o.At == keys.Home || o.At == o.Record.Head.Cluster:
		return nil, ""
	}
	not := func(format string, args ...any) (*v1alpha1.VolumeMove, string) {
		return nil, fmt.Sprintf("cluster %s does not answer, and claim %q does not fail over by itself: ", o.At, o.Claim.Name) +
			fmt.Sprintf(format, args...)
	}
	newest := o.Record.Newest()
	after, loss := defaultAfter, 2*RPO(replica)
	if automatic.After != nil {
		after = automatic.After.Duration
	}
	if automatic.MaxLoss != nil {
		loss = automatic.MaxLoss.Duration
	}
	switch {
	case newest == nil:
		return not("no version is sealed yet")
	case replica.Spec.Paused:
		return not("spec.paused is set")
	case o.Moving:
		return not("a move holds it; see kubectl lodestone move status")
	case o.Tried:
		return not("VolumeMove %s did that with the newest version and has ended; fail over by kubectl lodestone failover", FailoverName(newest))
	case o.Since.Sub(newest.Cut) > loss:
		return not("what was written from %s on would be left out, which is more than maxLoss of %s; fail over by kubectl lodestone failover "+
			"if that may be", newest.Cut.UTC().Format(time.RFC3339), loss)
	case o.StandbyAway != "":
		return not("%s", o.StandbyAway)
	case o.Witness == "":
		return not("no other remote cluster answers either, so home may be the one that is cut off; fail over by kubectl lodestone failover")
	case o.Silent < after:
		return nil, fmt.Sprintf("cluster %s does not answer: claim %q fails over to cluster %s once that has been so for %s", o.At, o.Claim.Name,
			o.Record.Head.Cluster, after)
	}
	why = fmt.Sprintf("cluster %s has not answered for %s: claim %q fails over to version %s in cluster %s", o.At, o.Silent.Round(time.Second),
		o.Claim.Name, newest.Name, o.Record.Head.Cluster)
	return &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: replica.Namespace, Name: FailoverName(newest)},
		Spec: v1alpha1.VolumeMoveSpec{
			Claims: replica.Spec.Claims, Target: v1alpha1.MoveTarget{Cluster: o.Record.Head.Cluster},
			Failover: &v1alpha1.MoveFailover{Replica: replica.Name, Version: newest.Name, Fence: v1alpha1.FenceDeclared},
		},
	}, why
}

// FailoverName is the name of the VolumeMove that fails over to a version by itself. There is one for a version, so that one that was
// aborted is not made again.
func FailoverName(version *record.Version) string {
	return "failover-" + strings.TrimPrefix(version.Name, "replica-")
}
