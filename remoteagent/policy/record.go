package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// maxNotes bounds, in bytes, the labels and annotations that a Record keeps. With
// more it keeps those that say whose the shadow is; home carries its own again.
const maxNotes = 64 << 10

// Record is what is kept, on a real volume, of its shadow that somebody deleted:
// enough to make the shadow anew, and the volume's own reclaim policy. Only who
// may change volumes can write it: neither home nor the users of its namespaces.
type Record struct {
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy"`
	Labels        map[string]string                    `json:"labels"`
	Annotations   map[string]string                    `json:"annotations,omitempty"`
	AccessModes   []corev1.PersistentVolumeAccessMode  `json:"accessModes"`
	Request       resource.Quantity                    `json:"request"`
}

// RecordOf returns the record of a real volume and its shadow.
func RecordOf(volume *corev1.PersistentVolume, shadow *corev1.PersistentVolumeClaim) Record {
	r := Record{
		ReclaimPolicy: volume.Spec.PersistentVolumeReclaimPolicy,
		Labels:        maps.Clone(shadow.Labels),
		Annotations:   maps.Clone(shadow.Annotations),
		AccessModes:   slices.Clone(shadow.Spec.AccessModes),
		Request:       shadow.Spec.Resources.Requests[corev1.ResourceStorage],
	}
	// A volume is not bound to a claim for more than it has; what was asked for
	// besides is asked for again by home.
	if has := volume.Spec.Capacity[corev1.ResourceStorage]; r.Request.Cmp(has) > 0 {
		r.Request = has
	}
	// What Kubernetes notes there is of the claim that goes.
	maps.DeleteFunc(r.Annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || key == corev1.LastAppliedConfigAnnotation
	})
	size := 0
	for _, notes := range []map[string]string{r.Labels, r.Annotations} {
		for key, value := range notes {
			size += len(key) + len(value)
		}
	}
	if size > maxNotes {
		others := func(key, _ string) bool {
			return !slices.Contains([]string{keys.ClaimUID, keys.HomeID, keys.Claim}, key)
		}
		maps.DeleteFunc(r.Labels, others)
		maps.DeleteFunc(r.Annotations, others)
	}
	return r
}

// Encode returns the record as ReadRecord reads it.
func (r Record) Encode() (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode record: %w", err)
	}
	return string(data), nil
}

// ReadRecord returns the record of a volume, nil if it has none.
func ReadRecord(volume *corev1.PersistentVolume) (*Record, error) {
	text, ok := volume.Annotations[keys.HealingRecord]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", keys.HealingRecord, err)
	}
	switch r.ReclaimPolicy {
	case corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimRecycle:
	default:
		return nil, fmt.Errorf("read annotation %s: there is no reclaim policy %q", keys.HealingRecord, r.ReclaimPolicy)
	}
	if r.Labels[keys.HomeID] == "" || r.Labels[keys.ClaimUID] == "" {
		return nil, fmt.Errorf("read annotation %s: it does not say whose the claim is", keys.HealingRecord)
	}
	return r, nil
}

// Shadow returns the shadow that takes the place of the one that is recorded, for
// the volume that names it.
func (r Record) Shadow(volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	annotations := maps.Clone(r.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[keys.Healing] = "true"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name,
			Labels: maps.Clone(r.Labels), Annotations: annotations,
			Finalizers: []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               slices.Clone(r.AccessModes),
			VolumeMode:                volume.Spec.VolumeMode,
			Resources:                 corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: r.Request}},
			StorageClassName:          &volume.Spec.StorageClassName,
			VolumeAttributesClassName: volume.Spec.VolumeAttributesClassName,
			VolumeName:                volume.Name,
		},
	}
}

// is reports whether a claim is the recorded shadow of a volume, or one that takes
// its place.
func (r Record) is(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	return claim.Labels[keys.HomeID] == r.Labels[keys.HomeID] && claim.Labels[keys.ClaimUID] == r.Labels[keys.ClaimUID] &&
		claim.Spec.VolumeName == volume.Name
}
