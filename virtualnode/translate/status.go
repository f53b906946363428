package translate

import (
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Bounds of what crosses from a remote cluster into a status, in bytes.
const (
	maxReason    = 256
	maxMessage   = 2048
	maxReference = 1024
)

// Seen is what is known of a home pod and of the pod that runs for it.
type Seen struct {
	Home, Remote *corev1.Pod // Remote is nil while there is none
	// Restarts is how often the pod there was made again.
	Restarts int32
	// HostIP is the address of the virtual node, empty if it has none.
	HostIP  string
	Network v1alpha1.PodNetwork
	// Reason and Message say why there is no pod yet.
	Reason, Message string
}

// Status returns the status that the home pod should have. It is the present one
// where the remote cluster has no say, and of what that cluster says nothing but
// phases, conditions, states of the pod's own containers and, on routed networks,
// addresses. The home pod is not changed.
func Status(s Seen) corev1.PodStatus {
	status := *s.Home.Status.DeepCopy()
	status.HostIP, status.HostIPs = s.HostIP, nil
	if s.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	}
	status.PodIP, status.PodIPs = "", nil
	if s.Remote == nil {
		return absent(status, s)
	}
	there := &s.Remote.Status
	status.Phase = phase(status.Phase, said(s))
	reason, message := there.Reason, there.Message
	for _, c := range there.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && reason == "" {
			reason, message = c.Reason, "not scheduled in the remote cluster: "+c.Message
		}
	}
	status.Reason, status.Message = word(reason), Message(message)
	if status.StartTime == nil && there.StartTime != nil {
		status.StartTime = there.StartTime.DeepCopy()
	}
	status.Conditions = conditions(s.Home, there.Conditions)
	spec, now := &s.Home.Spec, &s.Home.Status
	status.InitContainerStatuses = containers(spec.InitContainers, now.InitContainerStatuses, there.InitContainerStatuses, spec.RestartPolicy, s.Restarts)
	status.ContainerStatuses = containers(spec.Containers, now.ContainerStatuses, there.ContainerStatuses, spec.RestartPolicy, s.Restarts)
	if s.Network == v1alpha1.Routed {
		for _, ip := range Addresses(s.Remote) {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
		}
		if len(status.PodIPs) > 0 {
			status.PodIP = status.PodIPs[0].IP
		}
	}
	return status
}

// absent is the status while there is no pod: why there is none yet, or that the
// one there was serves nobody now.
func absent(status corev1.PodStatus, s Seen) corev1.PodStatus {
	status.Reason, status.Message = word(s.Reason), Message(s.Message)
	if status.Phase == "" {
		status.Phase = corev1.PodPending
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "NoRemotePod", Message: "the pod is being made again in the remote cluster", ObservedGeneration: c.ObservedGeneration}
		}
	}
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
	}
	return status
}

// Unreached returns the status of a home pod while its cluster does not answer: it
// is as it was last seen, but it does not count as ready.
func Unreached(home *corev1.Pod) corev1.PodStatus {
	status := *home.Status.DeepCopy()
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "NodeNotReady", Message: "the remote cluster does not answer", ObservedGeneration: c.ObservedGeneration}
		}
	}
	return status
}

// phase returns the phase after the present one: an ended pod stays so, and one
// that ran is not said to wait for its first start.
func phase(now, there corev1.PodPhase) corev1.PodPhase {
	switch {
	case now == corev1.PodSucceeded || now == corev1.PodFailed:
		return now
	case there == corev1.PodRunning || there == corev1.PodSucceeded || there == corev1.PodFailed:
		return there
	case now == corev1.PodRunning:
		return now
	}
	return corev1.PodPending
}

