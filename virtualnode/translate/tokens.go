package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// admitted begins the name of the volume that admission gives every pod: a
	// token of its ServiceAccount and what belongs to it.
	admitted = "kube-api-access-"
	// homeCA is the ConfigMap with the certificate of the API server; every
	// namespace of every cluster has one of its own.
	homeCA = "kube-root-ca.crt"
)

// TokenSecret returns the name of the Secret in the remote namespace that holds
// the home API token of a pod, with the keys token, ca.crt and namespace.
func TokenSecret(pod *corev1.Pod) string { return "lodestone-token-" + string(pod.UID) }

// tokens drops the tokens of home's API. A pod that asks for one by annotation
// reads it from a Secret instead.
func tokens(pod *corev1.Pod, spec *corev1.PodSpec) {
	wanted := pod.Annotations[keys.Token] != ""
	dropped := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume corev1.Volume) bool {
		if volume.Projected == nil || !slices.ContainsFunc(volume.Projected.Sources, isToken) {
			return false
		}
		if !wanted && strings.HasPrefix(volume.Name, admitted) {
			dropped[volume.Name] = true
			return true
		}
		var sources []corev1.VolumeProjection
		for _, source := range volume.Projected.Sources {
			if wanted {
				sources = append(sources, fromSecret(pod, source))
			} else if !isToken(source) {
				sources = append(sources, source)
			}
		}
		volume.Projected.Sources = sources
		dropped[volume.Name] = len(sources) == 0
		return len(sources) == 0
	})
	eachContainer(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(mount corev1.VolumeMount) bool { return dropped[mount.Name] })
	})
}

func isToken(source corev1.VolumeProjection) bool { return source.ServiceAccountToken != nil }

// fromSecret returns what stands for a source beside which there is a token.
func fromSecret(pod *corev1.Pod, source corev1.VolumeProjection) corev1.VolumeProjection {
	items := []corev1.KeyToPath{}
	switch {
	case source.ServiceAccountToken != nil:
		items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountTokenKey, Path: source.ServiceAccountToken.Path})
	case source.ConfigMap != nil && source.ConfigMap.Name == homeCA:
		for _, item := range source.ConfigMap.Items {
			items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountRootCAKey, Path: item.Path, Mode: item.Mode})
		}
		if len(source.ConfigMap.Items) == 0 {
			items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey})
		}
	default:
		return source
	}
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: TokenSecret(pod)}, Items: items,
	}}
}
