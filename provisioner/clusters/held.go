package clusters

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// maxHeld is the most, in bytes of memory, that is held of one remote cluster, as
	// weight estimates it.
	maxHeld = 256 << 20
	// objectBytes is about what an object takes beside its text, with its place in
	// the cache: one of which only the name is left takes more than half of it.
	objectBytes = 1 << 10
	// entryBytes is about what an entry of a list or map takes beside its text.
	entryBytes = 96
)

// held returns how much memory what a cluster told takes, in bytes, about.
func (c *connection) held() int {
	total := weightOf(c.volumes.GetStore()) + weightOf(c.classes.GetStore())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watched := range c.shadows {
		total += weightOf(watched.GetStore())
	}
	for _, watched := range c.taken {
		for _, key := range watched.GetStore().ListKeys() {
			// Once as the key, and once in the object.
			total += takenBytes + 2*len(key)
		}
	}
	if c.room != nil {
		total += weightOf(c.room.GetStore())
	}
	if c.nodes != nil {
		total += weightOf(c.nodes.GetStore())
	}
	if c.keeper != nil {
		total += c.keeper.Held()
	}
	return total
}

func weightOf(store cache.Store) int {
	total := 0
	for _, obj := range store.List() {
		total += weight(obj)
	}
	return total
}

// weight returns how much memory an object takes, in bytes, about.
func weight(obj any) int {
	total := objectBytes
	if sized, ok := obj.(interface{ Size() int }); ok {
		total += sized.Size()
	}
	if object, ok := obj.(metav1.Object); ok {
		total += entries(object) * entryBytes
	}
	return total
}

// entries returns how many entries an object has in its lists and maps: empty ones
// take hardly any bytes to send.
func entries(object metav1.Object) int {
	n := len(object.GetLabels()) + len(object.GetAnnotations()) + len(object.GetFinalizers()) + len(object.GetOwnerReferences())
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		spec, status := object.Spec, object.Status
		n += len(spec.AccessModes) + len(spec.Resources.Requests) + len(spec.Resources.Limits) +
			len(status.AccessModes) + len(status.Capacity) + len(status.AllocatedResources) + len(status.AllocatedResourceStatuses) + len(status.Conditions)
		if spec.Selector != nil {
			n += len(spec.Selector.MatchLabels) + len(spec.Selector.MatchExpressions)
			for _, expression := range spec.Selector.MatchExpressions {
				n += len(expression.Values)
			}
		}
	case *corev1.PersistentVolume:
		spec := object.Spec
		n += len(spec.AccessModes) + len(spec.Capacity) + len(spec.MountOptions) + inSource(spec.PersistentVolumeSource)
		if spec.NodeAffinity != nil && spec.NodeAffinity.Required != nil {
			n += inTerms(spec.NodeAffinity.Required.NodeSelectorTerms)
		}
	case *storagev1.StorageClass:
		n += len(object.Parameters) + len(object.MountOptions) + len(object.AllowedTopologies)
		for _, topology := range object.AllowedTopologies {
			n += len(topology.MatchLabelExpressions)
			for _, expression := range topology.MatchLabelExpressions {
				n += len(expression.Values)
			}
		}
	}
	return n
}

// inSource counts all kinds of sources: more than one may be told.
func inSource(source corev1.PersistentVolumeSource) int {
	n := 0
	if source.CSI != nil {
		n += len(source.CSI.VolumeAttributes)
	}
	if source.FlexVolume != nil {
		n += len(source.FlexVolume.Options)
	}
	if source.FC != nil {
		n += len(source.FC.TargetWWNs) + len(source.FC.WWIDs)
	}
	if source.ISCSI != nil {
		n += len(source.ISCSI.Portals)
	}
	if source.RBD != nil {
		n += len(source.RBD.CephMonitors)
	}
	if source.CephFS != nil {
		n += len(source.CephFS.Monitors)
	}
	return n
}

func inTerms(terms []corev1.NodeSelectorTerm) int {
	n := len(terms)
	for _, term := range terms {
		for _, list := range [][]corev1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			n += len(list)
			for _, expression := range list {
				n += len(expression.Values)
			}
		}
	}
	return n
}
