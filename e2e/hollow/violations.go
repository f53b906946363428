package hollow

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Violation is a pod that was bound to a node where one of its volumes can never be mounted.
type Violation struct {
	Namespace, Pod, Node, Claim string
	Message                     string
}

func (v Violation) String() string {
	return fmt.Sprintf("pod %s/%s on node %s: %s", v.Namespace, v.Pod, v.Node, v.Message)
}

type violationKey struct {
	pod   types.UID
	claim string
}

// Violations returns every violation since Start, in the namespaces given, or in all if
// none is given.
func (h *Hollow) Violations(namespaces ...string) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []Violation
	for _, violation := range h.violations {
		if len(namespaces) == 0 || slices.Contains(namespaces, violation.Namespace) {
			found = append(found, violation)
		}
	}
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Compare(a.String(), b.String()) })
	return found
}

// complain records the problem and tells it in an event, once as long as it stays the same.
func (h *Hollow) complain(pod *corev1.Pod, reason string, found *problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found.violation {
		h.violations[violationKey{pod: pod.UID, claim: found.claim}] = Violation{
			Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Claim: found.claim, Message: found.message,
		}
	}
	told := string(pod.UID) + " " + found.message
	if h.complaints[keyOf(pod)] == told {
		return
	}
	h.complaints[keyOf(pod)] = told
	h.recorder.Event(pod, corev1.EventTypeWarning, reason, found.message)
}

func (h *Hollow) forget(key podKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.complaints, key)
}
