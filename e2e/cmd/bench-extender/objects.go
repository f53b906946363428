package main

import (
	"fmt"
	"strconv"
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

// claimObject returns the i-th claim in its n-th version. Those beyond the first
// few, which pods of calls mount, are bound in every second version.
func claimObject(i, version int) runtime.Object {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(namespace, claimName(i), i, version, nil),
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: gibibytes(1)}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	if bound(i + version) {
		claim.Annotations = map[string]string{
			"pv.kubernetes.io/bind-completed":          "yes",
			"pv.kubernetes.io/bound-by-controller":     "yes",
			"volume.kubernetes.io/storage-provisioner": keys.Driver,
			keys.SelectedNode:                          nodeName(i % allNodes),
		}
		claim.Spec.VolumeName = volumeName(i)
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gibibytes(1)}
	}
	return claim
}

// volumeObject returns the volume of the i-th claim, whose size every version
// changes. It is at home.
func volumeObject(i, version int) runtime.Object {
	return &corev1.PersistentVolume{
		ObjectMeta: meta("", volumeName(i), i, version, map[string]string{
			keys.Backing: "home/lodestone-storage/" + volumeName(i) + "/" + string(uid(i)),
		}),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               gibibytes(1 + version),
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: claimName(i), UID: uid(i)},
			NodeAffinity:           locality.Affinity(keys.Home, nil),
			StorageClassName:       class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: string(uid(i)), VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-disk.example.com"}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func nodeObject(i, version int) runtime.Object {
	node := &corev1.Node{ObjectMeta: meta("", nodeName(i), i, version, nil)}
	node.Labels = map[string]string{"kubernetes.io/hostname": nodeName(i), "topology.kubernetes.io/zone": "eu-central-1a"}
	if cluster := clusterOf(i); cluster != keys.Home {
		node.Labels[keys.Cluster] = cluster
	}
	for j := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b", j)}, SizeBytes: 1 << 28})
	}
	return node
}

func clusterObject(i, version int) runtime.Object {
	ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Ready"}
	if i%2 == 1 {
		ready.Status = metav1.ConditionFalse
	}
	return &v1alpha1.RemoteCluster{
		ObjectMeta: meta("", clusterName(i), i, version, nil),
		Status:     v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{ready}, StorageClasses: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}},
	}
}

func namespaceObject(i, version int) runtime.Object {
	object := &corev1.Namespace{ObjectMeta: meta("", namespace, i, version, nil)}
	object.Labels = map[string]string{keys.Offload: keys.OffloadEnabled}
	return object
}

// classObject returns the virtual class, and the real one that is the default.
func classObject(i, version int) runtime.Object {
	if i == 0 {
		return &storagev1.StorageClass{
			ObjectMeta:        meta("", class, i, version, nil),
			Provisioner:       keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		}
	}
	return &storagev1.StorageClass{
		ObjectMeta:        meta("", "disk", i, version, map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}),
		Provisioner:       "disk.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// meta returns metadata as large as that of real objects: who manages which field
// is often the largest part.
func meta(namespace, name string, i, version int, annotations map[string]string) metav1.ObjectMeta {
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/bind-completed":{},"f:pv.kubernetes.io/bound-by-controller":{}}},"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{".":{},"f:storage":{}}},"f:storageClassName":{},"f:volumeMode":{},"f:volumeName":{}}}`
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	entry := metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid(i), ResourceVersion: strconv.Itoa(1 + version), CreationTimestamp: now,
		Annotations: annotations, ManagedFields: []metav1.ManagedFieldsEntry{entry, entry},
	}
}

func gibibytes(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(int64(n)<<30, resource.BinarySI)}
}
