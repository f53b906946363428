// Package route has where the backing claim of a virtual claim goes, and what it looks like: To
// chooses the cluster and the real class from the selected node, BackingClaim is the claim to create
// there, CopyOf, SnapshotOf and ReplicaOf say what it is a copy of. The package is pure.
package route

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// ClusterClasses is the part of a cluster's state that routing needs.
type ClusterClasses struct {
	// Known is false if there is no RemoteCluster with this ID.
	Known bool
	// Leaving is true while the RemoteCluster is being deleted.
	Leaving bool
	// StorageClassName is the real class that the RemoteCluster prefers.
	StorageClassName string
	// Offered are the cluster's real classes.
	Offered []v1alpha1.OfferedClass
	// topologies limit real classes of the home cluster to nodes, by class name; those of a
	// remote cluster are left to the kube-scheduler there.
	topologies map[string][]corev1.TopologySelectorTerm
}

// Input is the input of To.
type Input struct {
	Claim *corev1.PersistentVolumeClaim
	Class virtualclass.Class
	Node  *corev1.Node
	// Namespace is the claim's namespace, nil if it does not exist.
	Namespace *corev1.Namespace
	// Cluster returns the state of the cluster with this ID.
	Cluster func(id string) ClusterClasses
}

// Route is where and how a backing claim is created.
type Route struct {
	// Cluster is keys.Home or the ID of a remote cluster.
	Cluster string
	// Node is the selected node.
	Node string
	// Class is the real class of the backing claim.
	Class v1alpha1.OfferedClass
	// Named says whether the class was requested by name, not as the default.
	Named bool
	// Source is what the backing claim is created from, in the same namespace: another
	// backing claim or a snapshot; empty for nothing.
	Source types.NamespacedName
	// FromSnapshot says that Source is a VolumeSnapshot, not a claim.
	FromSnapshot bool
}

