// Package status is the command status: it shows the remote clusters of home, and the pods and
// claims that wait. status.go has the output format and how remote clusters are shown, volumes.go
// how volumes, pods and moves are, replicas.go how replicas are: all are pure. gather.go reads the clusters once, live.go watches
// them, command.go prints.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Status is what -o json and -o yaml print, and what the dashboard shows. Fields are added, but none
// is renamed or removed within a version; lists are sorted by name.
type Status struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	HomeID     string    `json:"homeID"`
	Home       Home      `json:"home"`
	Clusters   []Cluster `json:"clusters"`
	// Volumes are the virtual claims, with or without a volume, and the virtual volumes without a
	// claim.
	Volumes []Volume `json:"volumes"`
	// Pods are those that use a virtual claim, and those on nodes that stand for remote clusters.
	Pods  []Pod  `json:"pods"`
	Moves []Move `json:"moves"`
	// Replicas are the VolumeReplicas.
	Replicas []replica.Copy `json:"replicas"`
	Waiting  []Waiting      `json:"waiting"`
	// Omitted is how many waiting pods and claims are left out.
	Omitted int `json:"omitted,omitempty"`
	// DaemonSets (namespace/name) want pods on virtual nodes, where these wait for ever.
	DaemonSets []string `json:"daemonSets,omitempty"`
	// Notes are sentences on what else needs somebody: volumes in trouble, credentials that end,
	// DaemonSets.
	Notes []string `json:"notes,omitempty"`
	// Unread is what is left out, since the user may not read it.
	Unread []string `json:"unread,omitempty"`
}

// Cluster is a remote cluster.
type Cluster struct {
	Name              string             `json:"name"`
	Ready             bool               `json:"ready"`
	Reason            string             `json:"reason"`
	Message           string             `json:"message"`
	ClusterUID        string             `json:"clusterUID,omitempty"`
	KubernetesVersion string             `json:"kubernetesVersion,omitempty"`
	Conditions        []metav1.Condition `json:"conditions,omitempty"`
	StorageClasses    []string           `json:"storageClasses"`
	Nodes             []Node             `json:"nodes"`
	Volumes           int                `json:"volumes"`
	// VolumeHealth is missing while the provisioner has not written it.
	VolumeHealth *v1alpha1.VolumeHealth `json:"volumeHealth,omitempty"`
	Pods         int                    `json:"pods"`
	// Credentials are how home logs in; missing if the Secret cannot be read.
	Credentials *Credentials `json:"credentials,omitempty"`
}

