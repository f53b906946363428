package snapshot

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// FromClaim returns the entry of a claim. Nothing of the claim stays referenced.
func FromClaim(pvc *corev1.PersistentVolumeClaim) (*Claim, bool) {
	claim := &Claim{
		UID:        string(pvc.UID),
		ClassName:  intern(className(pvc)),
		VolumeName: pvc.Spec.VolumeName,
		Asked:      max(0, pvc.Spec.Resources.Requests.Storage().Value()),
	}
	if owner := metav1.GetControllerOfNoCopy(pvc); owner != nil {
		claim.OwnerUID = string(owner.UID)
	}
	if choice, ok := pvc.Annotations[keys.Class]; ok {
		claim.Choice = map[string]string{keys.Class: choice}
	}
	if pvc.Spec.VolumeName == "" {
		claim.Refusals = refusal.Decode(pvc.Annotations[keys.Refused])
		for i := range claim.Refusals {
			// The sentence is for users, not for decisions, and may be long.
			claim.Refusals[i].Message = ""
		}
	}
	return claim, true
}

func className(pvc *corev1.PersistentVolumeClaim) string {
	// The annotation is older than the field, and Kubernetes still puts it first.
	if name, ok := pvc.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if pvc.Spec.StorageClassName != nil {
		return *pvc.Spec.StorageClassName
	}
	return ""
}

// FromVolume returns the entry of a volume; false when it has no claim.
func FromVolume(pv *corev1.PersistentVolume) (*Volume, bool) {
	if pv.Spec.ClaimRef == nil {
		return nil, false
	}
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	volume := &Volume{
		Bytes:    max(0, capacity.Value()),
		ClaimUID: string(pv.Spec.ClaimRef.UID),
	}
	if cluster, hard := locality.Of(pv); hard {
		volume.Cluster = intern(cluster)
	} else {
		volume.Prefers = intern(cluster)
	}
	if pv.Spec.CSI != nil {
		volume.Driver = intern(pv.Spec.CSI.Driver)
	}
	return volume, true
}

// FromStorageClass returns the entry of a storage class; false when it is not
// virtual.
func FromStorageClass(class *storagev1.StorageClass) (*Class, bool) {
	if !virtualclass.Is(class) {
		return nil, false
	}
	parsed, err := virtualclass.Parse(class)
	return &Class{Class: parsed, Invalid: err != nil}, true
}

// FromRemoteCluster returns the entry of a remote cluster. One that is being
// removed takes no new volumes, so it counts as not ready.
func FromRemoteCluster(cluster *v1alpha1.RemoteCluster) (*Cluster, bool) {
	return &Cluster{
		Ready:        cluster.DeletionTimestamp == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.Ready),
		DefaultClass: cluster.Spec.StorageClassName,
		Offered:      cluster.Status.StorageClasses,
	}, true
}

// FromNode returns the ID of the cluster that a node stands for.
func FromNode(node *corev1.Node) (string, bool) {
	return intern(locality.OfNode(node.Labels)), true
}

// FromNamespace returns the entry of a namespace; nil when its pods may run in no
// remote cluster.
func FromNamespace(namespace *corev1.Namespace) (*Namespace, bool) {
	if namespace.Labels[keys.Offload] != keys.OffloadEnabled {
		return nil, true
	}
	entry := &Namespace{}
	entry.object.Labels = map[string]string{keys.Offload: keys.OffloadEnabled}
	if clusters, narrowed := namespace.Annotations[keys.OffloadClusters]; narrowed {
		entry.object.Annotations = map[string]string{keys.OffloadClusters: clusters}
	}
	return entry, true
}

// intern returns one shared copy of a string that occurs in many objects.
func intern(s string) string {
	return unique.Make(s).Value()
}
