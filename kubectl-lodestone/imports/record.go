// Package imports makes a real claim, or a volume that was kept, the data of
// a virtual claim, without copying.
//
// At home the real volume is bound to another claim, its twin; in a remote cluster
// the real claim stays and becomes the shadow. Either is done in steps. Each is
// one write, which fails if what it changes is no longer as it was seen, and the
// next step is decided from what the clusters hold then: so a run that was stopped
// anywhere is ended by another run. The real volume is never without either
// a claim that holds it or the policy Retain.
package imports

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Record is, on a real volume of home, the import that is under way.
type Record struct {
	// Policy is the reclaim policy that the volume is to have at the end.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	// From is the real claim that had the volume, its UID empty if none had.
	From Holder `json:"from"`
	// Old is the virtual volume that stood for the data before, empty for none.
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
		return nil, fmt.Errorf("annotation %s of volume %s cannot be read: take it off, see that the volume's reclaim policy is right, and import again", keys.Import, real.Name)
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

// homeID names the import of a real volume of home, remoteID that of a claim of
// a remote cluster; a virtual claim carries it until it has its volume.
func homeID(real *corev1.PersistentVolume) string {
	return keys.Home + "/" + real.Name + "/" + string(real.UID)
}

func remoteID(cluster string, shadow *corev1.PersistentVolumeClaim) string {
	return backings.RefTo(cluster, shadow).String()
}

// foreign begins the keys of annotations that Kubernetes, kubectl or Lodestone
// wrote about the claim that was, and that say nothing of the one that is to be.
var foreign = []string{"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/", "lodestone.dev/"}

// virtualClaim returns the claim to make: as like the one that was as can be.
// like is that one, nil if there is none.
func virtualClaim(at types.NamespacedName, class, id string, like *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{}, Annotations: map[string]string{keys.Import: id}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: real.Spec.AccessModes, VolumeMode: real.Spec.VolumeMode, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]}},
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
		if !begins(key, foreign) {
			claim.Annotations[key] = value
		}
	}
	return claim
}

func begins(key string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
