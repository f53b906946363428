package why

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// probes are the reasons of a kubelet's events that explain a pod which runs and is not ready.
var probes = reasons("Unhealthy", "ProbeError")

// scheduling are the reasons of events there that the status of the pod tells too, and only as long as
// they are true.
var scheduling = reasons("FailedScheduling")

// otherCluster is the reason of the event that says that a pod may run in another cluster than its node
// stands for now.
const otherCluster = "OtherCluster"

// notScheduled begins what the virtual node says of a pod for which the remote scheduler has no node.
const notScheduled = "not scheduled in the remote cluster: "

// starting returns why a pod has not started that has a node; where says which.
func (p Pod) starting(s Setting, where string) Answer {
	pod, said := p.Pod, p.Pod.Status.Message
	unscheduled := pod.Status.Reason == corev1.PodReasonUnschedulable
	there := recent(s, last(p.Events, func(e corev1.Event) bool { return fromCluster(e) && !scheduling[e.Reason] }))
	event := recent(s, latest(p.Events, remote))
	if said != "" && !unscheduled && (event == nil || !strings.Contains(event.Message, said)) {
		return waits("pod %q is %s: %s", pod.Name, where, said)
	}
	// What the virtual node says only in an event is over once more is said there; but not that the pod
	// may run in another cluster than this one.
	over := there != nil && event != nil && (said == "" || unscheduled) && event.Reason != otherCluster && when(*there).After(when(*event))
	if event != nil && !over {
		return waits("pod %q is %s: %s", pod.Name, where, event.Message)
	}
	for _, claim := range p.Claims {
		if reason := claim.hinders(s); reason != "" {
			return waits("pod %q cannot start %s, for %s", pod.Name, where, reason)
		}
	}
	if unscheduled && said != "" {
		return waits("pod %q is %s, where it fits no node: %s", pod.Name, where, fitsNone(strings.TrimPrefix(said, notScheduled)))
	}
	if event := recent(s, latest(p.Events, kubelet)); event != nil {
		return waits("pod %q is %s: %s", pod.Name, where, event.Message)
	}
	switch {
	case there == nil:
		return waits("pod %q is being started %s", pod.Name, where)
	case there.Type == corev1.EventTypeWarning:
		return waits("pod %q is %s: %s", pod.Name, where, text(there))
	}
	return waits("pod %q is being started %s: %s", pod.Name, where, text(there))
}

// notReady returns why a pod runs and is not ready; the condition of the pod says only that.
func (p Pod) notReady(s Setting, condition corev1.PodCondition) string {
	if event := recent(s, last(p.Events, func(e corev1.Event) bool { return probes[e.Reason] })); event != nil {
		return text(event)
	}
	if found := notYet.FindStringSubmatch(condition.Message); found != nil {
		return "the readiness probe of " + strings.Join(strings.Fields(found[2]), ", ") + " has not succeeded yet"
	}
	return first(condition.Message, "its readiness probe has not succeeded yet")
}

// hinders returns why no pod can start with a claim, empty if one can.
func (c Claim) hinders(s Setting) string {
	if c.Claim != nil && c.Claim.DeletionTimestamp == nil && c.Claim.Status.Phase == corev1.ClaimBound {
		// One that is not expanded can be used.
		return c.impaired(s)
	}
	if answer := c.judge(s); answer.Waiting {
		return answer.Sentence
	}
	return ""
}

// fromCluster reports whether an event came from a remote cluster.
func fromCluster(e corev1.Event) bool { return e.Labels[keys.Cluster] != "" }

// last returns the last event that counts, nil if none does.
func last(events []corev1.Event, counts func(corev1.Event) bool) *corev1.Event {
	var found *corev1.Event
	for i := range events {
		if counts(events[i]) && (found == nil || when(events[i]).After(when(*found))) {
			found = &events[i]
		}
	}
	return found
}

// recent returns an event that counts as true still, nil for another.
func recent(s Setting, event *corev1.Event) *corev1.Event {
	if event == nil || s.Now.Sub(when(*event)) >= memory {
		return nil
	}
	return event
}

// text returns the text of an event, without the cluster that it came from: the sentence names that.
func text(event *corev1.Event) string {
	return first(sentence.Unmarked(event.Labels[keys.Cluster], event.Message), event.Reason)
}
