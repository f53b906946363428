package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// Outage is what decides whether a claim fails over by itself.
type Outage struct {
	Replica *v1alpha1.VolumeReplica
	Record  *record.Record
	// Claims are those of the replica, in its order.
	Claims []AffectedClaim
	// At is the cluster that has the data of the first claim, empty if it has none.
	At string
	// Silent is how long this process has seen that the API server of cluster At does not answer, without a break: 0 if it answers, or
	// if it is not known. It is measured by a clock that is never set. Since is when the outage began, by home's clock.
	Silent time.Duration
	Since  time.Time
	Now    time.Time
	// StandbyAway says why the standby cannot be used, empty if it can. Witness is a cluster that answers, is not home and not At, empty
	// if there is none.
	StandbyAway string
	Witness     string
	// Probes is what the agents of other clusters find that are to probe cluster At.
	Probes []Probe
	// Runnable is whether the standby could run the pods; the zero value: that was not found out.
	Runnable Runnable
	// Promised says that the remote agent of cluster At has promised to end the pods there, which a failover with fence Lease waits for.
	Promised bool
	// Moving says that a move holds one of the claims, Tried that this version was failed over to before.
	Moving, Tried bool
	// Other is the VolumeMove by which the claim failed over to another copy of it in this outage; empty: there is none.
	Other string
}

// Probe is what the agent of one cluster finds of another one.
type Probe struct {
	// By is the cluster whose agent it is, and Answers says that the other one answered it.
	By      string
	Answers bool
	// Fresh says that it was seen to say so a short time ago. What it says is not known otherwise, unless it is Answers: that may be
	// written once for a long time.
	Fresh bool
}

// AffectedClaim is a claim of a replica in an outage.
type AffectedClaim struct {
	// Claim is nil if it is gone, and At the cluster that has its data, empty if it has none.
	Claim *corev1.PersistentVolumeClaim
	At    string
}

// left returns why the claim of a part is not one that can fail over with the data of cluster at; empty: it is.
func (c AffectedClaim) left(part *record.Part, at string) string {
	switch {
	case c.Claim == nil || c.Claim.UID != part.ClaimUID || c.Claim.DeletionTimestamp != nil:
		return fmt.Sprintf("claim %q is gone", part.Claim)
	case c.At == "":
		return fmt.Sprintf("claim %q has no volume", part.Claim)
	case c.At != at:
		return fmt.Sprintf("claim %q has its data in cluster %s", part.Claim, c.At)
	}
	return ""
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
	case o.Claims[0].left(&o.Record.Part, o.At) != "":
		return nil, ""
	case o.Moving && (o.Tried || o.Other != ""):
		return nil, "" // That is the failover.
	case o.At == keys.Home || o.At == o.Record.Head.Cluster:
		return nil, ""
	}
	claims, fails, does := fmt.Sprintf("claim %q", o.Record.Claim), "fails", "does not fail over by itself"
	if o.Record.Len() > 1 {
		claims, fails, does = "claims "+strings.Join(o.Record.Claims(), ", "), "fail", "do not fail over by themselves"
	}
	not := func(format string, args ...any) (*v1alpha1.VolumeMove, string) {
		return nil, fmt.Sprintf("cluster %s does not answer, and %s %s: ", o.At, claims, does) +
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
	for i, claim := range o.Claims[1:] {
		if why := claim.left(&o.Record.Others[i], o.At); why != "" {
			return not("%s, and all of them fail over together or none", why)
		}
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
	case o.Other != "":
		return not("VolumeMove %s did that with another copy and has ended; fail over by kubectl lodestone failover", o.Other)
	case Ahead(newest.Cut, o.Now):
		return not("its newest version is of %s, which has not come yet, so nobody knows how old it is: a clock was ahead, or is behind; "+
			"fail over by kubectl lodestone failover", newest.Cut.UTC().Format(time.RFC3339))
	case o.Since.Sub(newest.Cut) > loss:
		return not("what was written from %s on would be left out, which is more than maxLoss of %s; fail over by kubectl lodestone failover "+
			"if that may be", newest.Cut.UTC().Format(time.RFC3339), loss)
	case o.StandbyAway != "":
		return not("%s", o.StandbyAway)
	case o.Witness == "":
		return not("no other remote cluster answers either, so home may be the one that is cut off; fail over by kubectl lodestone failover")
	case o.Silent < after:
		return nil, fmt.Sprintf("cluster %s does not answer: %s %s over to cluster %s once that has been so for %s", o.At, claims, fails,
			o.Record.Head.Cluster, after)
	}
	for _, probe := range o.Probes {
		if probe.Answers {
			return not("it answers cluster %s, whose owner has it probed, so home may be the one that is cut off; fail over by kubectl lodestone "+
				"failover if it is lost all the same", probe.By)
		}
	}
	if len(o.Probes) > 0 && !slices.ContainsFunc(o.Probes, func(p Probe) bool { return p.Fresh }) {
		return not("cluster %s, whose owner has it probed, has not said within the last minute that it does not answer there either; see its "+
			"remote agent, or fail over by kubectl lodestone failover", o.Probes[0].By)
	}
	if o.Runnable.No() {
		return not("cluster %s could not run its pods: %s; mend that, or fail over by kubectl lodestone failover", o.Record.Head.Cluster,
			o.Runnable.Why)
	}
	fence := v1alpha1.FenceDeclared
	if o.Promised {
		fence = v1alpha1.FenceLease
	}
	why = fmt.Sprintf("cluster %s has not answered for %s: %s %s over to version %s in cluster %s", o.At, o.Silent.Round(time.Second),
		claims, fails, newest.Name, o.Record.Head.Cluster)
	return &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: replica.Namespace, Name: FailoverName(newest)},
		Spec: v1alpha1.VolumeMoveSpec{
			Claims: replica.Spec.Claims, Target: v1alpha1.MoveTarget{Cluster: o.Record.Head.Cluster},
			Failover: &v1alpha1.MoveFailover{Replica: replica.Name, Version: newest.Name, Fence: fence},
		},
	}, why
}

// Freshest returns those of failovers that are due which are to begin: of those to several copies of a claim the one with the newest
// version, and of two as new the one whose VolumeReplica comes first by name. The newest come first.
func Freshest[T any](due []T, of func(T) Outage) (begin []T) {
	due = slices.Clone(due)
	slices.SortFunc(due, func(a, b T) int {
		one, other := of(a), of(b)
		return cmp.Or(other.Record.Newest().Cut.Compare(one.Record.Newest().Cut), cmp.Compare(one.Replica.Namespace, other.Replica.Namespace),
			cmp.Compare(one.Replica.Name, other.Replica.Name))
	})
	taken := map[types.UID]bool{}
	for _, next := range due {
		claims := of(next).Record.ClaimUIDs()
		if slices.ContainsFunc(claims, func(claim types.UID) bool { return taken[claim] }) {
			continue
		}
		for _, claim := range claims {
			taken[claim] = true
		}
		begin = append(begin, next)
	}
	return begin
}

// FailoverName is the name of the VolumeMove that fails over to a version by itself. There is one for a version, so that one that was
// aborted is not made again.
func FailoverName(version *record.Version) string {
	return "failover-" + strings.TrimPrefix(version.Name, "replica-")
}
