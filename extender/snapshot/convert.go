package snapshot

import (
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// maxName is the longest name that Kubernetes accepts; annotations can be longer.
const maxName = 253

// FromClaim returns the entry of a claim. It keeps no reference to the claim, and its size does not
// depend on what the claim's user writes.
func FromClaim(pvc *corev1.PersistentVolumeClaim) (*Claim, bool) {
	claim := &Claim{
		UID:        string(pvc.UID),
		ClassName:  intern(name(className(pvc))),
		VolumeName: name(pvc.Spec.VolumeName),
		Asked:      max(0, pvc.Spec.Resources.Requests.Storage().Value()),
		Bound:      pvc.Status.Phase == corev1.ClaimBound,
		Moving:     pvc.Annotations[keys.Move] != "",
		Mark:       intern(locality.Mark(pvc.Annotations)),
	}
	if owner := metav1.GetControllerOfNoCopy(pvc); owner != nil {
		claim.OwnerUID = name(string(owner.UID))
		claim.OfPod = owner.Kind == "Pod" && owner.APIVersion == "v1"
	}
	if choice, ok := pvc.Annotations[keys.Class]; ok {
		claim.Choice = map[string]string{keys.Class: name(choice)}
	}
	if pvc.Spec.VolumeName == "" {
		claim.Source = sourceOf(pvc)
		if claim.FromSnapshot = fromSnapshot(pvc); claim.FromSnapshot {
			claim.SourceCluster = intern(name(pvc.Annotations[keys.SourceCluster]))
		}
		// A twin is excluded, since the volume of its virtual claim counts; no volume is made for a
		// claim with a selector.
		if pvc.Labels[keys.ClaimUID] == "" && pvc.Spec.Selector == nil {
			claim.SelectedNode = intern(name(pvc.Annotations[keys.SelectedNode]))
		}
		claim.Refusals = refusalsOf(pvc)
	}
	return claim, true
}

// name returns a name unchanged. Of a text that is too long for a name it returns the beginning,
// which is still too long.
func name(s string) string {
	if len(s) <= maxName {
		return s
	}
	return strings.Clone(s[:maxName+1])
}

// refusalsOf returns the refusals of a claim without their sentences, which are for users, and
// without those that name no cluster.
func refusalsOf(pvc *corev1.PersistentVolumeClaim) []locality.Refusal {
	var kept []locality.Refusal
	for _, r := range locality.DecodeRefusals(pvc.Annotations[keys.Refused]) {
		if len(r.Cluster) <= maxName && len(r.Node) <= maxName {
			kept = append(kept, locality.Refusal{Cluster: r.Cluster, Node: r.Node, Reason: name(r.Reason), Until: r.Until})
		}
	}
	return kept
}

// sourceOf returns the name of the claim, in the same namespace, that a claim is to be a copy of;
// empty for other sources.
func sourceOf(pvc *corev1.PersistentVolumeClaim) string {
	const kind = "PersistentVolumeClaim"
	if ref := pvc.Spec.DataSourceRef; ref != nil {
		elsewhere := ref.Namespace != nil && *ref.Namespace != "" && *ref.Namespace != pvc.Namespace
		if ref.Kind == kind && ptr.Deref(ref.APIGroup, "") == "" && !elsewhere {
			return name(ref.Name)
		}
		return ""
	}
	if ref := pvc.Spec.DataSource; ref != nil && ref.Kind == kind && ptr.Deref(ref.APIGroup, "") == "" {
		return name(ref.Name)
	}
	return ""
}

// fromSnapshot reports whether a claim is to be made from a VolumeSnapshot, or from a version of a
// VolumeReplica, which is one, of its namespace.
func fromSnapshot(pvc *corev1.PersistentVolumeClaim) bool {
	if ref := pvc.Spec.DataSourceRef; ref != nil {
		elsewhere := ref.Namespace != nil && *ref.Namespace != "" && *ref.Namespace != pvc.Namespace
		group := ptr.Deref(ref.APIGroup, "")
		return !elsewhere && (ref.Kind == volumesnapshot.Kind && group == volumesnapshot.Group ||
			ref.Kind == "VolumeReplica" && group == v1alpha1.GroupVersion.Group)
	}
	ref := pvc.Spec.DataSource
	return ref != nil && ref.Kind == volumesnapshot.Kind && ptr.Deref(ref.APIGroup, "") == volumesnapshot.Group
}

func className(pvc *corev1.PersistentVolumeClaim) string {
	// The annotation is older than the field; Kubernetes still prefers it.
	if name, ok := pvc.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if pvc.Spec.StorageClassName != nil {
		return *pvc.Spec.StorageClassName
	}
	return ""
}

// FromVolume returns the entry of a volume; false if it has no claim.
func FromVolume(pv *corev1.PersistentVolume) (*Volume, bool) {
	if pv.Spec.ClaimRef == nil {
		return nil, false
	}
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	volume := &Volume{
		Bytes:    max(0, capacity.Value()),
		ClaimUID: name(string(pv.Spec.ClaimRef.UID)),
		Mark:     intern(locality.Mark(pv.Annotations)),
	}
	if cluster, hard := locality.Of(pv); hard {
		volume.Cluster = intern(cluster)
		_, known := locality.OfVolume(pv.Spec.NodeAffinity)
		volume.ByLabel = !known
	} else {
		volume.Prefers = intern(cluster)
	}
	if pv.Spec.CSI != nil {
		volume.Driver = intern(pv.Spec.CSI.Driver)
	}
	return volume, true
}

// FromRemoteCluster returns the entry of a remote cluster. One that is being deleted gets no new
// volumes, so it counts as not ready.
func FromRemoteCluster(cluster *v1alpha1.RemoteCluster) (*Cluster, bool) {
	return &Cluster{
		Ready:        cluster.DeletionTimestamp == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.Ready),
		DefaultClass: cluster.Spec.StorageClassName,
		Offered:      cluster.Status.StorageClasses,
		OwnNode:      slices.Contains(cluster.Finalizers, keys.VirtualNodeFinalizer) && cluster.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled,
	}, true
}

