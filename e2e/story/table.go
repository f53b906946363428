package story

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// table prints the virtual claims that there are, from whatever can be read.
func (s *story) table() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := s.fabric.Home.Client().CoreV1()
	nodes := map[string]string{} // by claim
	if pods, err := client.Pods("").List(ctx, metav1.ListOptions{}); err == nil {
		for _, pod := range pods.Items {
			for _, volume := range pod.Spec.Volumes {
				if volume.PersistentVolumeClaim != nil {
					nodes[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName] = pod.Spec.NodeName
				}
			}
		}
	}
	volumes := map[string]corev1.PersistentVolume{}
	if list, err := client.PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: keys.Cluster}); err == nil {
		for _, volume := range list.Items {
			volumes[volume.Name] = volume
		}
	}
	claims, err := s.ledger.claims.List(labels.Everything())
	if err != nil {
		return
	}
	var rows []row
	for _, claim := range claims {
		if claim.Labels[keys.ClaimUID] != "" {
			continue
		}
		r := row{claim: claim.Namespace + "/" + claim.Name, cluster: "-", backing: "-", node: "-", times: s.ledger.of(claim.UID)}
		if volume, ok := volumes[claim.Spec.VolumeName]; ok {
			r.cluster = volume.Labels[keys.Cluster]
			_, path, _ := strings.Cut(volume.Annotations[keys.Backing], "/")
			r.backing = path[:max(0, strings.LastIndex(path, "/"))]
		}
		if node := nodes[r.claim]; node != "" {
			r.node = node
		}
		rows = append(rows, r)
	}
	s.print(rows)
	s.console.tell("The claims of batch waited for storage that was made slow and for a new leader, notes and late for their place in west.")
	if deleted := s.ledger.len() - len(rows); deleted > 0 {
		s.console.line("%d more claims were deleted on the way.", deleted)
	}
}
