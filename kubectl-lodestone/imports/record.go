// Package imports is the command import: it makes the data of a real claim, or of a retained
// volume, that of a virtual claim, without copying. Read command.go and then decide.go first.
//
// At home the real volume is bound to another claim, its twin; in a remote cluster the real claim
// stays and becomes the shadow. Either is done in steps. Each step is one write that fails if the
// object has changed since it was read, and the next step is decided from what the clusters hold
// then: so another run can complete what a stopped run has begun. At any time the real volume is
// bound to a claim or has the policy Retain, or both.
package imports

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Record is the annotation on a real volume of home that describes the import under way.
type Record struct {
	// Policy is the reclaim policy that the volume gets at the end.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	// From is the real claim that had the volume, its UID empty if none had.
	From Holder `json:"from"`
	// Old is the virtual volume through which the data was used before, empty for none.
	Old string `json:"old,omitempty"`
	// Claim is the virtual claim to make.
	Claim *corev1.PersistentVolumeClaim `json:"claim"`
}

// Holder names a claim.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
}

func (h Holder) String() string { return h.Namespace + "/" + h.Name }

// recordOf reads the record of a real volume, nil if there is none.
func recordOf(real *corev1.PersistentVolume) (*Record, error) {
	text := real.Annotations[keys.Import]
	if text == "" {
		return nil, nil //nolint:nilnil // no record is no error
	}
	record := &Record{}
	if err := json.Unmarshal([]byte(text), record); err != nil || record.Claim == nil || record.Policy == "" {
		return nil, fmt.Errorf("annotation %s of volume %s cannot be read: take it off, see that the volume's reclaim policy is right, "+
			"and import again", keys.Import, real.Name)
	}
	return record, nil
}

func (r *Record) text() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write the record of the import: %w", err)
	}
	return string(text), nil
}

// homeID identifies the import of a real volume of home, remoteID that of a claim of a remote
// cluster. The virtual claim has it in an annotation until it has its volume.
func homeID(real *corev1.PersistentVolume) string {
	return keys.Home + "/" + real.Name + "/" + string(real.UID)
}

func remoteID(cluster string, shadow *corev1.PersistentVolumeClaim) string {
	return backing.RefTo(cluster, shadow).String()
}

// foreignPrefixes are the prefixes of annotations that Kubernetes, kubectl or Lodestone wrote about
// the former claim, and that are not true of the new one.
var foreignPrefixes = []string{"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/",
	"lodestone.dev/"}

// virtualClaim returns the claim to make, as similar to like as possible. like is the former claim,
// nil if there is none.
func virtualClaim(at types.NamespacedName, class, id string, like *corev1.PersistentVolumeClaim,
	real *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{},
			Annotations: map[string]string{keys.Import: id}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: real.Spec.AccessModes, VolumeMode: real.Spec.VolumeMode, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]},
			},
		},
	}
	if name := real.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		claim.Spec.VolumeAttributesClassName = name
	}
	if like == nil {
		return claim
	}
	claim.Spec.AccessModes = like.Spec.AccessModes
	if asked, ok := like.Spec.Resources.Requests[corev1.ResourceStorage]; ok && asked.Cmp(real.Spec.Capacity[corev1.ResourceStorage]) <= 0 {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = asked
	}
	for key, value := range like.Labels {
		if !strings.HasPrefix(key, "lodestone.dev/") {
			claim.Labels[key] = value
		}
	}
	for key, value := range like.Annotations {
		if !hasAnyPrefix(key, foreignPrefixes) {
			claim.Annotations[key] = value
		}
	}
	return claim
}

func hasAnyPrefix(key string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