// Deferred says whether the backing claim binds only once a pod uses it or, at home, once
// it has the annotation of the selected node.
func (r Route) Deferred() bool {
	return r.Class.BindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Driver is the CSI driver of the class's volumes; empty where the provisioner is not the
// name of a CSI driver.
func (r Route) Driver() string {
	if strings.HasPrefix(r.Class.Provisioner, inTree) {
		return ""
	}
	return r.Class.Provisioner
}

// inTree is the prefix of provisioners that kube-controller-manager maps to a CSI driver of
// another name, or that create no volumes.
const inTree = "kubernetes.io/"

// Refused is the error of a claim that this cluster or node cannot take but another may.
type Refused struct {
	// Node is set if only that node refuses.
	Node string
	// Reason is CamelCase, Message one sentence that says what to do.
	Reason, Message string
}

func (r *Refused) Error() string { return r.Message }

// NoRealClass is the reason of a cluster that offers no suitable real class.
const NoRealClass = "NoRealClass"

// Invalid is the error of a claim that no cluster can take as it is.
type Invalid struct{ Message string }

func (i *Invalid) Error() string { return i.Message }

// ValidateClaim checks that a virtual claim requests only what a virtual volume can
// provide. The error is an *Invalid.
func ValidateClaim(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.Selector != nil {
		return &Invalid{"the claim has a selector, which a virtual storage class cannot honour: remove spec.selector"}
	}
	_, err := CopyOf(claim)
	return err
}

// To returns the route of a claim to the cluster of its selected node. The error is a
// *Refused or an *Invalid.
func To(in Input) (Route, error) {
	if err := ValidateClaim(in.Claim); err != nil {
		return Route{}, err
	}
	if label, ok := in.Node.Labels[keys.Cluster]; ok && (label == "" || label == keys.Home) {
		return Route{}, &Refused{Node: in.Node.Name, Reason: "InvalidNodeLabel",
			Message: fmt.Sprintf("node %q has the label %s with value %q, which names no remote cluster: remove the label, for nodes of the home "+
				"cluster have none", in.Node.Name, keys.Cluster, label)}
	}
	id := locality.OfNode(in.Node.Labels)
	if !in.Class.Allows(id) {
		return Route{},
			&Refused{Reason: "ClusterNotAllowed",
				Message: fmt.Sprintf("storage class %q keeps its volumes out of cluster %q: let the pod run in a cluster that its parameter %s lists",
					in.Class.Name, id, keys.Clusters)}
	}
	cluster := in.Cluster(id)
	if id != keys.Home {
		switch {
		case !cluster.Known:
			return Route{},
				&Refused{Reason: "UnknownCluster", Message: fmt.Sprintf("node %q stands for cluster %q, which has no RemoteCluster object: create "+
					"one of that name or correct the node's label %s", in.Node.Name, id, keys.Cluster)}
		case cluster.Leaving:
			return Route{},
				&Refused{Reason: "ClusterLeaving", Message: fmt.Sprintf("RemoteCluster %q is being deleted and takes no new volumes: use "+
					"another cluster", id)}
		case in.Namespace == nil || in.Namespace.Labels[keys.Offload] != keys.OffloadEnabled:
			return Route{},
				&Refused{Reason: "NotOffloaded", Message: fmt.Sprintf("pods of namespace %q may not run in remote clusters: label the namespace "+
					"%s=%s or keep the pod at home", in.Claim.Namespace, keys.Offload, keys.OffloadEnabled)}
		case !remotecluster.MayUse(in.Namespace, id):
			return Route{},
				&Refused{Reason: "NotOpen", Message: fmt.Sprintf("namespace %q may not use cluster %q, for its annotation %s lists %q: add the "+
					"cluster there or let the pod run elsewhere", in.Claim.Namespace, id, keys.OffloadClusters,
					in.Namespace.Annotations[keys.OffloadClusters])}
		case ephemeral(in.Claim) && !isVirtualNode(in.Node):
			return Route{},
				&Refused{Reason: "EphemeralVolume", Message: fmt.Sprintf("the claim belongs to pod %q (a generic ephemeral volume), and the copy of "+
					"that pod in cluster %q, whose virtual node is not Lodestone's, would not own it: keep the pod at home or use a claim of its own",
					metav1.GetControllerOf(in.Claim).Name, id)}
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

// isVirtualNode says whether a node belongs to Lodestone's virtual node program, whose
// copies of pods use claims instead of generic ephemeral volumes.
func isVirtualNode(node *corev1.Node) bool {
	_, ours := node.Labels[keys.VirtualNodeRole]
	return ours
}

// ephemeral says whether a claim belongs to a pod.
func ephemeral(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}

// HomeClasses returns the home cluster's storage classes as ClusterClasses.
func HomeClasses(classes []*storagev1.StorageClass) ClusterClasses {
	return ClusterClasses{Known: true, Offered: virtualclass.Offer(classes), topologies: virtualclass.Topologies(classes)}
}

// usableForTwin refuses real classes that cannot work for a claim that no pod uses and that
// is in the storage namespace, and nodes for which the class has no volumes: the real
// provisioner would fail again and again.
func usableForTwin(class v1alpha1.OfferedClass, cluster ClusterClasses, node *corev1.Node) error {
	switch {
	case class.Static && class.BindingMode == storagev1.VolumeBindingWaitForFirstConsumer:
		return &Refused{Reason: "StaticClass", Message: fmt.Sprintf("real storage class %q has hand-made volumes that only the scheduler "+
			"binds: name a class with a provisioner in the virtual class", class.Name)}
	case class.Templated:
		return &Refused{Reason: "TemplatedClass", Message: fmt.Sprintf("the parameters of real storage class %q depend on the claim's "+
			"namespace, which is not that of the backing claim: name another class in the virtual class", class.Name)}
	case !virtualclass.Within(cluster.topologies[class.Name], node.Labels):
		return &Refused{Node: node.Name, Reason: "NotInTopology", Message: fmt.Sprintf("real storage class %q has no volumes for node %q, "+
			"which is in none of its allowedTopologies: let the pod run on a node that is, or name another class in the virtual class", class.Name,
			node.Name)}
	}
	return nil
}

// BackingClaim returns the backing claim of a virtual claim for a route, with the
// annotation that marks it as unpublished and our finalizer.
func BackingClaim(claim *corev1.PersistentVolumeClaim, r Route, at types.NamespacedName, homeID string) *corev1.PersistentVolumeClaim {
	b := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace,
			Name:      at.Name,
			Labels: map[string]string{
				keys.ClaimUID: string(claim.UID),
				keys.HomeID:   homeID,
			},
			Annotations: map[string]string{
				keys.Claim:       claim.Namespace + "/" + claim.Name,
				keys.Unpublished: "true",
			},
			Finalizers: []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      slices.Clone(claim.Spec.AccessModes),
			VolumeMode:       claim.Spec.VolumeMode,
			Resources:        *claim.Spec.Resources.DeepCopy(),
			StorageClassName: &r.Class.Name,
		},
	}
	if name := backing.Attributes(claim); name != "" {
		b.Spec.VolumeAttributesClassName = &name
	}
	if r.Source.Name != "" {
		b.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: r.Source.Name}
		if r.FromSnapshot {
			b.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind,
				Name: r.Source.Name}
		}
	}
	if r.Cluster == keys.Home && r.Deferred() {
		b.Annotations[keys.SelectedNode] = r.Node
	}
	if provisioner := r.Driver(); (r.Cluster == keys.Home || !r.Deferred()) && provisioner != "" {
		// The claim may be provisioned at once, so add what kube-controller-manager would
		// write next, at its 20 requests a second, and what the real provisioner would wait
		// for.
		b.Annotations[keys.StorageProvisioner] = provisioner
		b.Annotations[keys.BetaStorageProvisioner] = provisioner
	}
	return b
}

