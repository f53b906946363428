// Package replica says of VolumeReplicas what their standbys have, how old that is, and what is wrong with it: as values for tables and
// programs, and in the words that all commands share. It is pure.
package replica

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Copy is what there is to say of a VolumeReplica. As JSON it is part of what status -o json prints: fields are added, but none is
// renamed or removed.
type Copy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Claim is the claim, the first one of several; Claims are these, whose versions are of one moment.
	Claim  string   `json:"claim"`
	Claims []string `json:"claims,omitempty"`
	// Primary is the cluster that has the data, missing while that is not known; Standby has the copy, of real class Class.
	Primary string `json:"primary,omitempty"`
	Standby string `json:"standby"`
	Class   string `json:"class,omitempty"`
	// RPO is how old the newest sealed version may be.
	RPO metav1.Duration `json:"rpo"`
	// Sealed is the moment that the newest sealed version is of, Version its number and Snapshot its name at the standby; they are missing
	// while nothing is sealed. Versions is how many there are, Sent how many bytes travelled for the newest.
	Sealed   *metav1.Time `json:"sealed,omitempty"`
	Version  int64        `json:"version,omitempty"`
	Snapshot string       `json:"snapshot,omitempty"`
	Versions int          `json:"versions"`
	Sent     int64        `json:"sent,omitempty"`
	// Consistency is how the newest version was made: Crash, Frozen or AtRest; missing while that is not known.
	Consistency string `json:"consistency,omitempty"`
	// Runnable says whether the standby could run the pods that use the claims, True, False or Unknown, and RunnableMessage why; missing
	// while it was not found out.
	Runnable        string `json:"runnable,omitempty"`
	RunnableMessage string `json:"runnableMessage,omitempty"`
	// Point is the point that is being made, in words.
	Point  string `json:"point,omitempty"`
	Paused bool   `json:"paused,omitempty"`
	// Healthy is the condition of that name. Late says that the newest version is older than the RPO.
	Healthy bool `json:"healthy"`
	Late    bool `json:"late"`
	// Suspect is the condition of that name: an abnormal share has changed, or something without anybody having written it.
	Suspect bool `json:"suspect,omitempty"`
	// State is Late, Unknown before the provisioner has looked at it, or the reason of the condition Healthy. Message is one sentence, and
	// missing if all is well.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// States that are not reasons of the condition Healthy.
const (
	// Unknown: the provisioner has not looked at it.
	Unknown = "Unknown"
	// Late: nothing but time is in its way.
	Late = "Late"
)

// Reasons of the condition Healthy that say that nothing is wrong.
const (
	seeding = "Seeding"
	paused  = "Paused"
	moving  = "Moving"
	waiting = "Waiting"
)

// ClaimGone is the reason of the condition Healthy if the claim is gone, or is another one of that name.
const ClaimGone = "ClaimGone"

// Of returns what there is to say of a VolumeReplica.
func Of(r *v1alpha1.VolumeReplica, now time.Time) Copy {
	c := Copy{Namespace: r.Namespace, Name: r.Name, Primary: r.Status.Primary, Paused: r.Spec.Paused,
		RPO: metav1.Duration{Duration: rpoOf(r)}, State: Unknown,
		Message: "the provisioner has not looked at it yet: see whether it runs (kubectl get pods -n lodestone-system)"}
	if len(r.Spec.Claims) > 0 {
		c.Claim = r.Spec.Claims[0]
		if len(r.Spec.Claims) > 1 {
			c.Claims = r.Spec.Claims
		}
	}
	if len(r.Spec.Standbys) > 0 {
		c.Standby, c.Class = r.Spec.Standbys[0].Cluster, r.Spec.Standbys[0].ClassName
	}
	if len(r.Status.Standbys) > 0 {
		at := r.Status.Standbys[0]
		c.Class, c.Sealed, c.Sent, c.Point, c.Versions = at.Class, at.Sealed, at.Sent, at.Point, len(at.Versions)
		c.Runnable, c.RunnableMessage = string(at.Runnable), at.RunnableMessage
		if len(at.Versions) > 0 {
			c.Snapshot, c.Consistency = at.Versions[0].Name, string(at.Versions[0].Consistency)
			c.Version = versionOf(c.Snapshot)
		}
	}
	within := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReplicaWithinRPO)
	c.Late = within != nil && within.Status == metav1.ConditionFalse || c.Sealed != nil && now.Sub(c.Sealed.Time) > c.RPO.Duration
	if healthy := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReplicaHealthy); healthy != nil {
		c.Healthy = healthy.Status == metav1.ConditionTrue
		c.State, c.Message = healthy.Reason, healthy.Message
	}
	if c.Healthy {
		c.Message = ""
		if c.Late {
			c.State = Late
			c.Message = fmt.Sprintf("the newest version is older than the RPO of %s", Short(c.RPO.Duration))
			if within != nil && within.Status == metav1.ConditionFalse {
				c.Message = within.Message
			}
		}
	}
	if suspect := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReplicaSuspect); suspect != nil &&
		suspect.Status == metav1.ConditionTrue {
		c.Suspect = true
		if c.Message != "" {
			c.Message += "; "
		}
		c.Message += suspect.Message
	}
	return c
}

