// Package offer publishes what the cluster has to offer to each home cluster.
package offer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Offer is what a home cluster can have.
type Offer struct {
	// Capacity is all that is offered, Allocatable that less what others use.
	Capacity, Allocatable corev1.ResourceList
	Nodes                 remotev1alpha1.NodeSummary
	// Pods is how many pods of the home cluster are here.
	Pods int32
}

// Sum returns the offer to a home cluster. limits caps the resources that it
// names. Pods are those of the whole cluster; it is pure.
func Sum(id string, limits corev1.ResourceList, nodes []*corev1.Node, pods []*corev1.Pod) Offer {
	usable := map[string]bool{}
	total := corev1.ResourceList{}
	var serving []*corev1.Node
	for _, node := range nodes {
		if !Usable(node) {
			continue
		}
		usable[node.Name] = true
		serving = append(serving, node)
		add(total, node.Status.Allocatable)
	}
	others := corev1.ResourceList{}
	o := Offer{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, Nodes: summary(serving)}
	for _, pod := range pods {
		switch {
		case pod.Labels[keys.HomeID] == id:
			o.Pods++
		case usable[pod.Spec.NodeName] && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			add(others, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
			add(others, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
		}
	}
	for name, quantity := range total {
		offered := quantity
		if limit, ok := limits[name]; ok && limit.Cmp(offered) < 0 {
			offered = limit
		}
		free := quantity.DeepCopy()
		free.Sub(others[name])
		if free.Sign() < 0 {
			free = *resource.NewQuantity(0, quantity.Format)
		}
		if offered.Cmp(free) < 0 {
			free = offered
		}
		o.Capacity[name], o.Allocatable[name] = offered.DeepCopy(), free.DeepCopy()
	}
	return o
}

// Usable reports whether a node can run pods of home clusters: it is ready, open
// to every pod, and stands for no other cluster.
func Usable(node *corev1.Node) bool {
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	_, virtual := node.Labels[keys.Cluster]
	if virtual || node.Labels["type"] == "virtual-kubelet" || node.Labels["liqo.io/type"] == "virtual-node" {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func add(sum, list corev1.ResourceList) {
	for name, quantity := range list {
		s := sum[name].DeepCopy()
		s.Add(quantity)
		sum[name] = s
	}
}

// summary returns what nodes have in common.
func summary(nodes []*corev1.Node) remotev1alpha1.NodeSummary {
	s := remotev1alpha1.NodeSummary{Count: int32(len(nodes))}
	common := func(key string) string {
		value := ""
		for i, node := range nodes {
			if i > 0 && node.Labels[key] != value {
				return ""
			}
			value = node.Labels[key]
		}
		return value
	}
	s.OperatingSystem, s.Architecture = common(corev1.LabelOSStable), common(corev1.LabelArchStable)
	for _, key := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone} {
		if value := common(key); value != "" {
			if s.Topology == nil {
				s.Topology = map[string]string{}
			}
			s.Topology[key] = value
		}
	}
	return s
}
