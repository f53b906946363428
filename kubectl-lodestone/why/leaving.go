package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// leaving says that a namespace is being deleted, and all that is in it.
func leaving(namespace *corev1.Namespace) bool {
	return namespace != nil && (namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating)
}

// withNamespace says of what waits in a namespace that is being deleted that it goes with it, and offers nothing that could not be
// done there any more. deleted says that its own deletion has begun, of which the answer speaks.
func (s Setting) withNamespace(answer Answer, what string, deleted bool) Answer {
	switch {
	case !leaving(s.Namespace) || !answer.Waiting:
		return answer
	case deleted:
		answer.Sentence += fmt.Sprintf("; its namespace %q is being deleted, too", s.Namespace.Name)
		return answer
	}
	return waits("%s goes with namespace %q, which is being deleted: nothing is made in it any more; kubectl lodestone why namespace/%s says "+
		"what it waits for", what, s.Namespace.Name, s.Namespace.Name)
}

// Namespace has the facts about a namespace.
type Namespace struct {
	Namespace *corev1.Namespace
	Claims    []corev1.PersistentVolumeClaim
	Pods      []corev1.Pod
	Moves     []v1alpha1.VolumeMove
}

// mostLeft is how many objects are named that keep a namespace.
const mostLeft = 5

// Of returns what a namespace waits for that is being deleted, or to which clusters it is open.
func (n Namespace) Of(s Setting) Answer {
	s.Namespace = n.Namespace
	name := n.Namespace.Name
	if !leaving(n.Namespace) {
		answer := fine("%s", strings.Join(s.namespaceLine(), ""))
		if n.Namespace.Labels[keys.Offload] != keys.OffloadEnabled {
			answer.Sentence += fmt.Sprintf(" (kubectl label namespace %s %s=%s opens it)", name, keys.Offload, keys.OffloadEnabled)
		}
		return answer
	}
	var left []string
	for i := range n.Moves {
		move := &n.Moves[i]
		left = append(left, fmt.Sprintf("VolumeMove %s, which goes back or comes to its end%s", move.Name,
			sentence.Prefixed(": ", move.Status.Message)))
	}
	for i := range n.Pods {
		if n.Pods[i].DeletionTimestamp != nil {
			left = append(left, Pod{Pod: &n.Pods[i]}.deleting(s).Sentence)
		}
	}
	for i := range n.Claims {
		if n.Claims[i].DeletionTimestamp != nil {
			left = append(left, Claim{Name: n.Claims[i].Name, Claim: &n.Claims[i], Pods: usersOf(n.Pods, n.Claims[i].Name)}.deleting(true).Sentence)
		}
	}
	facts := slices.Clone(left)
	since := ""
	if at := n.Namespace.DeletionTimestamp; at != nil {
		since = " since " + duration.HumanDuration(s.Now.Sub(at.Time).Round(time.Second))
	}
	for _, condition := range n.Namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			facts = append(facts, fmt.Sprintf("condition %s: %s", condition.Type, condition.Message))
		}
	}
	answer := waits("namespace %q is being deleted%s: Kubernetes removes what is in it, which takes a moment", name, since)
	switch more := len(left) - mostLeft; {
	case len(left) > 0:
		answer = waits("namespace %q is being deleted%s and waits for: %s", name, since, strings.Join(left[:min(mostLeft, len(left))], "; "))
		if more > 0 {
			answer.Sentence += fmt.Sprintf("; and %d more", more)
		}
	case len(facts) > 0:
		answer = waits("namespace %q is being deleted%s, and what is left in it is not Lodestone's: %s", name, since, facts[0])
	}
	answer.Facts = facts
	return answer.plain()
}

func usersOf(pods []corev1.Pod, claim string) []corev1.Pod {
	var users []corev1.Pod
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
				v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
		}) {
			users = append(users, pod)
		}
	}
	return users
}

// holders says, of the finalizers of a claim that is being deleted, who takes each off and when.
func holders(finalizers []string) string {
	var all []string
	for _, finalizer := range finalizers {
		switch finalizer {
		case keys.MoveFinalizer:
			all = append(all, "a move of it, which ends first (kubectl lodestone move status)")
		case "kubernetes.io/pvc-protection":
			all = append(all, "Kubernetes, until no pod uses it")
		default:
			all = append(all, "finalizer "+finalizer)
		}
	}
	return strings.Join(all, ", ")
}

// lost returns what there is to say of a claim that Kubernetes calls Lost, since its volume is not there.
func (c Claim) lost() Answer {
	claim := c.Claim
	if virtualclass.Is(c.Class) {
		return waits("claim %q is Lost, for somebody deleted its volume %q and took its finalizers off; Lodestone has not deleted the data "+
			"behind it, and does not when the claim is deleted: delete the claim, then an administrator runs kubectl lodestone import pv/VOLUME "+
			"-n %s --class %s --as %s, where VOLUME is what kubectl get pvc -A -l %s=%s shows; if that is in a remote cluster, kubectl "+
			"lodestone import pvc/%s -n %s --class %s --cluster CLUSTER --remote-context CONTEXT", c.Name, claim.Spec.VolumeName,
			claim.Namespace, c.Class.Name, c.Name, keys.ClaimUID, claim.UID, c.Name, claim.Namespace, c.Class.Name)
	}
	return waits("claim %q has lost its volume %q: restore the data from a backup, or delete the claim", c.Name, claim.Spec.VolumeName)
}

// volumeDeleted returns what there is to say of a claim whose volume somebody has deleted, while it is bound; false if nobody has.
func (c Claim) volumeDeleted() (Answer, bool) {
	if c.Volume == nil || c.Volume.DeletionTimestamp == nil || c.Claim.Labels[keys.Moving] == keys.MovingNow {
		return Answer{}, false
	}
	return waits("claim %q is bound, but somebody deleted its volume %q: pods go on with it and the data stays, for Kubernetes keeps the "+
		"volume as long as the claim is there; delete no claim of which you need the data, and copy that to a new claim",
		c.Name, c.Volume.Name), true
}