// claimKind is the kind of a data source that is a claim.
const claimKind = "PersistentVolumeClaim"

// replicaKind is the kind of a data source that is a VolumeReplica: a claim is made from a version of it.
const replicaKind = "VolumeReplica"

// source is the name of a claim's data source; all fields are empty if it has none.
type source struct{ claim, snapshot, replica string }

// CopyOf returns the name of the claim in the same namespace that a claim is to be a copy
// of; empty if it is no copy. The error is an *Invalid: the data source is not supported.
func CopyOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	from, err := sourceOf(claim)
	return from.claim, err
}

// SnapshotOf returns the name of the VolumeSnapshot in the same namespace that a claim is
// to be made from; empty if there is none.
func SnapshotOf(claim *corev1.PersistentVolumeClaim) string {
	from, err := sourceOf(claim)
	if err != nil {
		return ""
	}
	return from.snapshot
}

// ReplicaOf returns the name of the VolumeReplica in the same namespace of which a version is to become
// a claim's volume; empty if there is none.
func ReplicaOf(claim *corev1.PersistentVolumeClaim) string {
	from, err := sourceOf(claim)
	if err != nil {
		return ""
	}
	return from.replica
}

func sourceOf(claim *corev1.PersistentVolumeClaim) (source, error) {
	// If both fields are set, the older one has the same value.
	if ref := claim.Spec.DataSourceRef; ref != nil {
		if elsewhere := ptr.Deref(ref.Namespace, ""); elsewhere != "" && elsewhere != claim.Namespace {
			return source{},
				&Invalid{fmt.Sprintf("the claim wants its data from namespace %q, but a virtual volume can be made only from what is in its own "+
					"namespace: correct spec.dataSourceRef", elsewhere)}
		}
		return knownSource(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	if ref := claim.Spec.DataSource; ref != nil {
		return knownSource(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	return source{}, nil
}

func knownSource(group, kind, name string) (source, error) {
	switch {
	case group == "" && kind == claimKind && name != "":
		return source{claim: name}, nil
	case group == volumesnapshot.Group && kind == volumesnapshot.Kind && name != "":
		return source{snapshot: name}, nil
	case group == v1alpha1.GroupVersion.Group && kind == replicaKind && name != "":
		return source{replica: name}, nil
	}
	return source{},
		&Invalid{fmt.Sprintf("the claim wants its data from %s %q, but a virtual volume can be made from a claim, a VolumeSnapshot or a "+
			"VolumeReplica only: create it without a data source and copy the data, since an empty volume would be worse than none", kind, name)}
}
