package remote

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

const (
	// maxObject is the size limit of an object of a remote cluster, in bytes; those of
	// volumes have a few thousand.
	maxObject = 256 << 10
	// maxEntries limits the entries in an object's lists and maps together.
	maxEntries = 2000
	// maxClasses limits how many storage classes of a remote cluster are used.
	maxClasses = 500
)

// uids is the syntax of UIDs; they become parts of names and annotations.
var uids = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// Trusted removes from an object of a remote cluster what no API server would store:
// whoever runs that cluster may answer anything. Of a broken object only the name stays,
// which is its key in the cache. An invalid size is removed.
func Trusted(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace == "" {
			return &corev1.PersistentVolumeClaim{ObjectMeta: nameOf(object)}, nil
		}
		object.Spec.AccessModes, object.Status.AccessModes = knownModes(object.Spec.AccessModes), knownModes(object.Status.AccessModes)
		if name := object.Spec.StorageClassName; name != nil && len(*name) > validation.DNS1123SubdomainMaxLength {
			return &corev1.PersistentVolumeClaim{ObjectMeta: nameOf(object)}, nil
		}
		for _, sizes := range []corev1.ResourceList{object.Spec.Resources.Requests, object.Spec.Resources.Limits, object.Status.Capacity,
			object.Status.AllocatedResources} {
			dropUnsound(sizes)
		}
	case *corev1.PersistentVolume:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace != "" {
			return &corev1.PersistentVolume{ObjectMeta: nameOf(object)}, nil
		}
		object.Spec.AccessModes = knownModes(object.Spec.AccessModes)
		dropUnsound(object.Spec.Capacity)
	case *storagev1.StorageClass:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace != "" || len(object.Provisioner) > validation.DNS1123SubdomainMaxLength {
			// Only the name stays, without a provisioner.
			return &storagev1.StorageClass{ObjectMeta: nameOf(object)}, nil
		}
	case *corev1.Node:
		if !sound(object, object.Size()) || object.Namespace != "" {
			// Without labels only a volume that names the node can be used on it.
			return &corev1.Node{ObjectMeta: nameOf(object)}, nil
		}
	case *corev1.Pod:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace == "" {
			// A pod without a UID belongs to nobody.
			return &corev1.Pod{ObjectMeta: nameOf(object)}, nil
		}
	case *storagev1.CSIStorageCapacity:
		object.SetManagedFields(nil)
		if object.Size() > maxObject || entries(object) > maxEntries {
			// Without a capacity the object is ignored.
			return &storagev1.CSIStorageCapacity{ObjectMeta: nameOf(object)}, nil
		}
	}
	return obj, nil
}

// TrustedSnapshot keeps of a remote cluster's snapshot the fields that are used, if they
// have values that an API server would store: whoever runs that cluster may answer
// anything. Of a broken one only the name stays.
func TrustedSnapshot(s *volumesnapshot.Snapshot) {
	labels, annotations, group := s.Labels, s.Annotations, volumesnapshot.GroupOf(s)
	s.TypeMeta, s.ObjectMeta = metav1.TypeMeta{}, identityOf(s.ObjectMeta)
	long := func(name *string) bool { return name != nil && len(*name) > validation.DNS1123SubdomainMaxLength }
	if !sound(s, 0) || s.Namespace == "" ||
		slices.ContainsFunc([]*string{s.Spec.Source.ClaimName, s.Spec.Source.ContentName, s.Spec.ClassName, s.Status.ContentName}, long) {
		*s = volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		return
	}
	s.Labels = only(labels, keys.HomeID, keys.ContentUID, keys.MoveOf, keys.ReplicaOf)
	s.Annotations = only(annotations, keys.Content, keys.MadeBy, keys.Unpublished)
	if uids.MatchString(group) {
		s.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: volumesnapshot.GroupVersions[0].String(), Kind: volumesnapshot.GroupKind, UID: types.UID(group),
		}}
	}
	if size := s.Status.RestoreSize; size != nil && !soundSize(*size) {
		s.Status.RestoreSize = nil
	}
	cutFailure(s.Status.Error)
}

// TrustedGroup does for a VolumeGroupSnapshot what TrustedSnapshot does for others.
func TrustedGroup(s *volumesnapshot.GroupSnapshot) {
	labels, annotations := s.Labels, s.Annotations
	s.TypeMeta, s.ObjectMeta = metav1.TypeMeta{}, identityOf(s.ObjectMeta)
	s.Spec = volumesnapshot.GroupSnapshotSpec{}
	if name := s.Status.ContentName; !sound(s, 0) || s.Namespace == "" || name != nil && len(*name) > validation.DNS1123SubdomainMaxLength {
		*s = volumesnapshot.GroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		return
	}
	s.Labels = only(labels, keys.HomeID, keys.ContentUID, keys.MoveOf, keys.ReplicaOf)
	s.Annotations = only(annotations, keys.Content, keys.MadeBy, keys.Unpublished)
	cutFailure(s.Status.Error)
}

