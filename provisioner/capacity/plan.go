// Package capacity publishes the room of virtual classes, in each part of the home cluster
// and in each remote cluster, as CSIStorageCapacity objects. kube-scheduler reads them like
// those of any CSI driver and so places no pod on a node where its new volumes have no
// room. Controller runs passes; Plan computes the wanted objects; Publisher writes the
// difference. Start with plan.go.
//
// An object only ever excludes a node for claims that are known to have no room there. What
// is unknown, or checked elsewhere (which clusters a class or a namespace may use, whether
// a cluster is reachable), counts as plenty: every node is covered for every virtual class.
//
// kube-scheduler also prefers nodes with much room (StorageCapacityScoring, on by default from
// Kubernetes 1.37 on). It judges by the whole room, but excludes by the largest volume. So room that is
// unknown is published as any size for one volume, and as a whole like the room that is known of
// the class: it neither draws pods nor keeps them off.
package capacity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// World is the input of Plan.
type World struct {
	// Classes are the storage classes of the home cluster, real and virtual.
	Classes []*storagev1.StorageClass
	// Capacities are the capacities that drivers of the home cluster publish.
	Capacities []*storagev1.CSIStorageCapacity
	// Drivers are the CSIDrivers of the home cluster: kube-scheduler uses a driver's
	// capacities only if its storageCapacity is true.
	Drivers []*storagev1.CSIDriver
	Remotes []*v1alpha1.RemoteCluster
}

// heeded returns the capacities that kube-scheduler uses, by class.
func (w World) heeded() map[string][]*storagev1.CSIStorageCapacity {
	drivers := map[string]bool{}
	for _, driver := range w.Drivers {
		drivers[driver.Name] = driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity
	}
	classes := map[string]bool{}
	for _, class := range w.Classes {
		classes[class.Name] = drivers[class.Provisioner]
	}
	capacities := map[string][]*storagev1.CSIStorageCapacity{}
	for _, capacity := range w.Capacities {
		if classes[capacity.StorageClassName] {
			capacities[capacity.StorageClassName] = append(capacities[capacity.StorageClassName], capacity)
		}
	}
	return capacities
}

// Segment is the room for new volumes of one virtual class on the selected nodes: one
// CSIStorageCapacity.
type Segment struct {
	Class string
	// UID is the UID of the virtual class.
	UID types.UID
	// Pool is the real class with the room; empty where there is plenty.
	Pool  string
	Nodes *metav1.LabelSelector
	// Free is the total room; Largest the size of the largest possible volume, nil where
	// that is not known, and plenty where any size is possible. Both are bytes. Plan leaves no
	// Free nil: kube-scheduler ends with a panic where it scores an object without.
	Free, Largest *resource.Quantity

	// name caches Name; it is set where the segment does not change any more.
	name string
}

// Name is the name of the segment's object; it depends on nodes, class and pool only.
func (s Segment) Name() string {
	if s.name != "" {
		return s.name
	}
	var identity []byte
	add := func(parts ...string) {
		for _, part := range parts {
			// Each part is prefixed with its length, so that two different lists never look
			// the same.
			identity = append(strconv.AppendInt(identity, int64(len(part)), 10), ' ')
			identity = append(identity, part...)
		}
	}
	add(string(s.UID), s.Pool)
	for _, key := range slices.Sorted(maps.Keys(s.Nodes.MatchLabels)) {
		add("=", key, s.Nodes.MatchLabels[key])
	}
	for _, expression := range s.Nodes.MatchExpressions {
		add("?", expression.Key, string(expression.Operator))
		add(expression.Values...)
	}
	sum := sha256.Sum256(identity)
	return "lodestone-" + hex.EncodeToString(sum[:12])
}

// limit is the size of the largest volume for which kube-scheduler considers the segment.
func (s Segment) limit() *resource.Quantity {
	return cmp.Or(s.Largest, s.Free)
}

// plenty is more room than any claim asks for. As Largest it means that the room is unknown.
func plenty() *resource.Quantity { return resource.NewQuantity(7<<60, resource.BinarySI) }