// Node is a node that stands for a remote cluster.
type Node struct {
	Name        string              `json:"name"`
	Ready       bool                `json:"ready"`
	Message     string              `json:"message,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Heartbeat is when the node's lease was last renewed.
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
}

// Credentials are how home logs in to a remote cluster.
type Credentials struct {
	// Kind is token or certificate.
	Kind string `json:"kind"`
	// Expires is missing for credentials without an end.
	Expires *metav1.Time `json:"expires,omitempty"`
}

// Waiting is a pod or a claim that waits.
type Waiting struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

// facts are what a Status is made from.
type facts struct {
	remotes []v1alpha1.RemoteCluster
	nodes   []corev1.Node
	volumes []corev1.PersistentVolume
	claims  []corev1.PersistentVolumeClaim
	classes []storagev1.StorageClass
	pods    []corev1.Pod
	sets    []appsv1.DaemonSet
	moves   []v1alpha1.VolumeMove
	// replicas are the VolumeReplicas.
	replicas []v1alpha1.VolumeReplica
	// heartbeats are the renewals of node leases by node name.
	heartbeats map[string]metav1.Time
	// kubeconfigs are by cluster name.
	kubeconfigs map[string][]byte
}

// only limits which volumes, pods, moves and replicas are shown, and what waits.
type only struct {
	// namespace is empty for all; labels is nil for all.
	namespace string
	labels    labels.Selector
}

// has says whether an object of a namespace and with labels is shown.
func (o only) has(namespace string, set map[string]string) bool {
	return (o.namespace == "" || o.namespace == namespace) && (o.labels == nil || o.labels.Matches(labels.Set(set)))
}

// status returns what is shown, but for the sentences on what waits.
func (f facts) status(shown only, now time.Time) Status {
	return Status{
		APIVersion: "cli.lodestone.dev/v1alpha1", Kind: "Status", Home: f.home(), Clusters: f.clusters(), Volumes: f.shownVolumes(shown),
		Pods: f.shownPods(shown), Moves: f.shownMoves(shown), Replicas: f.shownReplicas(shown, now), Waiting: []Waiting{},
		DaemonSets: daemonsets.Wanting(f.sets, f.nodes),
	}
}

// limitTo leaves of a status some clusters, and the volumes, pods, moves and replicas that have to do with them. What waits
// is in no cluster.
func (s *Status) limitTo(clusters []string) {
	other := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(clusters, name) })
	}
	s.Clusters = slices.DeleteFunc(s.Clusters, func(c Cluster) bool { return other(c.Name) })
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v Volume) bool { return other(v.Cluster) })
	s.Pods = slices.DeleteFunc(s.Pods, func(p Pod) bool { return other(p.Cluster) })
	s.Moves = slices.DeleteFunc(s.Moves, func(m Move) bool { return other(m.Source, m.Target) })
	s.Replicas = slices.DeleteFunc(s.Replicas, func(r replica.Copy) bool { return other(r.Primary, r.Standby) })
	s.Waiting, s.Omitted, s.DaemonSets = []Waiting{}, 0, nil
}

// notes returns the sentences of a status. It is pure.
func notes(s Status, now time.Time) []string {
	lines := append(troubles(s.Clusters), warnings(s.Clusters, now)...)
	lines = append(lines, behind(s.Replicas)...)
	if len(s.DaemonSets) > 0 {
		lines = append(lines, daemonsets.Advice(s.DaemonSets))
	}
	return lines
}

// addUnknown adds, where the RemoteClusters cannot be read, those that volumes and pods name.
func (s *Status) addUnknown(unread bool) {
	if !unread {
		return
	}
	names := map[string]bool{"": true, keys.Home: true}
	add := func(name string) {
		if !names[name] {
			names[name] = true
			s.Clusters = append(s.Clusters, Cluster{Name: name, Reason: "Unknown", Message: "you may not read its RemoteCluster",
				StorageClasses: []string{}, Nodes: []Node{}})
		}
	}
	for _, volume := range s.Volumes {
		add(volume.Cluster)
	}
	for _, pod := range s.Pods {
		add(pod.Cluster)
	}
	slices.SortFunc(s.Clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
}

// clusters returns the remote clusters as they are printed. It is pure.
func (f facts) clusters() []Cluster {
	clusters := []Cluster{}
	for _, remote := range f.remotes {
		clusters = append(clusters, f.cluster(remote))
	}
	slices.SortFunc(clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return clusters
}

func (f facts) cluster(remote v1alpha1.RemoteCluster) Cluster {
	c := Cluster{
		Name: remote.Name, ClusterUID: remote.Status.ClusterUID, KubernetesVersion: remote.Status.KubernetesVersion,
		Reason: "Unknown", Message: "the provisioner has not looked at it yet: see whether it runs (kubectl get pods -n lodestone-system)",
		Conditions: remote.Status.Conditions, StorageClasses: []string{}, Nodes: []Node{},
		Credentials: login(f.kubeconfigs[remote.Name]), VolumeHealth: remote.Status.VolumeHealth,
	}
	if ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready); ready != nil {
		c.Ready, c.Reason, c.Message = ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
	}
	for _, class := range remote.Status.StorageClasses {
		name := class.Name
		if class.Default {
			name += " (default)"
		}
		c.StorageClasses = append(c.StorageClasses, name)
	}
	for _, volume := range f.volumes {
		if cli.ClusterOf(&volume) == remote.Name {
			c.Volumes++
		}
	}
	names := map[string]bool{}
	for _, node := range f.nodes {
		if node.Labels[keys.Cluster] == remote.Name {
			names[node.Name] = true
			c.Nodes = append(c.Nodes, f.node(node))
		}
	}
	slices.SortFunc(c.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range f.pods {
		if names[pod.Spec.NodeName] && cli.KeepsPeering(&pod) {
			c.Pods++
		}
	}
	return c
}

func (f facts) node(node corev1.Node) Node {
	n := Node{Name: node.Name, Allocatable: node.Status.Allocatable}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready = condition.Status == corev1.ConditionTrue
			if !n.Ready {
				n.Message = cmp.Or(condition.Message, condition.Reason)
			}
		}
	}
	if renewed, ok := f.heartbeats[node.Name]; ok {
		n.Heartbeat = &renewed
	}
	return n
}

func login(kubeconfig []byte) *Credentials {
	if len(kubeconfig) == 0 {
		return nil
	}
	found, err := credentials.Read(kubeconfig)
	if err != nil {
		return nil
	}
	c := &Credentials{Kind: found.Kind()}
	if !found.Expires.IsZero() {
		c.Expires = &metav1.Time{Time: found.Expires}
	}
	return c
}

// warnings returns sentences on credentials that end soon or have ended, on a mark that home cannot
// keep, and on a lease that is not promised. The provisioner's warnings are used where there are
// some, since it renews tokens; else the expiry of the credentials decides.
func warnings(clusters []Cluster, now time.Time) []string {
	var lines []string
	for _, c := range clusters {
		if kept := meta.FindStatusCondition(c.Conditions, v1alpha1.HomeInForce); kept != nil && kept.Reason == "NotKept" {
			lines = append(lines, c.Name+": "+kept.Message)
		}
		if lease := meta.FindStatusCondition(c.Conditions, v1alpha1.PodLeasePromised); lease != nil && lease.Status == metav1.ConditionFalse {
			lines = append(lines, c.Name+": "+lease.Message)
		}
		if known := meta.FindStatusCondition(c.Conditions, v1alpha1.CredentialsValid); known != nil && known.Status != metav1.ConditionUnknown {
			switch known.Reason {
			case "RenewalFailed", "ExpiresSoon", "Expired":
				lines = append(lines, c.Name+": "+known.Message)
			}
			continue
		}
		if c.Credentials == nil || c.Credentials.Expires == nil {
			continue
		}
		if left := c.Credentials.Expires.Sub(now); left < 24*time.Hour {
			word := "end"
			if left <= 0 {
				word = "ended"
			}
			lines = append(lines, fmt.Sprintf("%s: the credentials %s at %s: renew them with kubectl lodestone peer --remote-context <its "+
				"context> --renew", c.Name, word, c.Credentials.Expires.UTC().Format(time.RFC3339)))
		}
	}
	return lines
}
