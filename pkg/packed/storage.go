package packed

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claim packs a claim: its metadata and its volume are its own.
func Claim(claim *corev1.PersistentVolumeClaim) any { return Pack[claims](claim) }

// Volume packs a volume: its metadata, its claim and its source are its own.
func Volume(volume *corev1.PersistentVolume) any { return Pack[volumes](volume) }

// Attachment packs an attachment: nothing is in common.
func Attachment(attachment *storagev1.VolumeAttachment) any { return Pack[attachments](attachment) }

type claims struct{}

// Split implements Codec.
func (claims) Split(c *corev1.PersistentVolumeClaim) (own, common []byte) {
	its := corev1.PersistentVolumeClaim{ObjectMeta: c.ObjectMeta, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.Spec.VolumeName}}
	its.Finalizers = nil
	c.ObjectMeta, c.Spec.VolumeName = metav1.ObjectMeta{Finalizers: c.Finalizers}, ""
	return Encode(&its), Encode(c)
}

// Join implements Codec.
func (claims) Join(own, common []byte) *corev1.PersistentVolumeClaim {
	its, c := Decode[corev1.PersistentVolumeClaim](own), Decode[corev1.PersistentVolumeClaim](common)
	its.Finalizers = c.Finalizers
	c.ObjectMeta, c.Spec.VolumeName = its.ObjectMeta, its.Spec.VolumeName
	return c
}

type volumes struct{}

// Split implements Codec.
func (volumes) Split(v *corev1.PersistentVolume) (own, common []byte) {
	its := corev1.PersistentVolume{ObjectMeta: v.ObjectMeta,
		Spec: corev1.PersistentVolumeSpec{ClaimRef: v.Spec.ClaimRef, PersistentVolumeSource: v.Spec.PersistentVolumeSource}}
	its.Finalizers = nil
	v.ObjectMeta = metav1.ObjectMeta{Finalizers: v.Finalizers}
	v.Spec.ClaimRef, v.Spec.PersistentVolumeSource = nil, corev1.PersistentVolumeSource{}
	return Encode(&its), Encode(v)
}

// Join implements Codec.
func (volumes) Join(own, common []byte) *corev1.PersistentVolume {
	its, v := Decode[corev1.PersistentVolume](own), Decode[corev1.PersistentVolume](common)
	its.Finalizers = v.Finalizers
	v.ObjectMeta, v.Spec.ClaimRef, v.Spec.PersistentVolumeSource = its.ObjectMeta, its.Spec.ClaimRef, its.Spec.PersistentVolumeSource
	return v
}

type attachments struct{}

// Split implements Codec.
func (attachments) Split(a *storagev1.VolumeAttachment) (own, common []byte) { return Encode(a), nil }

// Join implements Codec.
func (attachments) Join(own, _ []byte) *storagev1.VolumeAttachment {
	return Decode[storagev1.VolumeAttachment](own)
}