func rpoOf(r *v1alpha1.VolumeReplica) time.Duration {
	if r.Spec.RPO == nil {
		return 15 * time.Minute
	}
	return r.Spec.RPO.Duration
}

var numbered = regexp.MustCompile(`-v([0-9]+)-[0-9]+$`)

// versionOf returns the number of a version from the name of its snapshot, 0 for a name without one.
func versionOf(snapshot string) int64 {
	found := numbered.FindStringSubmatch(snapshot)
	if found == nil {
		return 0
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Refused says that something is in the way that does not pass by itself, or not soon.
func (c Copy) Refused() bool {
	return !c.Healthy && !slices.Contains([]string{Unknown, seeding, paused, moving, waiting}, c.State)
}

// Behind says that somebody should look at it: it is late and not paused, something is in its way, or it is suspect.
func (c Copy) Behind() bool { return c.Late && !c.Paused || c.Refused() || c.Suspect }

// ForGood says that what is in the way stays until somebody changes something.
func (c Copy) ForGood() bool {
	return slices.Contains([]string{"NoSnapshots", "SameCluster", ClaimGone}, c.State)
}

// MayPass says that what is in the way may go by itself, soon after a VolumeReplica was made, or stay for good.
func (c Copy) MayPass() bool { return c.State == "Refused" }

// Words are the state in few words: with what is wrong, whether the copy is late or suspect, too.
func (c Copy) Words() string {
	words := c.State
	if c.Late && c.State != Late {
		words += ", late"
	}
	if c.Suspect {
		words += ", suspect"
	}
	return words
}

// Lag is how old the newest version is, for tables; empty while there is none.
func (c Copy) Lag(now time.Time) string {
	if c.Sealed == nil {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(c.Sealed.Time), 0))
}

// Short writes a time without the zeros that Go writes: 15m for 15m0s.
func Short(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if len(text) > len(zeros) && text[len(text)-len(zeros):] == zeros {
			text = text[:len(text)-len(zeros)+1]
		}
	}
	return text
}

// Names are the claims, for tables.
func (c Copy) Names() string {
	if len(c.Claims) == 0 {
		return c.Claim
	}
	return strings.Join(c.Claims, ",")
}

// Quoted are the claims, as they are named in a sentence: claim "data", or claims "data", "wal".
func (c Copy) Quoted() string {
	if len(c.Claims) == 0 {
		return fmt.Sprintf("claim %q", c.Claim)
	}
	return `claims "` + strings.Join(c.Claims, `", "`) + `"`
}

// Has is the sentence that a cluster has a copy, as "cluster east has a copy of claim data, 7m old (version 12)"; place names the
// cluster. It is empty while nothing is sealed.
func (c Copy) Has(place string, now time.Time) string {
	if c.Sealed == nil {
		return ""
	}
	text := fmt.Sprintf("%s has a copy of %s, %s old", place, c.Quoted(), c.Lag(now))
	if c.Version > 0 {
		text += fmt.Sprintf(" (version %d)", c.Version)
	}
	if c.Late {
		text += fmt.Sprintf(", which is more than its RPO of %s", Short(c.RPO.Duration))
	}
	return text
}

// CannotRun is the sentence that the standby could not run the pods that use the claims; empty if that is not known of it.
func (c Copy) CannotRun() string {
	if c.Runnable != "False" {
		return ""
	}
	return fmt.Sprintf("cluster %s could not run the pods of %s now: %s", c.Standby, c.Quoted(), c.RunnableMessage)
}

// Look says how a version is used of a claim that has no volume any more, for which nothing can be failed over.
func (c Copy) Look() string {
	return "docs/replicas.md#drills says how to make a new claim of it"
}

// Use says how the copy is used once the cluster of the claim is lost. All commands say it in these words, and nowhere else.
func (c Copy) Use() string {
	return fmt.Sprintf("kubectl lodestone failover %s -n %s has the claim use it, with --fence Lease if condition %s of that RemoteCluster "+
		"is True, else with --fence Declared", c.Claim, c.Namespace, v1alpha1.PodLeasePromised)
}
