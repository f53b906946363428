package clusters

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxObject is the most, in bytes, that an object of a remote cluster may have
	// to be looked at; those that hold volumes have a few thousand.
	maxObject = 256 << 10
	// maxEntries is how many entries an object of a remote cluster may have in its
	// lists and maps together.
	maxEntries = 2000
	// maxClasses is how many storage classes of a remote cluster are looked at.
	maxClasses = 500
)

// uids are what UIDs look like; they become parts of names and annotations.
var uids = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// Trusted takes from an object of a remote cluster what no API server stores, for
// whoever runs that cluster may answer anything: a broken object keeps its name
// alone, by which it is known in caches, and a size that is none is taken off.
func Trusted(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace == "" {
			return &corev1.PersistentVolumeClaim{ObjectMeta: nameOf(object)}, nil
		}
		object.Spec.AccessModes, object.Status.AccessModes = known(object.Spec.AccessModes), known(object.Status.AccessModes)
		if name := object.Spec.StorageClassName; name != nil && len(*name) > validation.DNS1123SubdomainMaxLength {
			return &corev1.PersistentVolumeClaim{ObjectMeta: nameOf(object)}, nil
		}
		for _, sizes := range []corev1.ResourceList{object.Spec.Resources.Requests, object.Spec.Resources.Limits, object.Status.Capacity, object.Status.AllocatedResources} {
			dropUnsound(sizes)
		}
	case *corev1.PersistentVolume:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace != "" {
			return &corev1.PersistentVolume{ObjectMeta: nameOf(object)}, nil
		}
		object.Spec.AccessModes = known(object.Spec.AccessModes)
		dropUnsound(object.Spec.Capacity)
	case *storagev1.StorageClass:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace != "" || len(object.Provisioner) > validation.DNS1123SubdomainMaxLength {
			// One of ours is offered to nobody.
			return &storagev1.StorageClass{ObjectMeta: nameOf(object)}, nil
		}
	case *corev1.Node:
		if !sound(object, object.Size()) || object.Namespace != "" {
			// No volume can be used on a node without labels, but for one that names it.
			return &corev1.Node{ObjectMeta: nameOf(object)}, nil
		}
	case *corev1.Pod:
		object.SetManagedFields(nil)
		if !sound(object, object.Size()) || object.Namespace == "" {
			// One without a UID is nobody's.
			return &corev1.Pod{ObjectMeta: nameOf(object)}, nil
		}
	case *storagev1.CSIStorageCapacity:
		object.SetManagedFields(nil)
		if object.Size() > maxObject || entries(object) > maxEntries {
			// One without a capacity is not looked at.
			return &storagev1.CSIStorageCapacity{ObjectMeta: nameOf(object)}, nil
		}
	}
	return obj, nil
}

// sound says whether an object has names and a size as API servers store them.
func sound(object metav1.Object, size int) bool {
	return size <= maxObject && entries(object) <= maxEntries && uids.MatchString(string(object.GetUID())) && len(object.GetResourceVersion()) <= 64 &&
		len(validation.IsDNS1123Subdomain(object.GetName())) == 0 &&
		(object.GetNamespace() == "" || len(validation.IsDNS1123Label(object.GetNamespace())) == 0)
}

// known takes off a list the access modes that no volume has. Virtual volumes get those of
// real ones, and no API server would take one with others.
func known(modes []corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode {
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

// dropUnsound takes sizes off a list that no volume has: less than nothing, or more
// than an int64 holds.
func dropUnsound(sizes corev1.ResourceList) {
	for name, size := range sizes {
		if !soundSize(size) {
			delete(sizes, name)
		}
	}
}

// soundSize looks at a size without computing with it, which may take for ever.
func soundSize(size resource.Quantity) bool {
	parts := size.DeepCopy()
	digits := parts.AsDec()
	const most = 19 // digits of an int64
	if scale := int(digits.Scale()); scale > most || scale < -most || digits.UnscaledBig().BitLen() > 128 {
		return false
	}
	return size.Sign() >= 0 && size.Cmp(*resource.NewQuantity(1<<62, resource.BinarySI)) <= 0
}
