package translate

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Limits, in bytes, for texts of a remote cluster in a status.
const (
	maxReason    = 256
	maxMessage   = 2048
	maxReference = 1024
)

// Seen is what is known of a home pod and of its remote pod.
type Seen struct {
	Home, Remote *corev1.Pod // Remote is nil while there is none
	// Restarts is how often the remote pod was created again.
	Restarts int32
	// HostIP is the address of the virtual node, empty if it has none.
	HostIP  string
	Network v1alpha1.PodNetwork
	// Ranges are the addresses that the remote cluster may give to pods.
	Ranges remotecluster.PodRanges
	// Translations say by which others home reaches some of them.
	Translations remotecluster.Translations
	// Reason and Message say why there is no pod yet.
	Reason, Message string
}

// Status returns the status that the home pod should have. It starts from the present one. Of the
// remote cluster it takes only phases, conditions, states of the pod's own containers and, on
// networks that are joined, addresses. The home pod is not changed.
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
	status.InitContainerStatuses = containers(spec.InitContainers, now.InitContainerStatuses, there.InitContainerStatuses, spec.RestartPolicy,
		s.Restarts)
	status.ContainerStatuses = containers(spec.Containers, now.ContainerStatuses, there.ContainerStatuses, spec.RestartPolicy, s.Restarts)
	status.EphemeralContainerStatuses = containers(ephemeral(spec.EphemeralContainers), now.EphemeralContainerStatuses,
		there.EphemeralContainerStatuses, corev1.RestartPolicyNever, 0)
	if s.Network.Joined() {
		taken, _ := s.Addresses()
		for _, ip := range taken {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
		}
		if len(status.PodIPs) > 0 {
			status.PodIP = status.PodIPs[0].IP
		}
	}
	return status
}

// absent returns the status while there is no remote pod: why there is none yet, or that the pod is
// not ready any more.
func absent(status corev1.PodStatus, s Seen) corev1.PodStatus {
	status.Reason, status.Message = word(s.Reason), Message(s.Message)
	if status.Phase == "" {
		status.Phase = corev1.PodPending
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "NoRemotePod",
				Message: "the pod is being made again in the remote cluster", ObservedGeneration: c.ObservedGeneration}
		}
	}
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
	}
	return status
}

// Unreached returns the status of a home pod while its cluster does not answer: the last known one,
// but not ready.
func Unreached(home *corev1.Pod) corev1.PodStatus {
	status := *home.Status.DeepCopy()
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "NodeNotReady",
				Message: "the remote cluster does not answer", ObservedGeneration: c.ObservedGeneration}
		}
	}
	return status
}

// phase returns the next phase: an ended pod keeps its phase, and a pod that ran does not become
// Pending again.
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

// said returns the phase of the remote pod for the home pod. If somebody there deleted the pod, its
// kubelet also writes Succeeded or Failed, which home did not want; so the status of the ShadowPod
// decides. But a completed task stays completed.
func said(s Seen) corev1.PodPhase {
	there := s.Remote.Status.Phase
	ended := there == corev1.PodSucceeded || there == corev1.PodFailed
	task := s.Home.Spec.RestartPolicy == corev1.RestartPolicyOnFailure || s.Home.Spec.RestartPolicy == corev1.RestartPolicyNever
	if ended && s.Remote.DeletionTimestamp != nil && s.Home.DeletionTimestamp == nil && (there == corev1.PodFailed || !task) {
		return ""
	}
	return there
}

// Addresses returns the valid addresses of a pod in a remote cluster, at most one of each family.
func Addresses(pod *corev1.Pod) []string {
	return addresses(pod, func(netip.Addr) bool { return true })
}

// Addresses returns the addresses of the remote pod that the home pod may have, where the network is
// routed, and those that it may not: Services of home would send there, and a remote cluster could name
// a pod or a server of home. Where no ranges are known, as for a peering from before they were asked
// for, the home pod keeps what it has and gets nothing new. Those that it may have are as home reaches them.
func (s Seen) Addresses() (taken, refused []string) {
	had := map[netip.Addr]bool{}
	for _, ip := range s.Home.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			had[address.Unmap()] = true
		}
	}
	taken = addresses(s.Remote, func(address netip.Addr) bool {
		return s.Ranges.Has(address) || len(s.Ranges) == 0 && had[address]
	})
	for _, address := range Addresses(s.Remote) {
		if !slices.Contains(taken, address) {
			refused = append(refused, address)
		}
	}
	for i, text := range taken {
		if address, err := netip.ParseAddr(text); err == nil {
			if reached, ok := s.Translations.Reached(address); ok {
				taken[i] = reached.String()
			}
		}
	}
	return taken, refused
}

// addresses returns the valid addresses of a pod that are allowed, at most one of each family.
func addresses(pod *corev1.Pod, allowed func(netip.Addr) bool) []string {
	if pod == nil {
		return nil
	}
	var kept []string
	families := map[bool]bool{}
	for _, ip := range pod.Status.PodIPs {
		parsed := netutils.ParseIPSloppy(ip.IP)
		if parsed == nil || !parsed.IsGlobalUnicast() || families[parsed.To4() != nil] {
			continue
		}
		if address, err := netip.ParseAddr(parsed.String()); err != nil || !allowed(address) {
			continue
		}
		families[parsed.To4() != nil] = true
		kept = append(kept, parsed.String())
	}
	return kept
}

