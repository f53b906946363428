package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// fields keeps what a pod reads of itself true to its home pod. Names, labels
// and annotations are the same there; the UID, the ServiceAccount and, if moved,
// the namespace are not. What it reads of its node is of the node there.
func fields(pod *corev1.Pod, spec *corev1.PodSpec, moved bool) {
	values := map[string]string{
		"metadata.uid":            string(pod.UID),
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
	}
	// A volume holds no literal: labels and annotations of the pod there do.
	paths := map[string]string{"metadata.uid": fmt.Sprintf("metadata.labels['%s']", keys.PodUID)}
	if moved {
		values["metadata.namespace"] = pod.Namespace
		paths["metadata.namespace"] = fmt.Sprintf("metadata.annotations['%s']", keys.HomeNamespace)
	}
	eachContainer(spec, func(c *corev1.Container) {
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
				if value, ok := values[from.FieldRef.FieldPath]; ok {
					c.Env[i] = corev1.EnvVar{Name: c.Env[i].Name, Value: value}
				}
			}
		}
	})
	replace := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			if ref := items[i].FieldRef; ref != nil {
				if path, ok := paths[ref.FieldPath]; ok {
					ref.FieldPath = path
				}
			}
		}
	}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.DownwardAPI != nil {
			replace(volume.DownwardAPI.Items)
		}
		if volume.Projected != nil {
			for j := range volume.Projected.Sources {
				if source := volume.Projected.Sources[j].DownwardAPI; source != nil {
					replace(source.Items)
				}
			}
		}
	}
}
