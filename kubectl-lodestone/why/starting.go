package why

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// remote are the reasons of the virtual node's events that explain a pod which
// has not started.
var remote = reasons("RemotePodPending", "RemotePodEnding", "RemotePodLost", "RemotePodGone", "OtherCluster",
	"StaticPod", "DaemonSetPod", "NotScheduled", "NamespaceNotOpen", "ClaimStaysHome", "CreateFailed", "StartFailed", "HoldFailed")

// kubelet are the reasons of a kubelet's events that explain a pod which has not
// started.
var kubelet = reasons("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", "Failed")

// probes are the reasons of a kubelet's events that explain a pod which runs and is not ready.
var probes = reasons("Unhealthy", "ProbeError")

// scheduling are the reasons of events there that the status of the pod tells too, and only as long as
// they are true.
var scheduling = reasons("FailedScheduling")

// starting returns why a pod has not started that has a node; where says which.
func (p Pod) starting(s Setting, where string) Answer {
	pod, own := p.Pod, fromHome(p.Events)
	unscheduled := pod.Status.Reason == corev1.PodReasonUnschedulable
	there := recent(s, newest(fromClusters(p.Events), scheduling))
	event := recent(s, latest(own, remote))
	switch said := pod.Status.Message; {
	case said != "" && !unscheduled && (event == nil || !strings.Contains(event.Message, said)):
		return waits("pod %q is %s: %s", pod.Name, where, said)
	case event != nil && (said != "" && !unscheduled || there == nil || !when(*there).After(when(*event))):
		return waits("pod %q is %s: %s", pod.Name, where, event.Message)
	}
	for _, claim := range p.Claims {
		if reason := claim.hinders(s); reason != "" {
			return waits("pod %q cannot start %s, for %s", pod.Name, where, reason)
		}
	}
	if unscheduled && pod.Status.Message != "" {
		return waits("pod %q is %s: %s", pod.Name, where, pod.Status.Message)
	}
	if event := recent(s, latest(own, kubelet)); event != nil {
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
	if event := recent(s, latest(p.Events, probes)); event != nil {
		return text(event)
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

// fromClusters returns the events that came from remote clusters. What they say is shown, and nothing
// is concluded from it.
func fromClusters(events []corev1.Event) []corev1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool { return e.Labels[keys.Cluster] == "" })
}

// fromHome returns the other events.
func fromHome(events []corev1.Event) []corev1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool { return e.Labels[keys.Cluster] != "" })
}

// newest returns the last event that has none of the reasons, nil if there is none.
func newest(events []corev1.Event, but map[string]bool) *corev1.Event {
	left := slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool { return but[e.Reason] })
	if last := Newest(left, 1); len(last) > 0 {
		return &last[0]
	}
	return nil
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
	return sentence.Unmarked(event.Labels[keys.Cluster], event.Message)
}
