package locality

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Everywhere is the value of annotation keys.UsableIn that means all clusters.
const Everywhere = "*"

// maxMark limits the annotation keys.UsableIn, which users write: a longer one counts as none.
const maxMark = 4096

// Mark returns what the annotation keys.UsableIn of an object says, empty for nothing.
func Mark(annotations map[string]string) string {
	if mark := annotations[keys.UsableIn]; len(mark) <= maxMark {
		return mark
	}
	return ""
}

// Lists reports whether a Mark has a cluster.
func Lists(mark, cluster string) bool {
	for listed := range strings.SplitSeq(mark, ",") {
		if listed = strings.TrimSpace(listed); listed == Everywhere || (listed == cluster && cluster != "") {
			return true
		}
	}
	return false
}

// UsableIn reports whether pods of a remote cluster can use a claim of home: it is virtual, an
// administrator has labelled its volume with a cluster, or claim, volume or class are marked as
// usable there. volume and class are nil if the claim has none, or they could not be read.
func UsableIn(cluster string, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, class *storagev1.StorageClass) bool {
	if volume != nil {
		if of, _ := Of(volume); of != "" || Lists(Mark(volume.Annotations), cluster) {
			return true
		}
	} else if virtualclass.Is(class) {
		return true
	}
	return Lists(Mark(claim.Annotations), cluster) || (class != nil && Lists(Mark(class.Annotations), cluster))
}