// identityOf keeps what tells an object from others.
func identityOf(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func cutFailure(failed *volumesnapshot.Failure) {
	const maxMessage = 1024
	if failed != nil && failed.Message != nil && len(*failed.Message) > maxMessage {
		failed.Message = ptr.To(sentence.Cut(*failed.Message, maxMessage))
	}
}

// only returns the wanted keys of a map, if their values are no longer than names.
func only(of map[string]string, wanted ...string) map[string]string {
	found := map[string]string{}
	for _, key := range wanted {
		if value, ok := of[key]; ok && len(value) <= validation.DNS1123SubdomainMaxLength {
			found[key] = value
		}
	}
	return found
}

// sound says whether an object has valid names and an acceptable size.
func sound(object metav1.Object, size int) bool {
	return size <= maxObject && entries(object) <= maxEntries && uids.MatchString(string(object.GetUID())) &&
		len(object.GetResourceVersion()) <= 64 &&
		len(validation.IsDNS1123Subdomain(object.GetName())) == 0 &&
		(object.GetNamespace() == "" || len(validation.IsDNS1123Label(object.GetNamespace())) == 0)
}

// knownModes removes unknown access modes from a list. Virtual volumes get the modes of
// real ones, and no API server would accept others.
func knownModes(modes []corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode {
	return slices.DeleteFunc(modes, func(mode corev1.PersistentVolumeAccessMode) bool {
		switch mode {
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod:
			return false
		default:
			return true
		}
	})
}

func nameOf(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), ResourceVersion: object.GetResourceVersion()}
}

// dropUnsound removes sizes that no volume has: negative, or more than an int64 holds.
func dropUnsound(sizes corev1.ResourceList) {
	for name, size := range sizes {
		if !soundSize(size) {
			delete(sizes, name)
		}
	}
}

// soundSize checks a size without arithmetic on it, which may take for ever.
func soundSize(size resource.Quantity) bool {
	parts := size.DeepCopy()
	digits := parts.AsDec()
	const most = 19 // digits of an int64
	if scale := int(digits.Scale()); scale > most || scale < -most || digits.UnscaledBig().BitLen() > 128 {
		return false
	}
	return size.Sign() >= 0 && size.Cmp(*resource.NewQuantity(1<<62, resource.BinarySI)) <= 0
}

const (
	// maxBytes is the limit for the memory of one remote cluster's cached objects, in
	// bytes, as weight estimates it.
	maxBytes = 256 << 20
	// objectBytes is about what an object needs besides its text, with its entry in the
	// cache; an object with nothing but its name needs more than half of it.
	objectBytes = 1 << 10
	// packedBytes is what a packed object needs besides its text.
	packedBytes = 320
	// entryBytes is about what an entry of a list or map needs besides its text.
	entryBytes = 96
)

// size estimates the memory of all cached objects of a cluster, in bytes.
func (c *connection) size() int {
	total := weightOf(c.volumes.GetStore()) + weightOf(c.classes.GetStore())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watched := range c.claims {
		total += weightOf(watched.GetStore())
	}
	for _, watched := range c.snapshots {
		for _, key := range watched.GetStore().ListKeys() {
			// Once as the key, once in the object.
			total += snapshotBytes + 2*len(key)
		}
	}
	if c.room != nil {
		total += weightOf(c.room.GetStore())
	}
	if c.nodes != nil {
		total += weightOf(c.nodes.GetStore())
	}
	if c.namespaces != nil {
		total += c.namespaces.Size()
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

// weight estimates the memory of an object, in bytes.
func weight(obj any) int {
	size := 0
	if sized, ok := obj.(interface{ Size() int }); ok {
		size = sized.Size()
	}
	object, ok := obj.(metav1.Object)
	if !ok {
		return packedBytes + size // Lists and maps are in its text, too.
	}
	return objectBytes + size + entries(object)*entryBytes
}

// entries counts the entries of an object's lists and maps: empty ones take hardly any
// bytes on the wire.
func entries(object metav1.Object) int {
	n := len(object.GetLabels()) + len(object.GetAnnotations()) + len(object.GetFinalizers()) + len(object.GetOwnerReferences())
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		spec, status := object.Spec, object.Status
		n += len(spec.AccessModes) + len(spec.Resources.Requests) + len(spec.Resources.Limits) +
			len(status.AccessModes) + len(status.Capacity) + len(status.AllocatedResources) + len(status.AllocatedResourceStatuses) +
			len(status.Conditions)
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

// inSource counts all kinds of sources: an untrusted object may have more than one.
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
