package translate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// containers returns the statuses of a pod's own containers, in the order of its
// spec, from those that the remote cluster tells.
func containers(specs []corev1.Container, now, there []corev1.ContainerStatus, policy corev1.RestartPolicy, restarts int32) []corev1.ContainerStatus {
	var result []corev1.ContainerStatus
	for i := range specs {
		spec := &specs[i]
		told := statusOf(there, spec.Name)
		if told == nil {
			continue
		}
		if had := statusOf(now, spec.Name); had != nil && told.State.Terminated == nil && final(had, spec, policy) {
			// A pod that was made again runs its containers again; the API server
			// lets no container come back to life that had ended for good.
			result = append(result, *had)
			continue
		}
		result = append(result, corev1.ContainerStatus{
			Name:                 spec.Name,
			State:                state(told.State),
			LastTerminationState: state(told.LastTerminationState),
			Ready:                told.Ready,
			RestartCount:         sum(told.RestartCount, restarts),
			Image:                bounded(told.Image, maxReference),
			ImageID:              bounded(told.ImageID, maxReference),
			ContainerID:          bounded(told.ContainerID, maxReference),
			Started:              copied(told.Started),
		})
	}
	return result
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// final says whether a container has ended and may not run again.
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

// state returns a state with nothing in it but times, exit codes and texts of
// bounded size.
func state(s corev1.ContainerState) corev1.ContainerState {
	switch {
	case s.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}}
	case s.Terminated != nil:
		t := s.Terminated
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
			Reason: bounded(t.Reason, maxReason), Message: bounded(t.Message, 2*maxMessage), ContainerID: bounded(t.ContainerID, maxReference),
		}}
	case s.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: bounded(s.Waiting.Reason, maxReason), Message: bounded(s.Waiting.Message, maxMessage)}}
	}
	return corev1.ContainerState{}
}

func copied(b *bool) *bool {
	if b == nil {
		return nil
	}
	return ptr.To(*b)
}

// sum adds counts of which one comes from elsewhere.
func sum(a, b int32) int32 {
	return int32(min(max(int64(a), 0)+max(int64(b), 0), math.MaxInt32))
}
