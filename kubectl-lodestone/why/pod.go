package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Of returns why a pod waits.
func (p Pod) Of(s Setting) Answer {
	answer := p.judge(s)
	answer.Facts = p.facts(s)
	return answer
}

func (p Pod) judge(s Setting) Answer {
	pod := p.Pod
	switch {
	case pod.DeletionTimestamp != nil:
		return p.deleting(s)
	case pod.Status.Phase == corev1.PodSucceeded:
		return fine("pod %q has ended well", pod.Name)
	case pod.Status.Phase == corev1.PodFailed:
		return waits("pod %q has failed: %s", pod.Name, failure(pod))
	case pod.Spec.NodeName == "":
		return p.unscheduled(s)
	}
	return p.scheduled(s)
}

func failure(pod *corev1.Pod) string {
	if pod.Status.Message != "" {
		return pod.Status.Message
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %q ended with code %d (%s): kubectl logs %s -n %s -c %s", status.Name, t.ExitCode, t.Reason, pod.Name, pod.Namespace, status.Name)
		}
	}
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	return "kubectl describe pod says more"
}

// deleting says what a pod that is being deleted waits for.
func (p Pod) deleting(s Setting) Answer {
	pod, node := p.Pod, s.node(p.Pod.Spec.NodeName)
	if !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		if others := pod.Finalizers; len(others) > 0 {
			return waits("pod %q is being deleted and is held by %s", pod.Name, strings.Join(others, ", "))
		}
		if node == nil && !s.NodesUnknown {
			return waits("pod %q is being deleted, and its node %q is gone: Kubernetes removes the pod within a minute", pod.Name, pod.Spec.NodeName)
		}
		return waits("pod %q is being deleted: its containers have until %s to end", pod.Name, pod.DeletionTimestamp.UTC().Format("15:04:05"))
	}
	cluster := pod.Spec.NodeName
	if node != nil && node.Labels[keys.Cluster] != "" {
		cluster = node.Labels[keys.Cluster]
	}
	if event := latest(p.Events, reasons("OtherCluster")); event != nil {
		return waits("pod %q is being deleted, but %s", pod.Name, event.Message)
	}
	problem := ""
	switch {
	case s.NodesUnknown:
	case node == nil:
		problem = "its node is gone"
	default:
		problem = down(node)
	}
	if problem != "" {
		return waits("pod %q is being deleted, but whether its copy in %s has ended cannot be seen (%s): it goes by itself once that cluster answers; if that cluster is gone for ever: kubectl lodestone release pod %s -n %s", pod.Name, place(cluster), problem, pod.Name, pod.Namespace)
	}
	return waits("pod %q is being deleted and waits until its copy in %s has ended", pod.Name, place(cluster))
}

// remote are the reasons of the virtual node's events that explain a pod which
// has not started.
var remote = reasons("RemotePodPending", "RemotePodEnding", "RemotePodLost", "RemotePodGone", "OtherCluster",
	"StaticPod", "DaemonSetPod", "NotScheduled", "NamespaceNotOpen", "CreateFailed", "StartFailed", "HoldFailed")

// kubelet are the reasons of a kubelet's events that explain a pod which has not
// started.
var kubelet = reasons("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", "Failed")

// scheduled says why a pod that has a node does not run.
func (p Pod) scheduled(s Setting) Answer {
	pod, node := p.Pod, s.node(p.Pod.Spec.NodeName)
	where := fmt.Sprintf("on node %q", pod.Spec.NodeName)
	if node != nil && node.Labels[keys.Cluster] != "" {
		where = "in " + place(node.Labels[keys.Cluster])
	}
	if node != nil {
		if problem := down(node); problem != "" {
			return waits("pod %q is %s, which does not answer: %s; it may still run there", pod.Name, where, problem)
		}
	} else if !s.NodesUnknown {
		return waits("pod %q is on node %q, which is gone: delete the pod if it is not replaced by itself", pod.Name, pod.Spec.NodeName)
	}
	if sentence := container(pod); sentence != "" {
		return waits("pod %q is %s: %s", pod.Name, where, sentence)
	}
	if pod.Status.Phase == corev1.PodRunning {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				return waits("pod %q runs %s but is not Ready: %s", pod.Name, where, first(c.Message, "its readiness probe has not succeeded yet"))
			}
		}
		return fine("pod %q runs %s", pod.Name, where)
	}
	for _, known := range []map[string]bool{remote, kubelet} {
		if event := latest(p.Events, known); event != nil && s.Now.Sub(when(*event)) < memory {
			return waits("pod %q is %s: %s", pod.Name, where, event.Message)
		}
	}
	return waits("pod %q is being started %s", pod.Name, where)
}

// container says what the first container that cannot go on waits for.
func container(pod *corev1.Pod) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" || waiting.Reason == "" {
			continue
		}
		hint := ""
		if waiting.Reason == "CrashLoopBackOff" {
			hint = fmt.Sprintf(": kubectl logs %s -n %s -c %s --previous", pod.Name, pod.Namespace, status.Name)
		}
		return fmt.Sprintf("container %q waits (%s): %s%s", status.Name, waiting.Reason, first(waiting.Message, "kubectl describe pod says more"), hint)
	}
	return ""
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
