package status

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Home is the home cluster without the nodes that stand for others.
type Home struct {
	Nodes      int `json:"nodes"`
	ReadyNodes int `json:"readyNodes"`
	// VirtualClasses are the storage classes whose volumes may be in any cluster.
	VirtualClasses []string `json:"virtualClasses"`
}

// Volume is a virtual claim, with or without its volume, or a virtual volume without a claim.
type Volume struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// Name is the PersistentVolume; missing while there is none.
	Name string `json:"name,omitempty"`
	// Phase is that of the claim (Pending, Bound, Lost) or Terminating; without a claim that of the
	// volume, such as Released.
	Phase string `json:"phase"`
	// Cluster has the data: home, or the name of a RemoteCluster. It is missing while there is no
	// data.
	Cluster string `json:"cluster,omitempty"`
	// Class is the virtual storage class.
	Class string `json:"class,omitempty"`
	// Size is the volume's capacity, or what the claim asks for while there is no volume.
	Size resource.Quantity `json:"size"`
	// Trouble is what is wrong with the volume, in a sentence.
	Trouble string `json:"trouble,omitempty"`
	// DeclaredLost says that a user declared the data lost.
	DeclaredLost bool `json:"declaredLost,omitempty"`
}

// Pod is a pod that uses virtual claims, or is on a node that stands for a remote cluster.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is that of the pod, or Terminating.
	Phase string `json:"phase"`
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"`
	// Cluster is that of the node: home, or the name of a RemoteCluster.
	Cluster string `json:"cluster,omitempty"`
	// Claims are the virtual claims that it uses.
	Claims []string `json:"claims,omitempty"`
}

// Move is a VolumeMove.
type Move struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Claims    []string `json:"claims"`
	// Source and Target are clusters; Source is missing until the provisioner has taken the move up.
	Source string `json:"source,omitempty"`
	Target string `json:"target"`
	// State is Going, Moved, Refused, Failed, Aborted or, for a dry run, Checked.
	State string `json:"state"`
	Phase string `json:"phase,omitempty"`
	// Message is one sentence: what goes on, what is waited for, or what to do.
	Message string `json:"message,omitempty"`
	// Pass is the pass over the data that is under way, Bytes what it has dealt with, of BytesTotal;
	// Rate is how many bytes a second travel. All are sums over the claims, but for Pass.
	Pass       int32 `json:"pass,omitempty"`
	Bytes      int64 `json:"bytes,omitempty"`
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	Rate       int64 `json:"rate,omitempty"`
	// Started is when the move was asked for.
	Started metav1.Time `json:"started"`
	// DownSince is since when pods could not use the claims, missing while they can; Downtime is for
	// how long they could not.
	DownSince *metav1.MicroTime `json:"downSince,omitempty"`
	Downtime  *metav1.Duration  `json:"downtime,omitempty"`
}

// The states of a Move.
const (
	Going   = "Going"
	Moved   = "Moved"
	Refused = "Refused"
	Failed  = "Failed"
	Aborted = "Aborted"
	Checked = "Checked"
)

// longest bounds, in bytes, the sentences that others wrote.
const longest = 1024

// shownText is a text of another author as it is shown.
func shownText(text string) string { return sentence.Short(sentence.Plain(text, longest), longest-1) }

func (f facts) home() Home {
	home := Home{VirtualClasses: []string{}}
	for i := range f.nodes {
		if f.nodes[i].Labels[keys.Cluster] != "" {
			continue
		}
		home.Nodes++
		if f.node(f.nodes[i]).Ready {
			home.ReadyNodes++
		}
	}
	for name, virtual := range virtualClasses(f.classes) {
		if virtual {
			home.VirtualClasses = append(home.VirtualClasses, name)
		}
	}
	slices.Sort(home.VirtualClasses)
	return home
}

// shownVolumes returns the virtual claims and volumes. Of claims that cannot be read the volume says
// what there is to say, and the other way round.
func (f facts) shownVolumes(show only) []Volume {
	virtual, claims := virtualClasses(f.classes), map[string]*corev1.PersistentVolumeClaim{}
	for i := range f.claims {
		claims[f.claims[i].Namespace+"/"+f.claims[i].Name] = &f.claims[i]
	}
	list, bound := []Volume{}, map[*corev1.PersistentVolumeClaim]bool{}
	for i := range f.volumes {
		volume, ref := &f.volumes[i], f.volumes[i].Spec.ClaimRef
		if cli.ClusterOf(volume) == "" || ref == nil {
			continue
		}
		claim, labels := claims[ref.Namespace+"/"+ref.Name], volume.Labels
		if claim != nil && claim.UID == ref.UID {
			bound[claim], labels = true, claim.Labels
		} else {
			claim = nil
		}
		if !show.has(ref.Namespace, labels) {
			continue
		}
		shown := Volume{Namespace: ref.Namespace, Claim: ref.Name, Name: volume.Name, Phase: string(volume.Status.Phase),
			Cluster: cli.ClusterOf(volume), Class: volume.Spec.StorageClassName, Size: volume.Spec.Capacity[corev1.ResourceStorage],
			DeclaredLost: volume.Annotations[keys.Lost] != ""}
		if claim != nil {
			shown.Phase, shown.Trouble = phaseOf(claim), troubleOf(claim)
		}
		list = append(list, shown)
	}
	for i := range f.claims {
		claim := &f.claims[i]
		if bound[claim] || !show.has(claim.Namespace, claim.Labels) || !isVirtual(virtual, claim) {
			continue
		}
		list = append(list, Volume{Namespace: claim.Namespace, Claim: claim.Name, Name: claim.Spec.VolumeName, Phase: phaseOf(claim),
			Class: ptr.Deref(claim.Spec.StorageClassName, ""), Size: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			Trouble: troubleOf(claim)})
	}
	slices.SortFunc(list, func(a, b Volume) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Claim, b.Claim), strings.Compare(a.Name, b.Name))
	})
	return list
}

func phaseOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.DeletionTimestamp != nil {
		return "Terminating"
	}
	return cmp.Or(string(claim.Status.Phase), string(corev1.ClaimPending))
}

func troubleOf(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == keys.VolumeTrouble && condition.Status == corev1.ConditionTrue {
			return shownText(cmp.Or(condition.Message, condition.Reason))
		}
	}
	return ""
}

// shownPods returns the pods that have to do with virtual volumes or remote clusters, and have not
// ended.
func (f facts) shownPods(show only) []Pod {
	virtual, uses := virtualClasses(f.classes), map[string]bool{}
	for i := range f.claims {
		if claim := &f.claims[i]; isVirtual(virtual, claim) {
			uses[claim.Namespace+"/"+claim.Name] = true
		}
	}
	for _, volume := range f.volumes {
		if ref := volume.Spec.ClaimRef; ref != nil && cli.ClusterOf(&volume) != "" {
			uses[ref.Namespace+"/"+ref.Name] = true
		}
	}
	clusters := map[string]string{}
	for _, node := range f.nodes {
		clusters[node.Name] = cmp.Or(node.Labels[keys.Cluster], keys.Home)
	}
	list := []Pod{}
	for i := range f.pods {
		pod := &f.pods[i]
		if !show.has(pod.Namespace, pod.Labels) || !cli.KeepsPeering(pod) {
			continue
		}
		shown := Pod{Namespace: pod.Namespace, Name: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName,
			Cluster: clusters[pod.Spec.NodeName]}
		for _, volume := range pod.Spec.Volumes {
			name := ""
			switch {
			case volume.PersistentVolumeClaim != nil:
				name = volume.PersistentVolumeClaim.ClaimName
			case volume.Ephemeral != nil:
				name = pod.Name + "-" + volume.Name
			}
			if name != "" && uses[pod.Namespace+"/"+name] {
				shown.Claims = append(shown.Claims, name)
			}
		}
		if len(shown.Claims) == 0 && (shown.Cluster == "" || shown.Cluster == keys.Home) {
			continue
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				shown.Ready = condition.Status == corev1.ConditionTrue
			}
		}
		if pod.DeletionTimestamp != nil {
			shown.Phase = "Terminating"
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list
}

func (f facts) shownMoves(show only) []Move {
	clusters := map[string]string{}
	for _, node := range f.nodes {
		clusters[node.Name] = cmp.Or(node.Labels[keys.Cluster], keys.Home)
	}
	list := []Move{}
	for i := range f.moves {
		move := &f.moves[i]
		if !show.has(move.Namespace, move.Labels) {
			continue
		}
		status := move.Status
		shown := Move{Namespace: move.Namespace, Name: move.Name, Claims: move.Spec.Claims, State: stateOf(move),
			Target: cmp.Or(move.Spec.Target.Cluster, clusters[move.Spec.Target.Node], "node "+move.Spec.Target.Node),
			Phase:  string(status.Phase), Message: shownText(status.Message), Started: move.CreationTimestamp,
			DownSince: status.DownSince, Downtime: status.Downtime}
		if accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.MoveAccepted); shown.State == Refused {
			shown.Message = shownText(accepted.Message)
		}
		if status.Target != nil {
			shown.Target = status.Target.Cluster
		}
		for _, claim := range status.Claims {
			if claim.Source != nil && shown.Source == "" {
				shown.Source = claim.Source.Cluster
			}
			shown.Pass = max(shown.Pass, claim.Pass)
			shown.Bytes += claim.Bytes
			shown.BytesTotal += claim.BytesTotal
			shown.Rate += claim.Rate
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b Move) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list
}

func stateOf(move *v1alpha1.VolumeMove) string {
	conditions := move.Status.Conditions
	switch phase := move.Status.Phase; {
	case meta.IsStatusConditionFalse(conditions, v1alpha1.MoveAccepted):
		return Refused
	case phase == v1alpha1.MoveChecked:
		return Checked
	case phase == v1alpha1.MoveFailed:
		return Failed
	case phase == v1alpha1.MoveAborted:
		return Aborted
	case phase == v1alpha1.MoveRetain, phase == v1alpha1.MoveFinalize, phase == v1alpha1.MoveDone:
		return Moved
	}
	return Going
}
