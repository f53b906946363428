// Package route decides where the backing claim of a virtual claim goes: the
// cluster of the selected node, and the real class there. It is pure.
package route

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Cluster is what a decision needs to know of one cluster.
type Cluster struct {
	// Known is false when no RemoteCluster object has this ID.
	Known bool
	// Leaving is true while the RemoteCluster is being deleted.
	Leaving bool
	// StorageClassName is the real class that the RemoteCluster prefers.
	StorageClassName string
	// Offered are its real classes.
	Offered []v1alpha1.OfferedClass
	// topologies confine real classes of the home cluster, by name; those of a remote
	// cluster are for the kube-scheduler there.
	topologies map[string][]corev1.TopologySelectorTerm
}

// Input is what a route is made from.
type Input struct {
	Claim *corev1.PersistentVolumeClaim
	Class virtualclass.Class
	Node  *corev1.Node
	// Namespace is the claim's, nil when it does not exist.
	Namespace *corev1.Namespace
	// Cluster returns what is known of the cluster with the given ID.
	Cluster func(id string) Cluster
}

// Route is where a backing claim goes.
type Route struct {
	// Cluster is keys.Home or the ID of a remote cluster.
	Cluster string
	// Node is the selected node.
	Node string
	// Class is the real class of the backing claim.
	Class v1alpha1.OfferedClass
	// Named says whether the class was asked for by name, not as the default.
	Named bool
	// Source is what the backing claim is to be made from, in the same namespace:
	// another backing claim, or a snapshot; empty for nothing. Package decide sets it.
	Source types.NamespacedName
	// FromSnapshot says that Source is a VolumeSnapshot, not a claim.
	FromSnapshot bool
}

// Deferred says whether the backing claim binds only once a pod uses it or, at
// home, once it carries the selected node.
func (r Route) Deferred() bool {
	return r.Class.BindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Driver is the CSI driver of the volumes of the route's class; empty where
// Kubernetes knows it by another name.
func (r Route) Driver() string {
	if strings.HasPrefix(r.Class.Provisioner, inTree) {
		return ""
	}
	return r.Class.Provisioner
}

// inTree begins the names of provisioners that kube-controller-manager knows by
// another name, or that make no volumes.
const inTree = "kubernetes.io/"

// Refused is the error of a claim that this cluster cannot take but another may.
type Refused struct {
	// Node is set when only that node refuses.
	Node string
	// Reason is one word, Message one sentence that says what to do.
	Reason, Message string
}

func (r *Refused) Error() string { return r.Message }

// NoRealClass is the reason of a cluster that offers no fitting real class.
const NoRealClass = "NoRealClass"

// Invalid is the error of a claim that no cluster can take as it is.
type Invalid struct{ Message string }

func (i *Invalid) Error() string { return i.Message }

// Validate says whether a virtual claim asks only for what a virtual volume can
// give. The error is an *Invalid.
func Validate(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.Selector != nil {
		return &Invalid{"the claim has a selector, which a virtual storage class cannot honour: remove spec.selector"}
	}
	_, err := CopyOf(claim)
	return err
}

// To returns the route of a claim to the cluster of its selected node. The error
// is a *Refused or an *Invalid.
func To(in Input) (Route, error) {
	if err := Validate(in.Claim); err != nil {
		return Route{}, err
	}
	if label, ok := in.Node.Labels[keys.Cluster]; ok && (label == "" || label == keys.Home) {
		return Route{}, &Refused{Node: in.Node.Name, Reason: "InvalidNodeLabel", Message: fmt.Sprintf("node %q has the label %s with value %q, which names no remote cluster: remove the label, for nodes of the home cluster have none", in.Node.Name, keys.Cluster, label)}
	}
	id := locality.OfNode(in.Node.Labels)
	if !in.Class.Allows(id) {
		return Route{}, &Refused{Reason: "ClusterNotAllowed", Message: fmt.Sprintf("storage class %q keeps its volumes out of cluster %q: let the pod run in a cluster that its parameter %s lists", in.Class.Name, id, keys.Clusters)}
	}
	cluster := in.Cluster(id)
	if id != keys.Home {
		switch {
		case !cluster.Known:
			return Route{}, &Refused{Reason: "UnknownCluster", Message: fmt.Sprintf("node %q stands for cluster %q, which has no RemoteCluster object: create one of that name or correct the node's label %s", in.Node.Name, id, keys.Cluster)}
		case cluster.Leaving:
			return Route{}, &Refused{Reason: "ClusterLeaving", Message: fmt.Sprintf("RemoteCluster %q is being deleted and takes no new volumes: use another cluster", id)}
		case in.Namespace == nil || in.Namespace.Labels[keys.Offload] != keys.OffloadEnabled:
			return Route{}, &Refused{Reason: "NotOffloaded", Message: fmt.Sprintf("pods of namespace %q may not run in remote clusters: label the namespace %s=%s or keep the pod at home", in.Claim.Namespace, keys.Offload, keys.OffloadEnabled)}
		case !namespaces.MayUse(in.Namespace, id):
			return Route{}, &Refused{Reason: "NotOpen", Message: fmt.Sprintf("namespace %q may not use cluster %q, for its annotation %s lists %q: add the cluster there or let the pod run elsewhere", in.Claim.Namespace, id, keys.OffloadClusters, in.Namespace.Annotations[keys.OffloadClusters])}
		case ephemeral(in.Claim) && !own(in.Node):
			return Route{}, &Refused{Reason: "EphemeralVolume", Message: fmt.Sprintf("the claim belongs to pod %q (a generic ephemeral volume), and the copy of that pod in cluster %q, whose virtual node is not Lodestone's, would not own it: keep the pod at home or use a claim of its own", metav1.GetControllerOf(in.Claim).Name, id)}
		}
	}
	name, err := in.Class.RealClassName(id, in.Claim.Annotations)
	if err != nil {
		return Route{}, &Invalid{err.Error()}
	}
	if name == "" {
		name = cluster.StorageClassName
	}
	where := "the home cluster"
	if id != keys.Home {
		where = fmt.Sprintf("cluster %q", id)
	}
	class, err := virtualclass.Resolve(name, where, cluster.Offered)
	if err != nil {
		return Route{}, &Refused{Reason: NoRealClass, Message: err.Error()}
	}
	if id == keys.Home {
		if err := usableForTwin(class, cluster, in.Node); err != nil {
			return Route{}, err
		}
	}
	return Route{Cluster: id, Node: in.Node.Name, Class: class, Named: name != ""}, nil
}

// own says whether a node is one of Lodestone's virtual node program: the copies
// that it has made of pods use claims in the place of generic ephemeral volumes.
func own(node *corev1.Node) bool {
	_, ours := node.Labels[keys.VirtualNodeRole]
	return ours
}

// ephemeral says whether a claim belongs to a pod.
func ephemeral(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}