// FromNode returns the ID of the cluster that a node stands for.
func FromNode(node *corev1.Node) (string, bool) {
	return intern(locality.OfNode(node.Labels)), true
}

// FromCSINode returns the limits of a node; false if it has none.
func FromCSINode(node *storagev1.CSINode) (Limits, bool) {
	limits := Limits{}
	for _, driver := range node.Spec.Drivers {
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			limits[intern(driver.Name)] = int(*driver.Allocatable.Count)
		}
	}
	return limits, len(limits) > 0
}

// FromPod returns the claims that a pod uses on its node; false if it uses none, is on no node, or
// has ended.
func FromPod(pod *corev1.Pod) (Use, bool) {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Use{}, false
	}
	var claims []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		var claim string
		switch {
		case volume.PersistentVolumeClaim != nil:
			claim = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			claim = ephemeral.VolumeClaimName(pod, volume)
		default:
			continue
		}
		if len(claim) > maxName {
			// There is no claim of that name, and the key would be large.
			continue
		}
		if key := ClaimKey(pod.Namespace, claim); len(claims) < maxClaims && !slices.Contains(claims, key) {
			claims = append(claims, key)
		}
	}
	return Use{Node: intern(pod.Spec.NodeName), Claims: slices.Clip(claims)}, len(claims) > 0
}

// FromNamespace returns the entry of a namespace; nil if its pods may run in no remote cluster.
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

// FromCapacity returns the entry of a CSIStorageCapacity; false if it has no capacity.
func FromCapacity(capacity *storagev1.CSIStorageCapacity) (Capacity, bool) {
	if capacity.Capacity == nil {
		return Capacity{}, false
	}
	return Capacity{ClassName: intern(capacity.StorageClassName), Bytes: max(0, capacity.Capacity.Value())}, true
}

// intern returns one shared copy of a string that occurs in many objects.
func intern(s string) string {
	return unique.Make(s).Value()
}
