// Package capacity publishes how much room the virtual classes have, in each part
// of the home cluster and in each remote cluster, as CSIStorageCapacity objects.
// kube-scheduler reads them as those of any CSI driver, and so gives a pod no node
// where its new volumes have no room.
//
// An object only ever keeps a node away from claims for which there is known to be
// no room. Whatever is unknown, or for others to judge (which clusters a class or
// a namespace may use, whether a cluster is there), has plenty: every node is
// covered for every virtual class.
package capacity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// World is what a plan is made from.
type World struct {
	// Classes are the storage classes of the home cluster, real and virtual.
	Classes []*storagev1.StorageClass
	// Capacities are what the drivers of the home cluster tell of their classes.
	Capacities []*storagev1.CSIStorageCapacity
	// Drivers are the CSIDrivers of the home cluster: kube-scheduler heeds what one
	// tells only if its storageCapacity is true.
	Drivers []*storagev1.CSIDriver
	Remotes []*v1alpha1.RemoteCluster
}

// heeded returns what kube-scheduler heeds of what drivers tell, by class.
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

// Segment is room for new volumes of one virtual class on the nodes that a
// selector selects: one CSIStorageCapacity.
type Segment struct {
	Class string
	// UID is the virtual class's.
	UID types.UID
	// Pool is the real class that has the room; empty where there is plenty.
	Pool  string
	Nodes *metav1.LabelSelector
	// Free is the room in all; Largest the most that one volume can have, nil
	// where that is not told. Both are bytes.
	Free, Largest *resource.Quantity

	// name is kept where the segment will not change any more.
	name string
}

// Name is the name of the segment's object, the same for the same nodes, class
// and pool.
func (s Segment) Name() string {
	if s.name != "" {
		return s.name
	}
	var identity []byte
	add := func(parts ...string) {
		for _, part := range parts {
			// With its length before it, no part can be taken for two.
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

// limit is the size of the largest volume that kube-scheduler takes the segment
// to have room for.
func (s Segment) limit() *resource.Quantity {
	return cmp.Or(s.Largest, s.Free)
}

// plenty is more room than any claim asks for.
func plenty() *resource.Quantity { return resource.NewQuantity(7<<60, resource.BinarySI) }

// Plan returns the segments that are to be published, ordered by name.
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
			// What is wrong with the class is said on its claims.
			pools = []Segment{{Nodes: &metav1.LabelSelector{}, Free: plenty()}}
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
	names := make([]string, 0, len(segments))
	for name := range segments {
		names = append(names, name)
	}
	slices.Sort(names)
	plan := make([]Segment, len(names))
	for i, name := range names {
		plan[i] = segments[name]
	}
	return plan
}

// nameable returns the remote clusters that a node's label can name, by name.
func nameable(remotes []*v1alpha1.RemoteCluster) []*v1alpha1.RemoteCluster {
	able := slices.DeleteFunc(slices.Clone(remotes), func(remote *v1alpha1.RemoteCluster) bool {
		return len(validation.IsValidLabelValue(remote.Name)) > 0
	})
	slices.SortFunc(able, func(a, b *v1alpha1.RemoteCluster) int { return cmp.Compare(a.Name, b.Name) })
	return able
}

// elsewhere is the segment of all nodes that stand for clusters which nobody
// knows, or not yet: why nothing can be made there, others say.
func elsewhere(remotes []*v1alpha1.RemoteCluster) Segment {
	nodes := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: keys.Cluster, Operator: metav1.LabelSelectorOpExists}}}
	if len(remotes) > 0 {
		known := metav1.LabelSelectorRequirement{Key: keys.Cluster, Operator: metav1.LabelSelectorOpNotIn}
		for _, remote := range remotes {
			known.Values = append(known.Values, remote.Name)
		}
		nodes.MatchExpressions = append(nodes.MatchExpressions, known)
	}
	return Segment{Nodes: nodes, Free: plenty()}
}
