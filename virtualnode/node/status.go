package node

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxResources bounds how many resources a remote cluster may offer; more than
// that no cluster has.
const maxResources = 64

// WithStatus returns a copy of a node with the status that is described. What is
// not known stays as it was.
func WithStatus(node *corev1.Node, d Description) *corev1.Node {
	node = node.DeepCopy()
	status := &node.Status
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: d.Address}}
	status.DaemonEndpoints.KubeletEndpoint.Port = d.Port
	if d.Version != "" {
		status.NodeInfo.KubeletVersion = d.Version
	}
	if d.Offer != nil {
		status.Capacity = sane(d.Offer.Capacity)
		status.Allocatable = sane(d.Offer.Allocatable)
		status.NodeInfo.OperatingSystem = short(d.Offer.Nodes.OperatingSystem)
		status.NodeInfo.Architecture = short(d.Offer.Nodes.Architecture)
	}
	status.Conditions = conditions(status.Conditions, d)
	return node
}

// conditions returns the conditions of a node, those of others included. Ready
// that kube-controller-manager set to Unknown, because the lease ran out while
// the remote cluster is silent, stays so.
func conditions(have []corev1.NodeCondition, d Description) []corev1.NodeCondition {
	have = append([]corev1.NodeCondition(nil), have...)
	status := corev1.ConditionFalse
	if d.State.Ready {
		status = corev1.ConditionTrue
	}
	ready := find(have, corev1.NodeReady)
	if d.State.Ready || ready == nil || ready.Status != corev1.ConditionUnknown {
		have = set(have, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: d.State.Reason, Message: d.State.Message}, d)
	}
	have = set(have, corev1.NodeCondition{Type: RemoteReady, Status: status, Reason: d.State.Reason, Message: d.State.Message}, d)
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if old := find(have, kind); old != nil && !d.State.Ready {
			continue
		}
		have = set(have, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "RemoteCluster", Message: "the remote cluster looks after its own nodes"}, d)
	}
	return have
}

// set adds a condition or replaces the one of its type, with the times of
// a change.
func set(all []corev1.NodeCondition, condition corev1.NodeCondition, d Description) []corev1.NodeCondition {
	condition.LastHeartbeatTime, condition.LastTransitionTime = d.Now, d.Now
	old := find(all, condition.Type)
	if old == nil {
		return append(all, condition)
	}
	if old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
		if old.Reason == condition.Reason && old.Message == condition.Message {
			return all
		}
	}
	*old = condition
	return all
}

func find(all []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// sane returns the resources that a node can show.
func sane(offered corev1.ResourceList) corev1.ResourceList {
	result := corev1.ResourceList{}
	for name, quantity := range offered {
		if len(result) < maxResources && quantity.Sign() >= 0 && len(validation.IsQualifiedName(string(name))) == 0 {
			result[name] = quantity
		}
	}
	return result
}

func validLabel(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

// short returns a word that fits a node's information, or nothing.
func short(word string) string {
	if len(word) > 63 || strings.ContainsAny(word, " \t\r\n") {
		return ""
	}
	return word
}

// clip bounds a sentence that the remote cluster wrote.
func clip(message string) string {
	const most = 512
	if len(message) > most {
		return strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
