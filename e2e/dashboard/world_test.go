package dashboard

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

// shop is what a small home shows: two remote clusters, one of which does not answer, a move, and pods
// that wait.
func shop() status.Status {
	now := time.Now()
	node := func(name string, ready bool) status.Node {
		return status.Node{Name: name, Ready: ready, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"),
			corev1.ResourceMemory: resource.MustParse("64Gi")}}
	}
	volume := func(namespace, claim, cluster, size string) status.Volume {
		return status.Volume{Namespace: namespace, Claim: claim, Name: "pvc-" + claim, Phase: "Bound", Cluster: cluster, Class: "lodestone",
			Size: resource.MustParse(size)}
	}
	pod := func(namespace, name, node, cluster string, claims ...string) status.Pod {
		return status.Pod{Namespace: namespace, Name: name, Phase: "Running", Ready: true, Node: node, Cluster: cluster, Claims: claims}
	}
	s := status.Status{
		APIVersion: "cli.lodestone.dev/v1alpha1", Kind: "Status", HomeID: "f8e239e6",
		Home: status.Home{Nodes: 3, ReadyNodes: 3, VirtualClasses: []string{"lodestone"}},
		Clusters: []status.Cluster{
			{Name: "east", Reason: "NotReachable", Message: "its API server does not answer: dial tcp 192.0.2.7:6443: connect: " +
				"connection refused; see the network between the clusters", Nodes: []status.Node{node("east", false)},
				StorageClasses:    []string{"standard (default)"},
				KubernetesVersion: "v1.35.2", Volumes: 1, Pods: 1},
			{Name: "west", Ready: true, Reason: "Ready", Message: "volumes can be made there", Nodes: []status.Node{node("west", true)},
				StorageClasses: []string{"fast (default)", "slow"}, KubernetesVersion: "v1.36.3", Volumes: 4, Pods: 4},
		},
		Volumes: []status.Volume{
			volume("bank", "ledger", "home", "200Gi"), volume("shop", "data-db-0", "home", "40Gi"), volume("shop", "data-db-1", "west", "40Gi"),
			volume("shop", "data-db-2", "west", "40Gi"), volume("shop", "data-web-0", "east", "8Gi"), volume("shop", "images", "home", "120Gi"),
			volume("logs", "store-0", "west", "500Gi"), volume("logs", "store-1", "west", "500Gi"),
			{Namespace: "shop", Claim: "report", Phase: "Pending", Class: "lodestone", Size: resource.MustParse("10Gi")},
		},
		Pods: []status.Pod{
			pod("bank", "ledger-0", "home-2", "home", "ledger"), pod("shop", "db-0", "home-1", "home", "data-db-0"),
			pod("shop", "db-1", "west", "west", "data-db-1"), pod("shop", "db-2", "west", "west", "data-db-2"),
			pod("logs", "store-0", "west", "west", "store-0"), pod("shop", "front-7c9f", "west", "west"),
			pod("shop", "thumbs-1", "home-3", "home", "images"), pod("shop", "images-2", "home-1", "home", "images"),
			{Namespace: "shop", Name: "web-0", Phase: "Terminating", Node: "east", Cluster: "east", Claims: []string{"data-web-0"}},
			{Namespace: "logs", Name: "store-1", Phase: "Pending", Node: "west", Cluster: "west", Claims: []string{"store-1"}},
			{Namespace: "shop", Name: "report-29", Phase: "Pending", Claims: []string{"report"}},
		},
		Moves: []status.Move{
			{Namespace: "shop", Name: "images-h59v5", Claims: []string{"images"}, Source: "home", Target: "west", State: status.Going,
				Phase: "PreCopy", Pass: 1, Bytes: 54 << 30, BytesTotal: 112 << 30, Rate: 410 << 20, Started: metav1.NewTime(now.Add(-4 * time.Minute)),
				Message: "the pods run on; 41,200 of 88,012 files were copied"},
			{Namespace: "shop", Name: "data-db-2-2fs7c", Claims: []string{"data-db-2"}, Source: "home", Target: "west", State: status.Moved,
				Phase: "Retain", Started: metav1.NewTime(now.Add(-50 * time.Minute)), Downtime: &metav1.Duration{Duration: 3800 * time.Millisecond}},
		},
		Replicas: []replica.Copy{
			{Namespace: "bank", Name: "ledger-west", Claim: "ledger", Primary: "home", Standby: "west",
				Sealed: &metav1.Time{Time: now.Add(-6 * time.Minute)}, Version: 12, Versions: 4, Healthy: true, State: "Sealed"},
			{Namespace: "shop", Name: "data-web-0-west", Claim: "data-web-0", Primary: "east", Standby: "west", State: "ClusterAway", Late: true,
				Sealed: &metav1.Time{Time: now.Add(-50 * time.Minute)}, Version: 7, Versions: 4, Message: "cluster east does not answer"},
		},
		Waiting: []status.Waiting{
			{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "report", Why: `claim "report" was refused by cluster "west": the quota of ` +
				`namespace shop in cluster west leaves no room: 10Gi asked for, 6Gi left; that place is tried again after 03:05:05`},
			{Kind: "Pod", Namespace: "shop", Name: "web-0", Why: `pod "web-0" is being deleted, but whether its copy in cluster "east" has ended ` +
				`cannot be seen (its API server does not answer): it goes by itself once that cluster answers; if that cluster is gone for ever: ` +
				`kubectl lodestone release pod web-0 -n shop`},
		},
	}
	return s
}

// many is a home with so many claims, a pod on each, over three clusters.
func many(claims int) status.Status {
	s := shop()
	s.Volumes, s.Pods, s.Replicas, s.Waiting = nil, nil, nil, []status.Waiting{}
	clusters := []string{"home", "west", "east"}
	for i := range claims {
		namespace, name, cluster := fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("data-db-%04d", i), clusters[i%3]
		s.Volumes = append(s.Volumes, status.Volume{Namespace: namespace, Claim: name, Name: "pvc-" + name, Phase: "Bound", Cluster: cluster,
			Class: "lodestone", Size: resource.MustParse("10Gi")})
		s.Pods = append(s.Pods, status.Pod{Namespace: namespace, Name: fmt.Sprintf("db-%04d", i), Phase: "Running", Ready: true,
			Node: cluster + "-1", Cluster: cluster, Claims: []string{name}})
	}
	return s
}

// busy is many, where each claim has a second copy, each tenth one of them late, and each hundredth claim is being moved.
func busy(claims int) status.Status {
	s := many(claims)
	now := time.Now()
	s.Moves = nil
	for i, volume := range s.Volumes {
		to := "west"
		if volume.Cluster == to {
			to = "east"
		}
		s.Replicas = append(s.Replicas, replica.Copy{Namespace: volume.Namespace, Name: volume.Claim + "-copy", Claim: volume.Claim,
			Primary: volume.Cluster, Standby: to, Sealed: &metav1.Time{Time: now.Add(-6 * time.Minute)}, Version: 12, Versions: 4,
			Healthy: i%10 != 0, Late: i%10 == 0, State: "Sealed"})
		if i%100 == 0 {
			s.Moves = append(s.Moves, status.Move{Namespace: volume.Namespace, Name: volume.Claim + "-move", Claims: []string{volume.Claim},
				Source: volume.Cluster, Target: to, State: status.Going, Phase: "PreCopy", Pass: 1, Bytes: 54 << 30, BytesTotal: 112 << 30,
				Rate: 410 << 20, Started: metav1.NewTime(now.Add(-4 * time.Minute)), Message: "the pods run on"})
		}
	}
	return s
}
