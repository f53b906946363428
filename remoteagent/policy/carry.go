package policy

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// applied is what was last carried from a template to its pod, so that what
// others wrote on the pod stays.
type applied struct {
	Labels      []string          `json:"labels,omitempty"`
	Annotations []string          `json:"annotations,omitempty"`
	Images      map[string]string `json:"images,omitempty"`
}

func appliedOf(shadow *remotev1alpha1.ShadowPod) string {
	template := shadow.Spec.Pod
	a := applied{
		Labels:      slices.Sorted(maps.Keys(template.Labels)),
		Annotations: slices.Sorted(maps.Keys(template.Annotations)),
		Images:      map[string]string{},
	}
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for _, c := range containers {
			a.Images[c.Name] = c.Image
		}
	}
	// Strings, sorted by their keys, cannot fail to encode.
	text, _ := json.Marshal(a)
	return string(text)
}

// Patch returns the strategic merge patch that brings a pod in line with changes
// of its template, nil if there are none. Labels, annotations and images are
// what can change.
func Patch(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) map[string]any {
	var was applied
	// What cannot be read was written by nobody of ours: nothing is removed then.
	_ = json.Unmarshal([]byte(pod.Annotations[keys.Applied]), &was)
	labels := entries(labelsOf(shadow), pod.Labels, was.Labels)
	annotations := annotationsOf(shadow)
	annotations[keys.Applied] = appliedOf(shadow)
	annotated := entries(annotations, pod.Annotations, was.Annotations)
	init := images(shadow.Spec.Pod.Spec.InitContainers, pod.Spec.InitContainers, was.Images)
	containers := images(shadow.Spec.Pod.Spec.Containers, pod.Spec.Containers, was.Images)
	if len(labels)+len(annotated)+len(init)+len(containers) == 0 {
		return nil
	}
	metadata := map[string]any{"uid": pod.UID}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotated) > 0 {
		metadata["annotations"] = annotated
	}
	spec := map[string]any{}
	if len(init) > 0 {
		spec["initContainers"] = init
	}
	if len(containers) > 0 {
		spec["containers"] = containers
	}
	patch := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

// entries returns what to set, and to remove with nil, so that have holds want
// and none of the keys that were carried before.
func entries(want, have map[string]string, was []string) map[string]any {
	changes := map[string]any{}
	for key, value := range want {
		if now, ok := have[key]; !ok || now != value {
			changes[key] = value
		}
	}
	for _, key := range was {
		_, wanted := want[key]
		if _, ok := have[key]; ok && !wanted {
			changes[key] = nil
		}
	}
	return changes
}

// images returns the containers whose image was changed in the template. Images
// that only differ on the pod were changed there, by admission.
func images(template, have []corev1.Container, was map[string]string) []map[string]any {
	var changes []map[string]any
	for _, c := range template {
		exists := slices.ContainsFunc(have, func(h corev1.Container) bool { return h.Name == c.Name })
		if before, known := was[c.Name]; known && exists && before != c.Image {
			changes = append(changes, map[string]any{"name": c.Name, "image": c.Image})
		}
	}
	return changes
}
