package backing

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Bounds of what one claim carries, so that its user cannot make the objects of
// other namespaces and clusters large: keys of each kind, and bytes of one value.
const (
	maxCarriedKeys  = 32
	maxCarriedBytes = 1024
)

// carried is what was last carried to a backing claim.
type carried struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// Carry gives a new backing claim the labels and annotations of its virtual
// claim that the class lets it carry.
func Carry(b, claim *corev1.PersistentVolumeClaim, class virtualclass.Class) {
	labels, annotations := chosen(claim.Labels, class), chosen(claim.Annotations, class)
	if len(labels)+len(annotations) == 0 {
		return
	}
	maps.Copy(b.Labels, labels)
	maps.Copy(b.Annotations, annotations)
	b.Annotations[keys.Carried] = record(labels, annotations)
}

// CarryPatch returns the labels and annotations to set, and to remove with nil,
// so that a backing claim has what its virtual claim carries and no more of what
// was carried before; both empty when it is so.
func CarryPatch(b, claim *corev1.PersistentVolumeClaim, class virtualclass.Class) (labels, annotations map[string]any) {
	text, recorded := b.Annotations[keys.Carried]
	if !class.CarriesAny() && !recorded {
		return nil, nil
	}
	var was carried
	// What cannot be read was written by nobody of ours: nothing is removed then.
	_ = json.Unmarshal([]byte(text), &was)
	wantLabels, wantAnnotations := chosen(claim.Labels, class), chosen(claim.Annotations, class)
	labels = difference(wantLabels, b.Labels, was.Labels)
	annotations = difference(wantAnnotations, b.Annotations, was.Annotations)
	switch want := record(wantLabels, wantAnnotations); {
	case len(wantLabels)+len(wantAnnotations) == 0 && recorded:
		annotations[keys.Carried] = nil
	case len(wantLabels)+len(wantAnnotations) > 0 && text != want:
		annotations[keys.Carried] = want
	}
	return labels, annotations
}

// chosen are the entries that the class carries, the first by key where they are
// too many, without those that are too long.
func chosen(have map[string]string, class virtualclass.Class) map[string]string {
	result := map[string]string{}
	if !class.CarriesAny() {
		return result
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if len(result) < maxCarriedKeys && class.Carries(key) && len(have[key]) <= maxCarriedBytes {
			result[key] = have[key]
		}
	}
	return result
}

// difference is what to set and to remove so that have holds want and none of
// the other keys that were carried. In a remote cluster others may write that
// list: it never says to remove what could not have been carried.
func difference(want, have map[string]string, was []string) map[string]any {
	changes := map[string]any{}
	for key, value := range want {
		if now, ok := have[key]; !ok || now != value {
			changes[key] = value
		}
	}
	for _, key := range was {
		_, wanted := want[key]
		if _, ok := have[key]; ok && !wanted && virtualclass.Carriable(key) {
			changes[key] = nil
		}
	}
	return changes
}

func record(labels, annotations map[string]string) string {
	// Strings, sorted, cannot fail to encode.
	text, _ := json.Marshal(carried{Labels: slices.Sorted(maps.Keys(labels)), Annotations: slices.Sorted(maps.Keys(annotations))})
	return string(text)
}