// kubelets are the conditions that only a kubelet writes, here that of the remote cluster.
var kubelets = map[corev1.PodConditionType]bool{
	corev1.PodReady: true, corev1.ContainersReady: true, corev1.PodInitialized: true,
	corev1.PodReadyToStartContainers: true, corev1.PodResizePending: true, corev1.PodResizeInProgress: true,
	corev1.AllContainersRestarting: true,
}

// conditions returns the conditions of the home pod: those of kubelets are copied from the remote
// pod, all others stay, since home's controllers write them. DisruptionTarget may come from either
// side. The order is kept, so that a changed order causes no write.
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
		c.Reason, c.Message = sentence.Cut(c.Reason, maxReason), sentence.Cut(c.Message, maxMessage)
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

// Message returns a message of a remote cluster, cut to the length for a status.
func Message(text string) string { return sentence.Cut(text, maxMessage) }

// word returns the first word of a reason.
func word(reason string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(sentence.Cut(reason, maxReason)), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return -1
		}
		return r
	}, first)
}

// containers returns the statuses of a pod's own containers, in the order of its spec, from those
// of the remote cluster.
func containers(specs []corev1.Container, now, there []corev1.ContainerStatus, policy corev1.RestartPolicy,
	restarts int32) []corev1.ContainerStatus {
	var result []corev1.ContainerStatus
	for i := range specs {
		spec := &specs[i]
		told := statusOf(there, spec.Name)
		if told == nil {
			continue
		}
		if had := statusOf(now, spec.Name); had != nil && told.State.Terminated == nil && final(had, spec, policy) {
			// A pod that was created again runs its containers again, but the API server accepts no
			// status in which a finally ended container runs.
			result = append(result, *had)
			continue
		}
		allocated, actual := resources(spec, told)
		result = append(result, corev1.ContainerStatus{
			AllocatedResources: allocated, Resources: actual,
			Name:                 spec.Name,
			State:                state(told.State),
			LastTerminationState: state(told.LastTerminationState),
			Ready:                told.Ready,
			RestartCount:         sum(told.RestartCount, restarts),
			Image:                sentence.Cut(told.Image, maxReference),
			ImageID:              sentence.Cut(told.ImageID, maxReference),
			ContainerID:          sentence.Cut(told.ContainerID, maxReference),
			Started:              copied(told.Started),
		})
	}
	return result
}

func ephemeral(specs []corev1.EphemeralContainer) []corev1.Container {
	result := make([]corev1.Container, len(specs))
	for i := range specs {
		result[i] = corev1.Container(specs[i].EphemeralContainerCommon)
	}
	return result
}

// resources returns the resources that a container has there, as far as the container names them here:
// after a resize they differ from its spec for a while. Where they are missing, an API server takes no
// resize, so nothing in them is not the same as none.
func resources(spec *corev1.Container, told *corev1.ContainerStatus) (allocated corev1.ResourceList, actual *corev1.ResourceRequirements) {
	of := func(wanted, told corev1.ResourceList) corev1.ResourceList {
		var kept corev1.ResourceList
		for name := range wanted {
			if quantity, ok := told[name]; ok && quantity.Sign() >= 0 {
				if kept == nil {
					kept = corev1.ResourceList{}
				}
				kept[name] = quantity.DeepCopy()
			}
		}
		return kept
	}
	if told.Resources != nil {
		actual = &corev1.ResourceRequirements{Requests: of(spec.Resources.Requests, told.Resources.Requests),
			Limits: of(spec.Resources.Limits, told.Resources.Limits)}
	}
	return of(spec.Resources.Requests, told.AllocatedResources), actual
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// final reports whether a container has ended and may not run again.
func final(status *corev1.ContainerStatus, spec *corev1.Container, policy corev1.RestartPolicy) bool {
	ended := status.State.Terminated
	if own := spec.RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	switch {
	case ended == nil || policy == corev1.RestartPolicyAlways:
		return false
	case policy == corev1.RestartPolicyOnFailure:
		return ended.ExitCode == 0
	}
	return len(spec.RestartPolicyRules) == 0
}

// state returns a state with only times, exit codes and texts of limited length.
func state(s corev1.ContainerState) corev1.ContainerState {
	switch {
	case s.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}}
	case s.Terminated != nil:
		t := s.Terminated
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
			Reason: sentence.Cut(t.Reason, maxReason), Message: sentence.Cut(t.Message, 2*maxMessage),
			ContainerID: sentence.Cut(t.ContainerID, maxReference),
		}}
	case s.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: sentence.Cut(s.Waiting.Reason, maxReason),
			Message: sentence.Cut(s.Waiting.Message, maxMessage)}}
	}
	return corev1.ContainerState{}
}

func copied(b *bool) *bool {
	if b == nil {
		return nil
	}
	return ptr.To(*b)
}

// sum adds counts, one of which comes from another cluster, without overflow.
func sum(a, b int32) int32 {
	return int32(min(max(int64(a), 0)+max(int64(b), 0), math.MaxInt32))
}