// said returns the phase of the remote pod as far as it concerns the home pod. A kubelet
// calls a pod succeeded or failed that somebody there made it end: nobody at home wanted
// that, so what the ShadowPod says of it decides. But a task that is done is done.
func said(s Seen) corev1.PodPhase {
	there := s.Remote.Status.Phase
	ended := there == corev1.PodSucceeded || there == corev1.PodFailed
	task := s.Home.Spec.RestartPolicy == corev1.RestartPolicyOnFailure || s.Home.Spec.RestartPolicy == corev1.RestartPolicyNever
	if ended && s.Remote.DeletionTimestamp != nil && s.Home.DeletionTimestamp == nil && (there == corev1.PodFailed || !task) {
		return ""
	}
	return there
}

// Addresses returns the addresses of a pod in a remote cluster, at most one of
// each family: only those that a pod may have.
func Addresses(pod *corev1.Pod) []string {
	if pod == nil {
		return nil
	}
	var kept []string
	families := map[bool]bool{}
	for _, ip := range pod.Status.PodIPs {
		address := netutils.ParseIPSloppy(ip.IP)
		if address == nil || !address.IsGlobalUnicast() || families[address.To4() != nil] {
			continue
		}
		families[address.To4() != nil] = true
		kept = append(kept, address.String())
	}
	return kept
}

// kubelets are the conditions that only a kubelet knows, which is the one there.
var kubelets = map[corev1.PodConditionType]bool{
	corev1.PodReady: true, corev1.ContainersReady: true, corev1.PodInitialized: true,
	corev1.PodReadyToStartContainers: true, corev1.PodResizePending: true, corev1.PodResizeInProgress: true,
	corev1.AllContainersRestarting: true,
}

// conditions returns those that the home pod should have: the kubelet's are those of
// the remote pod, and all others stay, for home's controllers write them. That it is
// being disrupted either side may say. They keep their order, so that nothing is
// written for that alone.
func conditions(home *corev1.Pod, there []corev1.PodCondition) []corev1.PodCondition {
	gates, closed := map[corev1.PodConditionType]bool{}, ""
	for _, gate := range home.Spec.ReadinessGates {
		gates[gate.ConditionType] = true
		if !isTrue(home.Status.Conditions, gate.ConditionType) {
			closed = max(closed, string(gate.ConditionType))
		}
	}
	disrupted := isTrue(home.Status.Conditions, corev1.DisruptionTarget)
	theirs := func(t corev1.PodConditionType) bool {
		return !gates[t] && (kubelets[t] || (t == corev1.DisruptionTarget && !disrupted))
	}
	told := map[corev1.PodConditionType]corev1.PodCondition{}
	var order []corev1.PodConditionType
	for _, c := range there {
		if _, twice := told[c.Type]; twice || !theirs(c.Type) || !known(c.Status) {
			continue
		}
		c.Reason, c.Message = bounded(c.Reason, maxReason), bounded(c.Message, maxMessage)
		c.ObservedGeneration = home.Generation
		c.LastProbeTime = metav1.Time{}
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && closed != "" {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", "readiness gate "+closed+" of the pod is not True"
		}
		told[c.Type], order = c, append(order, c.Type)
	}
	var result []corev1.PodCondition
	taken := map[corev1.PodConditionType]bool{}
	for _, c := range home.Status.Conditions {
		if theirs(c.Type) {
			var ok bool
			if c, ok = told[c.Type]; !ok {
				continue
			}
		}
		result, taken[c.Type] = append(result, c), true
	}
	for _, t := range order {
		if !taken[t] {
			result = append(result, told[t])
		}
	}
	return result
}

func isTrue(conditions []corev1.PodCondition, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}

func known(status corev1.ConditionStatus) bool {
	return status == corev1.ConditionTrue || status == corev1.ConditionFalse || status == corev1.ConditionUnknown
}

// Message returns what a remote cluster said, as short as a status may have it.
func Message(text string) string { return bounded(text, maxMessage) }

// word returns the first word of a reason.
func word(reason string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(bounded(reason, maxReason)), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return -1
		}
		return r
	}, first)
}

// bounded returns a text cut to a number of bytes, as valid UTF-8.
func bounded(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "")
}
