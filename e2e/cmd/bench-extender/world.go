package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	namespace   = "shop"
	class       = "lodestone"
	allNodes    = 5000
	allClusters = 10

	manyClaims = 50_000
	fewClaims  = 1_000
)

// nodeName is about as long as cloud providers make them.
func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256)
}

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = nodeName(i)
	}
	return names
}

// clusterOf puts every tenth node into one of the remote clusters.
func clusterOf(i int) string {
	if i%10 != 0 {
		return keys.Home
	}
	return clusterName(i / 10 % allClusters)
}

func clusterName(i int) string { return fmt.Sprintf("remote-%d", i) }

func uid(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)) }

func claimName(i int) string { return fmt.Sprintf("data-database-%d", i) }

func volumeName(i int) string { return "pvc-" + string(uid(i)) }

// bound says whether a claim has a volume: every second one does.
func bound(i int) bool { return i%2 == 1 }

// newPod returns a pod of ordinary size that mounts claims: an unbound one first,
// then one whose volume is at home, and so on.
func newPod(claims int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "database-0", UID: "00000000-0000-4000-9000-000000000000",
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
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(i)},
		}})
	}
	return pod
}
