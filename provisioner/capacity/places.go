package capacity

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Places says, for each cluster that can take claims of a class at all, by its ID, the
// size in bytes of the largest volume that has room there; nil where that is not
// known, so that there may be room for any.
type Places map[string]*resource.Quantity

// Largest returns the places of each virtual class, given the segments that Plan
// made of a world. A class that is wrong has none.
func Largest(w World, segments []Segment) map[string]Places {
	most := plenty()
	all := map[string]Places{}
	offered := virtualclass.Offer(w.Classes)
	for _, object := range w.Classes {
		if !virtualclass.Is(object) {
			continue
		}
		class, err := virtualclass.Parse(object)
		if err != nil {
			continue
		}
		places := Places{}
		none := func(id string) {
			// At home drivers may tell that there is room nowhere: then there is no segment.
			places[id] = resource.NewQuantity(0, resource.BinarySI)
		}
		// Claims that choose a class themselves may get one where the others get none.
		chosen := len(class.Choices()) > 0
		if class.Allows(keys.Home) && (chosen || len(pools(class, keys.Home, "", offered)) > 0) {
			none(keys.Home)
		}
		for _, remote := range nameable(w.Remotes) {
			unread := len(remote.Status.StorageClasses) == 0
			if class.Allows(remote.Name) && (chosen || unread || len(pools(class, remote.Name, remote.Spec.StorageClassName, remote.Status.StorageClasses)) > 0) {
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

// clusterOf returns the cluster that the nodes of a segment are in or stand for;
// empty for that of clusters which nobody knows.
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

// PlacesOf returns the places of a virtual class as they were when everything was
// looked at last; nil before that, where nothing is published, and for other classes.
func (c *Controller) PlacesOf(class string) Places {
	if all := c.places.Load(); all != nil {
		return (*all)[class]
	}
	return nil
}
