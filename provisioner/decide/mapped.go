package decide

import (
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// settle is how long a namespace may take without a word to the user.
const settle = 3 * time.Second

// Reasons why a cluster was refused for want of its namespace.
const (
	namespaceRefused = "NamespaceRefused"
	namespaceNotMade = "NamespaceNotMade"
)

// Outlived says whether the ground of a refusal is gone before its time: the
// cluster has given the namespace since.
func Outlived(o Observation, r refusal.Refusal) bool {
	return (r.Reason == namespaceRefused || r.Reason == namespaceNotMade) && o.Cluster(r.Cluster).Mapped.Given
}

// awaitNamespace is the step for a claim whose backing claim needs a namespace
// that the cluster has not given yet. One that it refuses sends the claim
// elsewhere; so does silence, after a while.
func awaitNamespace(o Observation, id string, mapped Mapped) Step {
	if mapped.Reason != "" {
		return giveUp(o, &Refusal{Cluster: id, Reason: namespaceRefused, Message: fmt.Sprintf(
			"cluster %s gives namespace %q no place: %s", id, o.Claim.Namespace, mapped.Message)}, nil)
	}
	waited := o.Now.Sub(mapped.Since)
	switch {
	case waited >= Patience && mapped.Message != "":
		return giveUp(o, &Refusal{Cluster: id, Reason: namespaceNotMade, Message: fmt.Sprintf(
			"cluster %s has no namespace for %q yet: %s", id, o.Claim.Namespace, mapped.Message)}, nil)
	case waited >= Patience:
		return giveUp(o, &Refusal{Cluster: id, Reason: namespaceNotMade, Message: fmt.Sprintf(
			"cluster %s does not answer the request for namespace %q: let its administrator see whether the remote agent runs there (namespace lodestone-remote)", id, o.Claim.Namespace)}, nil)
	}
	step := Step{Verb: Idle, After: settle - waited}
	if waited >= settle {
		step.After = Patience - waited + time.Millisecond
		text := fmt.Sprintf("waiting until cluster %s has made the namespace that belongs to %q", id, o.Claim.Namespace)
		if mapped.Message != "" {
			text += ": " + mapped.Message
		}
		step.Tell = note("WaitingForNamespace", text)
	}
	return step
}
