package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// newView returns a view of 5,000 nodes, 10 remote clusters and claims, every
// second of which has its volume at home.
func newView(claims int) *snapshot.Snapshot {
	view := snapshot.New()
	for i := range largecluster.Nodes {
		view.Nodes.Set(largecluster.NodeName(i), largecluster.ClusterOf(i))
	}
	for i := range largecluster.RemoteClusters {
		view.Clusters.Set(fmt.Sprintf("remote-%d", i), &snapshot.Cluster{Ready: i%2 == 0, Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
	}
	class, _ := snapshot.FromStorageClass(&storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	view.Classes.Set("lodestone", class)
	opened, _ := snapshot.FromNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}})
	view.Namespaces.Set(largecluster.Namespace, opened)
	for i := range claims {
		set(view, i)
	}
	return view
}

// set stores the i-th claim and its volume as the watches would.
func set(view *snapshot.Snapshot, i int) {
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: largecluster.UID(i)},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
	}
	if i%2 == 1 {
		pvc.Spec.VolumeName = "pvc-" + string(pvc.UID)
		volume, _ := snapshot.FromVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			Capacity:     corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:     &corev1.ObjectReference{UID: pvc.UID},
			NodeAffinity: locality.Affinity(keys.Home, nil),
		}})
		view.Volumes.Set(pvc.Spec.VolumeName, volume)
	}
	claim, _ := snapshot.FromClaim(pvc)
	view.Claims.Set(snapshot.ClaimKey(largecluster.Namespace, largecluster.ClaimName(i)), claim)
}

// newPod returns a pod of ordinary size that mounts claims: unbound ones first.
func newPod(claims int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: largecluster.Namespace, Name: "database-0", UID: "00000000-0000-4000-9000-000000000000",
			Labels:      map[string]string{"app.kubernetes.io/name": "database", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "database-6c8d9f7b5"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "checksum/config": "0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "database", SchedulerName: "default-scheduler"},
	}
	for i := range 3 {
		container := corev1.Container{
			Name: fmt.Sprintf("container-%d", i), Image: "registry.example.com/team/database:16.4-bookworm",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}
		for j := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: "a value of ordinary length"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	for i := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: largecluster.ClaimName(i)},
		}})
	}
	return pod
}

func newServer(view *snapshot.Snapshot) *server.Server {
	return &server.Server{
		View:     view,
		Metrics:  metrics.New(),
		Journal:  explain.NewJournal(),
		Now:      time.Now,
		Missing:  func() []string { return nil },
		Stopping: func() bool { return false },
	}
}