// Plan returns the segments to publish, ordered by name.
func Plan(w World) []Segment {
	capacities := w.heeded()
	offered, topologies := virtualclass.Offer(w.Classes), virtualclass.Topologies(w.Classes)
	remotes := nameable(w.Remotes)
	segments := map[string]Segment{}
	for _, object := range w.Classes {
		if !virtualclass.Is(object) {
			continue
		}
		class, err := virtualclass.Parse(object)
		var pools []Segment
		if err != nil {
			// The class is invalid; that is reported on its claims.
			pools = []Segment{{Nodes: &metav1.LabelSelector{}, Largest: plenty()}}
		} else {
			pools = append(atHome(class, offered, topologies, capacities), elsewhere(remotes))
			for _, remote := range remotes {
				pools = append(pools, inRemote(class, remote)...)
			}
		}
		for _, segment := range pools {
			segment.Class, segment.UID = object.Name, object.UID
			segment.name = segment.Name()
			name := segment.name
			if other, ok := segments[name]; !ok || other.limit().Cmp(*segment.limit()) < 0 {
				segments[name] = segment
			}
		}
	}
	names := slices.Sorted(maps.Keys(segments))
	plan := make([]Segment, len(names))
	for i, name := range names {
		plan[i] = segments[name]
	}
	return weighed(plan)
}

// weighed gives each segment whose room is unknown the median of what is known of its class, or
// plenty if nothing is: the median, since one very large or very small pool says nothing of others.
func weighed(plan []Segment) []Segment {
	known, middle := map[string][]*resource.Quantity{}, map[string]*resource.Quantity{}
	for _, segment := range plan {
		if segment.Free != nil {
			known[segment.Class] = append(known[segment.Class], segment.Free)
		}
	}
	for i, segment := range plan {
		if segment.Free != nil {
			continue
		}
		if middle[segment.Class] == nil {
			sizes := known[segment.Class]
			slices.SortFunc(sizes, func(a, b *resource.Quantity) int { return a.Cmp(*b) })
			middle[segment.Class] = plenty()
			if len(sizes) > 0 {
				middle[segment.Class] = sizes[len(sizes)/2]
			}
		}
		plan[i].Free = middle[segment.Class]
	}
	return plan
}

// nameable returns the remote clusters whose ID is a valid label value, by name.
func nameable(remotes []*v1alpha1.RemoteCluster) []*v1alpha1.RemoteCluster {
	able := slices.DeleteFunc(slices.Clone(remotes), func(remote *v1alpha1.RemoteCluster) bool {
		return len(validation.IsValidLabelValue(remote.Name)) > 0
	})
	slices.SortFunc(able, func(a, b *v1alpha1.RemoteCluster) int { return cmp.Compare(a.Name, b.Name) })
	return able
}

// elsewhere is the segment of all nodes that represent clusters without a known
// RemoteCluster. Why no volume can be created there is reported elsewhere.
func elsewhere(remotes []*v1alpha1.RemoteCluster) Segment {
	nodes := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: keys.Cluster,
		Operator: metav1.LabelSelectorOpExists}}}
	if len(remotes) > 0 {
		known := metav1.LabelSelectorRequirement{Key: keys.Cluster, Operator: metav1.LabelSelectorOpNotIn}
		for _, remote := range remotes {
			known.Values = append(known.Values, remote.Name)
		}
		nodes.MatchExpressions = append(nodes.MatchExpressions, known)
	}
	return Segment{Nodes: nodes, Largest: plenty()}
}

// atHome returns the segments of the home cluster: the drivers' capacities of the real
// classes, limited to home nodes within the topologies of the class; plenty where a driver
// publishes none. A class whose capacities all exclude it has no segment.
func atHome(class virtualclass.Class, offered []v1alpha1.OfferedClass, topologies map[string][]corev1.TopologySelectorTerm,
	capacities map[string][]*storagev1.CSIStorageCapacity) []Segment {
	all := []Segment{{Nodes: confined(&metav1.LabelSelector{}), Largest: plenty()}}
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

// within returns a segment for each term, or the segment itself if there are none:
// kube-scheduler respects the topologies of a class, but knows only the virtual one.
func within(segment Segment, terms []corev1.TopologySelectorTerm) []Segment {
	if len(terms) == 0 {
		return []Segment{segment}
	}
	var segments []Segment
	for _, term := range terms {
		if len(term.MatchLabelExpressions) == 0 {
			continue // no node matches
		}
		nodes := segment.Nodes.DeepCopy()
		for _, e := range term.MatchLabelExpressions {
			nodes.MatchExpressions = append(nodes.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOpIn,
				Values: e.Values})
		}
		part := segment
		part.Nodes = nodes
		segments = append(segments, part)
	}
	return segments
}

