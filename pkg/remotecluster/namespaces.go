// Package remotecluster says what the specification of a RemoteCluster means for objects of home: which
// namespace of the remote cluster belongs to one of home (Namespace), whether pods and volumes of a namespace
// may be in it (MayUse), whether pods of home may reach those there (MayReach), and which addresses its pods may have
// (PodRanges). It is pure.
package remotecluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Namespace returns the namespace of a remote cluster that belongs to a home
// namespace.
func Namespace(strategy v1alpha1.NamespaceStrategy, namespace, homeID string) string {
	if strategy == v1alpha1.Suffixed {
		return namespace + "-" + homeID
	}
	return namespace
}

// MayUse reports whether pods and volumes of a home namespace may be in a remote
// cluster: the namespace is labelled for it, and its annotation, if there is
// one, names the cluster.
func MayUse(namespace *corev1.Namespace, cluster string) bool {
	return namespace != nil && namespace.Labels[keys.Offload] == keys.OffloadEnabled && names(namespace, cluster)
}

// MayReach reports whether pods of a home namespace that run at home reach those of a remote cluster through the network fabric, and are
// reached: those of namespaces that may use it, and of those that are labelled for that alone.
func MayReach(namespace *corev1.Namespace, cluster string) bool {
	return MayUse(namespace, cluster) ||
		namespace != nil && namespace.Labels[keys.Fabric] == keys.FabricEnabled && names(namespace, cluster)
}

// names reports whether a namespace is open to a cluster: its annotation, if there is one, names it.
func names(namespace *corev1.Namespace, cluster string) bool {
	list, narrowed := namespace.Annotations[keys.OffloadClusters]
	if !narrowed {
		return true
	}
	return slices.ContainsFunc(strings.Split(list, ","), func(id string) bool { return strings.TrimSpace(id) == cluster })
}

// Older says which of two RemoteClusters of one cluster counts: the one that was there first.
func Older(a, b *v1alpha1.RemoteCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
