package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// copies returns what VolumeReplicas keep of a claim, the newest copy first.
func (s Setting) copies(claim string) []replica.Copy {
	var all []replica.Copy
	for i := range s.Replicas {
		if r := &s.Replicas[i]; r.DeletionTimestamp == nil && slices.Contains(r.Spec.Claims, claim) {
			all = append(all, replica.Of(r, s.Now))
		}
	}
	slices.SortFunc(all, func(a, b replica.Copy) int {
		if a.Sealed != nil && b.Sealed != nil && !a.Sealed.Equal(b.Sealed) {
			return b.Sealed.Compare(a.Sealed.Time)
		}
		return cmp.Or(boolean(a.Sealed == nil)-boolean(b.Sealed == nil), strings.Compare(a.Name, b.Name))
	})
	return all
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

// away says why nobody can reach the data in a cluster: it does not answer, or is gone. It is empty if the cluster answers, or if that is
// not known.
func (s Setting) away(cluster string) string {
	if cluster == "" || cluster == keys.Home {
		return ""
	}
	remote := s.cluster(cluster)
	if remote == nil {
		if s.ClustersUnknown {
			return ""
		}
		return "it has no RemoteCluster any more"
	}
	if reachable := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Reachable); reachable != nil &&
		reachable.Status == metav1.ConditionFalse {
		return reachable.Message
	}
	return ""
}

// awaits makes an answer that a claim is bound one that it waits, if the cluster that has its data does not answer and a copy is kept of
// it: then there is something to do.
func (c Claim) awaits(s Setting, answer Answer) Answer {
	why := s.away(dataIn(c.Volume))
	if answer.Waiting || why == "" || len(s.copies(c.Name)) == 0 {
		return answer
	}
	return waits("claim %q is bound, but its data is in %s, which does not answer: %s", c.Name, place(dataIn(c.Volume)), why)
}

// withCopies adds to what waits for a cluster that does not answer, or is gone, which copy there is of the data and how it is used. A claim
// that is being deleted needs none.
func (s Setting) withCopies(answer Answer, claims ...Claim) Answer {
	if !answer.Waiting {
		return answer
	}
	for _, claim := range claims {
		if claim.Claim == nil || claim.Claim.DeletionTimestamp != nil {
			continue
		}
		if text := s.copyOf(claim); text != "" {
			answer.Sentence += "; " + text
		}
	}
	return answer
}

// copyOf says what copy there is of a claim whose data cannot be reached; empty if it can be, or no copy is kept.
func (s Setting) copyOf(claim Claim) string {
	unsealed := ""
	for _, c := range s.copies(claim.Name) {
		// A volume that is gone, or that the user may not read, says nothing of its cluster.
		if c.State == replica.ClaimGone || s.away(cmp.Or(dataIn(claim.Volume), c.Primary)) == "" {
			continue
		}
		switch {
		case c.Sealed == nil:
			unsealed = cmp.Or(unsealed, fmt.Sprintf("VolumeReplica %q has no sealed version, so there is no copy of %s in %s", c.Name, c.Quoted(),
				place(c.Standby)))
		case s.away(c.Standby) != "":
			unsealed = cmp.Or(unsealed, c.Has(place(c.Standby), s.Now)+", and does not answer either")
		default:
			how := c.Use()
			if claim.Volume == nil {
				how = c.Look()
			}
			return c.Has(place(c.Standby), s.Now) + ": " + how
		}
	}
	return unsealed
}

// copyLines describes the copies that are kept of a claim, a line each, with what is wrong.
func (s Setting) copyLines(claim string, said *told) []string {
	var lines []string
	for _, c := range s.copies(claim) {
		line := fmt.Sprintf("replica %s of claim %s: nothing sealed yet in %s", c.Name, claim, place(c.Standby))
		if c.Sealed != nil {
			line = fmt.Sprintf("replica %s of claim %s: version %d in %s, %s old, RPO %s", c.Name, claim, c.Version, place(c.Standby), c.Lag(s.Now),
				replica.Short(c.RPO.Duration))
		}
		if c.State != "Sealed" {
			line += fmt.Sprintf(" (%s)%s", c.Words(), said.more(c.Message))
		}
		lines = append(lines, line)
	}
	return lines
}