// copied returns the segment for a capacity of a driver of the home cluster; false if it
// has room on no node.
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

// confined returns a copy of a selector that selects only nodes of the home cluster.
func confined(nodes *metav1.LabelSelector) *metav1.LabelSelector {
	nodes = nodes.DeepCopy()
	nodes.MatchExpressions = append(nodes.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: keys.Cluster, Operator: metav1.LabelSelectorOpDoesNotExist})
	return nodes
}

// inRemote returns the segments of a remote cluster, from its RemoteCluster's status. They
// cover all its nodes alike: where in the cluster a volume is created is not decided here.
func inRemote(class virtualclass.Class, remote *v1alpha1.RemoteCluster) []Segment {
	nodes := &metav1.LabelSelector{MatchLabels: map[string]string{keys.Cluster: remote.Name}}
	all := []Segment{{Nodes: nodes, Largest: plenty()}}
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

// bounded returns a quantity that can be stored as a capacity.
func bounded(quantity *resource.Quantity) *resource.Quantity {
	if quantity != nil && quantity.Sign() < 0 {
		return resource.NewQuantity(0, resource.BinarySI)
	}
	return quantity
}

// pools returns the real classes that claims of a virtual class may get in a cluster. It
// returns none if claims without a choice of their own get nothing there: the choice is an
// annotation of the claim, which kube-scheduler does not read. preferred is the cluster's
// own choice.
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

// ClusterRoom has, by cluster ID, each cluster that can take claims of a class, with the
// size in bytes of the largest volume that has room there; nil means unknown, so there may
// be room for any.
type ClusterRoom map[string]*resource.Quantity

// Largest returns the ClusterRoom of each virtual class, given the segments that Plan made
// from the same World. An invalid class has none.
func Largest(w World, segments []Segment) map[string]ClusterRoom {
	most := plenty()
	all := map[string]ClusterRoom{}
	offered := virtualclass.Offer(w.Classes)
	for _, object := range w.Classes {
		if !virtualclass.Is(object) {
			continue
		}
		class, err := virtualclass.Parse(object)
		if err != nil {
			continue
		}
		places := ClusterRoom{}
		none := func(id string) {
			// If home drivers report no room anywhere, there is no segment.
			places[id] = resource.NewQuantity(0, resource.BinarySI)
		}
		// Claims that choose a class themselves may get one where others get none.
		chosen := len(class.Choices()) > 0
		if class.Allows(keys.Home) && (chosen || len(pools(class, keys.Home, "", offered)) > 0) {
			none(keys.Home)
		}
		for _, remote := range nameable(w.Remotes) {
			unread := len(remote.Status.StorageClasses) == 0
			if class.Allows(remote.Name) &&
				(chosen || unread || len(pools(class, remote.Name, remote.Spec.StorageClassName, remote.Status.StorageClasses)) > 0) {
				none(remote.Name)
			}
		}
		all[object.Name] = places
	}
	for _, segment := range segments {
		id := clusterOf(segment)
		have, ok := all[segment.Class][id]
		switch limit := segment.limit(); {
		case !ok || have == nil:
		case limit.Cmp(*most) >= 0:
			all[segment.Class][id] = nil
		case limit.Cmp(*have) > 0:
			all[segment.Class][id] = limit
		}
	}
	return all
}

// clusterOf returns the cluster of a segment's nodes; empty for the segment of unknown
// clusters.
func clusterOf(segment Segment) string {
	if id, ok := segment.Nodes.MatchLabels[keys.Cluster]; ok {
		return id
	}
	if slices.ContainsFunc(segment.Nodes.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return e.Key == keys.Cluster && e.Operator == metav1.LabelSelectorOpDoesNotExist
	}) {
		return keys.Home
	}
	return ""
}
