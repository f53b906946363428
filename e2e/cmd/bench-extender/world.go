package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	manyClaims = 50_000
	fewClaims  = 1_000
)

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = largecluster.NodeName(i)
	}
	return names
}

// mounted are the claims of pods: one that waits for a pod, and some whose volumes
// are at home.
var mounted = []int{5, 1, 2, 3}

// passing is how many of the first n nodes a pod with so many of these claims may
// run on.
func passing(n, claims int) int {
	passed := 0
	for i := range n {
		home := largecluster.ClusterOf(i) == keys.Home
		ready := largecluster.Ready(i / 10 % largecluster.RemoteClusters)
		if claims == 0 || home || (claims == 1 && ready) {
			passed++
		}
	}
	return passed
}

// newPod returns a pod of ordinary size that mounts so many of these claims.
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
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: largecluster.ClaimName(mounted[i])},
		}})
	}
	return pod
}
