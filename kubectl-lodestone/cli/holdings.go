package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Holdings are the volumes and pods of home in a remote cluster.
type Holdings struct {
	Volumes []corev1.PersistentVolume
	Pods    []corev1.Pod
}

// Empty reports whether there are none.
func (h Holdings) Empty() bool { return len(h.Volumes) == 0 && len(h.Pods) == 0 }

// ClusterOf returns the cluster that has the data of a virtual volume; empty for any other volume.
func ClusterOf(volume *corev1.PersistentVolume) string {
	cluster, _, _ := strings.Cut(volume.Annotations[keys.Backing], "/")
	return cluster
}

// KeepsPeering reports whether a pod on a virtual node prevents the end of a peering: it runs, or a
// copy of it may run in the remote cluster.
func KeepsPeering(pod *corev1.Pod) bool {
	if slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return true
	}
	// Pods of a DaemonSet are deleted with their node.
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return false
	}
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// ReadHoldings reads the volumes whose data is in a cluster, and the pods on the nodes
// that stand for it.
func ReadHoldings(ctx context.Context, home *Cluster, cluster string) (Holdings, error) {
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
	// Lodestone's own virtual node has the cluster's name. Pods may still be there after the node
	// is deleted.
	names := map[string]bool{cluster: true}
	for _, node := range nodes.Items {
		names[node.Name] = true
	}
	for name := range names {
		pods, err := home.Client.CoreV1().Pods("").List(ctx,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
		if err != nil {
			return Holdings{}, home.Explain("list pods", err)
		}
		for _, pod := range pods.Items {
			if KeepsPeering(&pod) {
				found.Pods = append(found.Pods, pod)
			}
		}
	}
	slices.SortFunc(found.Pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, nil
}

// RemoteVolumes returns the names of the volumes whose data is in a remote cluster, or without one in any.
func (c *Cluster) RemoteVolumes(ctx context.Context, cluster string) ([]string, error) {
	volumes, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.Explain("list persistentvolumes", err)
	}
	var names []string
	for i := range volumes.Items {
		if at := ClusterOf(&volumes.Items[i]); at != "" && at != keys.Home && (cluster == "" || at == cluster) {
			names = append(names, volumes.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maxLines is how many of each kind Lines shows.
const maxLines = 20

// Lines lists the volumes and pods, one line each, and at most so many that they fit on a screen.
func (h Holdings) Lines() []string { return h.lines(maxLines) }

// All lists all volumes and pods, one line each.
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
		lines = append(lines, fmt.Sprintf("volume %s (%s, %s, %s, policy %s%s)", volume.Name, size.String(), claim, volume.Status.Phase,
			volume.Spec.PersistentVolumeReclaimPolicy, lost))
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

// String returns how many volumes and pods there are, in words.
func (h Holdings) String() string {
	return Number(len(h.Volumes), "volume") + " and " + Number(len(h.Pods), "pod")
}

// Number returns how many there are of something, in words: 1 volume, 2 volumes.
func Number(count int, what string) string {
	if count != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", count, what)
}

// UsesClaim says whether a pod mounts a claim of its namespace, by its own name or as
// a generic ephemeral volume. A pod that has ended uses nothing any more.
func UsesClaim(pod *corev1.Pod, claim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, volume := range pod.Spec.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil && source.ClaimName == claim {
			return true
		}
		if volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim {
			return true
		}
	}
	return false
}
