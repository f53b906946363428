package largecluster

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// driver is the CSI driver of home.
const driver = "disk.example.com"

func claimObject(i int) runtime.Object {
	if Unbound(i) {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: meta(Namespace, ClaimName(i), i, nil),
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"), Resources: corev1.VolumeResourceRequirements{Requests: gibibyte()}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(Namespace, ClaimName(i), i, map[string]string{
			"pv.kubernetes.io/bind-completed":               "yes",
			"pv.kubernetes.io/bound-by-controller":          "yes",
			"volume.kubernetes.io/storage-provisioner":      keys.Driver,
			"volume.beta.kubernetes.io/storage-provisioner": keys.Driver,
			keys.SelectedNode:                               NodeName(i % Nodes),
		}),
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"), VolumeName: VolumeName(i), Resources: corev1.VolumeResourceRequirements{Requests: gibibyte()}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gibibyte()},
	}
}

func volumeObject(i int) runtime.Object {
	return &corev1.PersistentVolume{
		ObjectMeta: meta("", VolumeName(i), i, map[string]string{
			keys.Backing: "home/lodestone-storage/pvc-" + string(UID(i)) + "/" + string(UID(i)),
		}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               gibibyte(),
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: Namespace, Name: ClaimName(i), UID: UID(i)},
			NodeAffinity:           locality.Affinity(ClusterOf(i), nil),
			StorageClassName:       "lodestone",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: string(UID(i)), VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-disk.example.com"}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func nodeObject(i int) runtime.Object { return Node(i) }

// Node returns the i-th node.
func Node(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: meta("", NodeName(i), i, nil)}
	node.Labels = map[string]string{"kubernetes.io/hostname": NodeName(i), "topology.kubernetes.io/zone": "eu-central-1a"}
	if cluster := ClusterOf(i); cluster != keys.Home {
		node.Labels[keys.Cluster] = cluster
	}
	for j := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b", j)}, SizeBytes: 1 << 28})
	}
	return node
}

func csiNodeObject(i int) runtime.Object {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName(i)},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: driver, NodeID: NodeName(i), Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(25))},
		}}},
	}
}

// podObject is the pod that has the i-th claim in use.
func podObject(i int) runtime.Object {
	return &corev1.Pod{
		ObjectMeta: meta(Namespace, fmt.Sprintf("database-%d", i), i, nil),
		Spec: corev1.PodSpec{
			NodeName:   NodeName(i % Nodes),
			Containers: []corev1.Container{{Name: "database", Image: "registry.example.com/team/database:16.4-bookworm"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(i)},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func classObject(int) runtime.Object {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

func namespaceObject(int) runtime.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
}

func clusterObject(i int) runtime.Object {
	ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: v1alpha1.Ready}
	if Ready(i) {
		ready.Status = metav1.ConditionTrue
	}
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("remote-%d", i)},
		Status:     v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{ready}, StorageClasses: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}},
	}
}

// meta returns metadata as large as that of real objects: who manages which field
// is often the largest part.
func meta(namespace, name string, i int, annotations map[string]string) metav1.ObjectMeta {
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/bind-completed":{},"f:pv.kubernetes.io/bound-by-controller":{}}},"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{".":{},"f:storage":{}}},"f:storageClassName":{},"f:volumeMode":{},"f:volumeName":{}}}`
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	entry := metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: UID(i), CreationTimestamp: now,
		Annotations: annotations, ManagedFields: []metav1.ManagedFieldsEntry{entry, entry},
	}
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}
