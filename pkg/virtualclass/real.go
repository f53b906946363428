package virtualclass

import (
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const noProvisioner = "kubernetes.io/no-provisioner"

// Offer returns the real classes among a cluster's storage classes, by name.
// Virtual classes are left out, so that no volume is ever backed by another
// virtual one. At most one is marked as default: as in Kubernetes the newest of
// those that are annotated so, the first by name among equals.
func Offer(classes []*storagev1.StorageClass) []v1alpha1.OfferedClass {
	var offered []v1alpha1.OfferedClass
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if Is(class) {
			continue
		}
		if isDefault(class) && (chosen == nil || precedes(class, chosen)) {
			chosen = class
		}
		mode := storagev1.VolumeBindingImmediate
		if class.VolumeBindingMode != nil {
			mode = *class.VolumeBindingMode
		}
		offered = append(offered, v1alpha1.OfferedClass{
			Name:                 class.Name,
			Provisioner:          class.Provisioner,
			BindingMode:          mode,
			AllowVolumeExpansion: class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion,
			Static:               class.Provisioner == noProvisioner,
			Templated:            templated(class),
		})
	}
	slices.SortFunc(offered, func(a, b v1alpha1.OfferedClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range offered {
		offered[i].Default = chosen != nil && offered[i].Name == chosen.Name
	}
	return offered
}

// isDefault reads the annotation in both spellings that Kubernetes knows.
func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

func precedes(a, b *storagev1.StorageClass) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

func templated(class *storagev1.StorageClass) bool {
	for _, value := range class.Parameters {
		if strings.Contains(value, "${pvc.") {
			return true
		}
	}
	return false
}

// Resolve picks the real class of the given name from those that a cluster
// offers, or its default class when name is empty. where names the cluster in
// the error, which is one sentence.
func Resolve(name, where string, offered []v1alpha1.OfferedClass) (v1alpha1.OfferedClass, error) {
	for _, class := range offered {
		if (name == "" && class.Default) || (name != "" && class.Name == name) {
			return class, nil
		}
	}
	if name == "" {
		return v1alpha1.OfferedClass{}, fmt.Errorf("%s has no default storage class of its own: mark one as default there, or name one in the virtual class or the RemoteCluster", where)
	}
	return v1alpha1.OfferedClass{}, fmt.Errorf("%s has no real storage class %q: create it there (a virtual class does not count), or name another in the virtual class", where, name)
}
