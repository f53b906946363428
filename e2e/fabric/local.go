package fabric

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// MakeLocalVolume makes, all of one name, a node of a cluster that nobody plays and
// no pod goes to, a volume on its disk, and a real class of such volumes, which
// binds at once. Remove takes all away.
func MakeLocalVolume(ctx context.Context, cluster *testbed.Cluster, name string) (remove func(), err error) {
	client := cluster.Client()
	remove = func() {
		ctx := context.WithoutCancel(ctx)
		_ = client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.StorageV1().StorageClasses().Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err := MakeEmptyNode(ctx, cluster, name); err != nil {
		return remove, err
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}, metav1.CreateOptions{}); err != nil {
		return remove, fmt.Errorf("make class %s: %w", name, err)
	}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
			}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return remove, fmt.Errorf("make volume %s: %w", name, err)
	}
	return remove, nil
}

// MakeEmptyNode makes a node that nobody plays and no pod goes to.
func MakeEmptyNode(ctx context.Context, cluster *testbed.Cluster, name string) error {
	_, err := cluster.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make node %s: %w", name, err)
	}
	return nil
}
