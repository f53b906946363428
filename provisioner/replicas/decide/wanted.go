package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Wanted returns the VolumeReplica that a claim is to have because its class or its annotations say so; nil: none, or not yet. why says
// why none can be made, in one sentence for the claim's user. volume is the claim's.
func Wanted(claim *corev1.PersistentVolumeClaim, class virtualclass.Class, volume *corev1.PersistentVolume) (_ *v1alpha1.VolumeReplica,
	why string) {
	if _, done := claim.Annotations[keys.Replicated]; done || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound ||
		volume.Annotations[keys.Backing] == "" {
		return nil, ""
	}
	to, rpo, err := class.Replication(claim.Annotations)
	switch {
	case err != nil:
		return nil, "no second copy is kept: " + err.Error()
	case len(to) == 0:
		return nil, ""
	}
	at := volume.Labels[keys.Cluster]
	i := slices.IndexFunc(to, func(cluster string) bool { return cluster != at })
	if i < 0 {
		return nil, fmt.Sprintf("no second copy is kept: the data is in cluster %s, and %s names no other: add one", at, keys.ReplicateTo)
	}
	name := claim.Name + "-" + to[i]
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return nil, fmt.Sprintf("no second copy is kept: %q cannot be the name of a VolumeReplica: %s; make one by kubectl lodestone replicate",
			name, strings.Join(wrong, "; "))
	}
	wanted := &v1alpha1.VolumeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: name},
		Spec:       v1alpha1.VolumeReplicaSpec{Claims: []string{claim.Name}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: to[i]}}},
	}
	if rpo > 0 {
		wanted.Spec.RPO = &metav1.Duration{Duration: rpo.Round(time.Second)}
	}
	return wanted, ""
}
