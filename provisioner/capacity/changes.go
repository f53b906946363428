package capacity

import (
	"math"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Changes are what makes the published objects what they are to be.
type Changes struct {
	Create, Update, Delete []*storagev1.CSIStorageCapacity
}

// Compare returns the changes from the published objects, as last seen, to the
// wanted segments. An object whose room has changed by less than a twentieth
// stays as it is. Objects to update and delete are as they were seen, so that
// writing them fails where they have changed since.
func Compare(wanted []Segment, published []*storagev1.CSIStorageCapacity, namespace string) Changes {
	var changes Changes
	have := map[string]*storagev1.CSIStorageCapacity{}
	for _, object := range published {
		have[object.Name] = object
	}
	for _, segment := range wanted {
		old := have[segment.Name()]
		delete(have, segment.Name())
		switch {
		case old == nil || old.DeletionTimestamp != nil:
			changes.Create = append(changes.Create, segment.object(namespace))
		case differs(old.Capacity, segment.Free) || differs(old.MaximumVolumeSize, segment.Largest):
			update := old.DeepCopy()
			update.Capacity, update.MaximumVolumeSize = segment.Free, segment.Largest
			changes.Update = append(changes.Update, update)
		}
	}
	for _, object := range published {
		if have[object.Name] != nil {
			changes.Delete = append(changes.Delete, object)
		}
	}
	return changes
}

// object returns the segment's object. It goes with its class.
func (s Segment) object(namespace string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      s.Name(),
			Labels:    map[string]string{keys.Capacity: keys.CapacityPublished},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass", Name: s.Class, UID: s.UID,
			}},
		},
		StorageClassName:  s.Class,
		NodeTopology:      s.Nodes,
		Capacity:          s.Free,
		MaximumVolumeSize: s.Largest,
	}
}

// Published says whether an object is one that was published here.
func Published(object *storagev1.CSIStorageCapacity, namespace string) bool {
	return object.Namespace == namespace && object.Labels[keys.Capacity] == keys.CapacityPublished
}

// split returns what was published here and what drivers tell.
func split(all []*storagev1.CSIStorageCapacity, namespace string) (published, told []*storagev1.CSIStorageCapacity) {
	published = slices.Clone(all)
	published = slices.DeleteFunc(published, func(object *storagev1.CSIStorageCapacity) bool { return !Published(object, namespace) })
	told = slices.DeleteFunc(slices.Clone(all), func(object *storagev1.CSIStorageCapacity) bool { return Published(object, namespace) })
	return published, told
}

// differs says whether a twentieth or more has come or gone.
func differs(before, now *resource.Quantity) bool {
	if before == nil || now == nil {
		return before != now
	}
	a, b := before.AsApproximateFloat64(), now.AsApproximateFloat64()
	return a != b && math.Abs(b-a) >= math.Abs(a)/20
}
