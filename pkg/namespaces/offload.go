package namespaces

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// MayUse reports whether pods and volumes of a home namespace may be in a remote
// cluster: the namespace is labelled for it, and its annotation, if there is
// one, names the cluster.
func MayUse(namespace *corev1.Namespace, cluster string) bool {
	if namespace == nil || namespace.Labels[keys.Offload] != keys.OffloadEnabled {
		return false
	}
	list, narrowed := namespace.Annotations[keys.OffloadClusters]
	if !narrowed {
		return true
	}
	return slices.ContainsFunc(strings.Split(list, ","), func(id string) bool { return strings.TrimSpace(id) == cluster })
}
