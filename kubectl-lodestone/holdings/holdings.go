// Package holdings finds what of home is in a remote cluster, as home's own
// objects say it.
package holdings

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Holdings is what of home is in a remote cluster.
type Holdings struct {
	Volumes []corev1.PersistentVolume
	Pods    []corev1.Pod
}

// Empty says whether there is nothing.
func (h Holdings) Empty() bool { return len(h.Volumes) == 0 && len(h.Pods) == 0 }

// ClusterOf returns the cluster that holds the data of a virtual volume, empty
// for any other volume.
func ClusterOf(volume *corev1.PersistentVolume) string {
	cluster, _, _ := strings.Cut(volume.Annotations[keys.Backing], "/")
	return cluster
}

// Counts says whether a pod on a virtual node is one that keeps a peering: one
// that runs, or a copy of which may run in the remote cluster.
func Counts(pod *corev1.Pod) bool {
	if slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return true
	}
	// Daemons follow their nodes.
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return false
	}
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Find reads the volumes whose data is in a cluster, and the pods on the nodes
// that stand for it.
func Find(ctx context.Context, home *access.Cluster, cluster string) (Holdings, error) {
	volumes, err := home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Holdings{}, home.Explain("list persistentvolumes", err)
	}
	var found Holdings
	for _, volume := range volumes.Items {
		if ClusterOf(&volume) == cluster {
			found.Volumes = append(found.Volumes, volume)
		}
	}
	nodes, err := home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: keys.Cluster + "=" + cluster})
	if err != nil {
		return Holdings{}, home.Explain("list nodes", err)
	}
	// Lodestone's own virtual node has the cluster's name; pods outlive it.
	names := map[string]bool{cluster: true}
	for _, node := range nodes.Items {
		names[node.Name] = true
	}
	for name := range names {
		pods, err := home.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
		if err != nil {
			return Holdings{}, home.Explain("list pods", err)
		}
		for _, pod := range pods.Items {
			if Counts(&pod) {
				found.Pods = append(found.Pods, pod)
			}
		}
	}
	slices.SortFunc(found.Pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, nil
}

// most is how many of each kind Lines shows.
const most = 20

// Lines lists what there is, one line each, and no more than a screen shows.
func (h Holdings) Lines() []string { return h.lines(most) }

// All lists all that there is, one line each.
func (h Holdings) All() []string { return h.lines(max(len(h.Volumes), len(h.Pods))) }

func (h Holdings) lines(most int) []string {
	var lines []string
	for _, volume := range h.Volumes[:min(most, len(h.Volumes))] {
		claim := "no claim"
		if ref := volume.Spec.ClaimRef; ref != nil {
			claim = "claim " + ref.Namespace + "/" + ref.Name
		}
		size, lost := volume.Spec.Capacity[corev1.ResourceStorage], ""
		if volume.Annotations[keys.Lost] != "" {
			lost = ", declared lost"
		}
		lines = append(lines, fmt.Sprintf("volume %s (%s, %s, %s, policy %s%s)", volume.Name, size.String(), claim, volume.Status.Phase, volume.Spec.PersistentVolumeReclaimPolicy, lost))
	}
	if more := len(h.Volumes) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more volumes", more))
	}
	for _, pod := range h.Pods[:min(most, len(h.Pods))] {
		lines = append(lines, fmt.Sprintf("pod %s/%s (%s)", pod.Namespace, pod.Name, pod.Status.Phase))
	}
	if more := len(h.Pods) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more pods", more))
	}
	return lines
}

// String counts what there is.
func (h Holdings) String() string {
	return fmt.Sprintf("%d volume(s) and %d pod(s)", len(h.Volumes), len(h.Pods))
}
