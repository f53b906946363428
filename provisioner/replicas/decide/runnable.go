package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Host is what home knows of whether the cluster of a standby could run the pods that use the claims of a replica.
type Host struct {
	Cluster string
	// Refused says why nothing that uses the claims can go there, empty if nothing is in the way.
	Refused string
	// Nodes are the nodes of home that stand for it, or that it has if it is home.
	Nodes []*corev1.Node
	// Pods use the claims, wherever they are. Unread says why they are not known, empty if they are.
	Pods   []corev1.Pod
	Unread string
}

// Runnable is an answer, with its reason in one sentence. The zero value is none.
type Runnable struct {
	Status metav1.ConditionStatus
	Why    string
}

// No says that the pods are known not to run.
func (r Runnable) No() bool { return r.Status == metav1.ConditionFalse }

// Runnable says whether the pods could run there: True if each fits a node that is ready, Unknown where it is not known what they need.
// What other pods take there does not count: much may be given up before a failover.
func (h Host) Runnable() Runnable {
	no := func(format string, args ...any) Runnable {
		return Runnable{metav1.ConditionFalse, fmt.Sprintf(format, args...)}
	}
	ready := slices.DeleteFunc(slices.Clone(h.Nodes), func(node *corev1.Node) bool { return !takesPods(node) })
	switch {
	case h.Refused != "":
		return no("%s", h.Refused)
	case len(h.Nodes) == 0:
		return no("no node of home stands for cluster %s, so no pod of home runs there: see its RemoteCluster", h.Cluster)
	case len(ready) == 0:
		return no("of the nodes for cluster %s (%d) none is ready and takes new pods: kubectl get nodes says more", h.Cluster, len(h.Nodes))
	case h.Unread != "":
		return Runnable{metav1.ConditionUnknown, h.Unread}
	case len(h.Pods) == 0:
		return Runnable{metav1.ConditionUnknown, fmt.Sprintf("cluster %s has nodes that are ready, and no pod uses the claims now, so it is not "+
			"known what one needs", h.Cluster)}
	}
	for i := range h.Pods {
		if why := fitsNone(&h.Pods[i], ready); why != "" {
			return no("pod %s fits no node of cluster %s: %s", h.Pods[i].Name, h.Cluster, why)
		}
	}
	return Runnable{metav1.ConditionTrue, fmt.Sprintf("cluster %s has a node that is ready and large enough for each pod that uses the "+
		"claims (%d); what other pods take there does not count", h.Cluster, len(h.Pods))}
}

// takesPods says whether a node is ready and not cordoned.
func takesPods(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// fitsNone says why a pod fits none of some nodes, with up to three reasons; empty if it fits one.
func fitsNone(pod *corev1.Pod, nodes []*corev1.Node) string {
	var reasons []string
	for _, node := range nodes {
		why := unfit(pod, node)
		if why == "" {
			return ""
		}
		if len(reasons) < 3 && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; ")
}

// unfit says why a node would take no pod like this one, empty if it would.
func unfit(pod *corev1.Pod, node *corev1.Node) string {
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return "its node selector or affinity does not allow that"
	}
	for i := range node.Spec.Taints {
		// Pods of a namespace that is open to remote clusters are made with the toleration of virtual nodes.
		taint := &node.Spec.Taints[i]
		if taint.Key != keys.RemoteTaint && taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, taint) {
			return fmt.Sprintf("it does not tolerate taint %s", taint.ToString())
		}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		wanted, has := requests[name], node.Status.Allocatable[name]
		if wanted.Cmp(has) > 0 {
			return fmt.Sprintf("it requests %s of %s, and a node there has %s", wanted.String(), name, has.String())
		}
	}
	return ""
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
	})
}
