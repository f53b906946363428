package flow

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"
)

// class returns the storage class of a claim, nil if it does not exist.
func (f *Flow) class(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if name := className(claim); name != "" {
		return one[storagev1.StorageClass](f.Sources.Classes, name)
	}
	return nil
}

func className(claim *corev1.PersistentVolumeClaim) string {
	return volumehelpers.GetPersistentVolumeClaimClass(claim)
}
