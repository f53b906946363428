package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// atHome returns the segments of the home cluster: those that the drivers tell of
// the real classes, confined to nodes of the home cluster that are in the
// topologies of the class; with plenty where a driver tells nothing. A class of
// which it is told that there is room nowhere has none.
func atHome(class virtualclass.Class, offered []v1alpha1.OfferedClass, topologies map[string][]corev1.TopologySelectorTerm, capacities map[string][]*storagev1.CSIStorageCapacity) []Segment {
	all := []Segment{{Nodes: confined(&metav1.LabelSelector{}), Free: plenty()}}
	reals := pools(class, keys.Home, "", offered)
	if len(reals) == 0 {
		return all
	}
	var segments []Segment
	for _, real := range reals {
		told, terms := capacities[real.Name], topologies[real.Name]
		switch {
		case len(told) == 0 && len(terms) == 0:
			return all
		case len(told) == 0:
			segments = append(segments, within(all[0], terms)...)
		}
		for _, capacity := range told {
			if segment, ok := copied(capacity); ok {
				segments = append(segments, within(segment, terms)...)
			}
		}
	}
	return segments
}

// within returns a segment for each of the terms, or the segment itself if there
// are none: kube-scheduler heeds the topologies of a class, but knows only the
// virtual one.
func within(segment Segment, terms []corev1.TopologySelectorTerm) []Segment {
	if len(terms) == 0 {
		return []Segment{segment}
	}
	var segments []Segment
	for _, term := range terms {
		if len(term.MatchLabelExpressions) == 0 {
			continue // it is nowhere
		}
		nodes := segment.Nodes.DeepCopy()
		for _, e := range term.MatchLabelExpressions {
			nodes.MatchExpressions = append(nodes.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpIn, Values: e.Values})
		}
		part := segment
		part.Nodes = nodes
		segments = append(segments, part)
	}
	return segments
}

// copied returns the segment that stands for what a driver of the home cluster
// tells; false where no node has room by it.
func copied(capacity *storagev1.CSIStorageCapacity) (Segment, bool) {
	if capacity.NodeTopology == nil || (capacity.Capacity == nil && capacity.MaximumVolumeSize == nil) {
		return Segment{}, false
	}
	nodes := confined(capacity.NodeTopology)
	if _, err := metav1.LabelSelectorAsSelector(nodes); err != nil {
		return Segment{}, false
	}
	return Segment{Pool: capacity.StorageClassName, Nodes: nodes, Free: capacity.Capacity, Largest: capacity.MaximumVolumeSize}, true
}

// confined returns a copy of a selector that selects nodes of the home cluster
// only.
func confined(nodes *metav1.LabelSelector) *metav1.LabelSelector {
	nodes = nodes.DeepCopy()
	nodes.MatchExpressions = append(nodes.MatchExpressions, metav1.LabelSelectorRequirement{Key: keys.Cluster, Operator: metav1.LabelSelectorOpDoesNotExist})
	return nodes
}

// inRemote returns the segments of a remote cluster, from what was last seen of
// it. All its nodes here are alike, for where in it a volume is made is not
// decided here.
func inRemote(class virtualclass.Class, remote *v1alpha1.RemoteCluster) []Segment {
	nodes := &metav1.LabelSelector{MatchLabels: map[string]string{keys.Cluster: remote.Name}}
	all := []Segment{{Nodes: nodes, Free: plenty()}}
	reals := pools(class, remote.Name, remote.Spec.StorageClassName, remote.Status.StorageClasses)
	if len(reals) == 0 {
		return all
	}
	var segments []Segment
	for _, real := range reals {
		if real.Free == nil && real.MaximumVolumeSize == nil {
			return all
		}
		segments = append(segments, Segment{Pool: real.Name, Nodes: nodes, Free: bounded(real.Free), Largest: bounded(real.MaximumVolumeSize)})
	}
	return segments
}

// bounded returns what can be written as a capacity.
func bounded(quantity *resource.Quantity) *resource.Quantity {
	if quantity != nil && quantity.Sign() < 0 {
		return resource.NewQuantity(0, resource.BinarySI)
	}
	return quantity
}

// pools returns the real classes that claims of a virtual class may get in a
// cluster, none where those without a choice of their own get nothing there:
// which it is, the claim says, and kube-scheduler does not read that. preferred
// is the cluster's own choice.
func pools(class virtualclass.Class, cluster, preferred string, offered []v1alpha1.OfferedClass) []v1alpha1.OfferedClass {
	if !class.Allows(cluster) {
		return nil
	}
	name, err := class.RealClassName(cluster, nil)
	if err != nil {
		return nil
	}
	if name == "" {
		name = preferred
	}
	first, err := virtualclass.Resolve(name, cluster, offered)
	if err != nil {
		return nil
	}
	reals := []v1alpha1.OfferedClass{first}
	choices := class.Choices()
	for _, real := range offered {
		if real.Name != first.Name && slices.Contains(choices, real.Name) {
			reals = append(reals, real)
		}
	}
	return reals
}
