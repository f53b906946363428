package policy

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Subresources of a pod through which a running one is changed.
const (
	Resize    = "resize"
	Ephemeral = "ephemeralcontainers"
)

// Adjustment is a change of a running pod that API servers take only through a subresource.
type Adjustment struct {
	// Subresource is Resize or Ephemeral.
	Subresource string
	// Patch is a strategic merge patch.
	Patch map[string]any
	// Pod is the pod as it is to be, as far as Requests depends on it.
	Pod *corev1.Pod
}

// Adjust returns the next adjustment of the pod of a ShadowPod, nil if there is none: resources that
// home has changed since they were last copied, or ephemeral containers that the pod does not have.
func Adjust(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) *Adjustment {
	if shadow.Spec.Unreadable != "" || pod.DeletionTimestamp != nil || Ended(pod) {
		return nil
	}
	template, was := &shadow.Spec.Pod.Spec, appliedTo(pod)
	resized := pod.DeepCopy()
	init := resizes(template.InitContainers, resized.Spec.InitContainers, was.Resources)
	containers := resizes(template.Containers, resized.Spec.Containers, was.Resources)
	if spec := listed("initContainers", init, "containers", containers); spec != nil {
		return &Adjustment{Subresource: Resize, Pod: resized,
			Patch: map[string]any{"metadata": map[string]any{"uid": pod.UID}, "spec": spec}}
	}
	var added []corev1.EphemeralContainer
	for _, c := range template.EphemeralContainers {
		if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(h corev1.EphemeralContainer) bool { return h.Name == c.Name }) {
			added = append(added, c)
		}
	}
	if len(added) > 0 {
		return &Adjustment{Subresource: Ephemeral, Pod: resized,
			Patch: map[string]any{"metadata": map[string]any{"uid": pod.UID}, "spec": map[string]any{"ephemeralContainers": added}}}
	}
	return nil
}

// listed returns a spec with the lists that are not empty, nil without any.
func listed(init string, inits []map[string]any, name string, containers []map[string]any) map[string]any {
	spec := map[string]any{}
	if len(inits) > 0 {
		spec[init] = inits
	}
	if len(containers) > 0 {
		spec[name] = containers
	}
	if len(spec) == 0 {
		return nil
	}
	return spec
}

// appliedTo returns what was last copied to a pod.
func appliedTo(pod *corev1.Pod) applied {
	var was applied
	// Lodestone did not write what cannot be read here: nothing is removed or resized then.
	_ = json.Unmarshal([]byte(pod.Annotations[keys.Applied]), &was)
	return was
}

// resizes returns the patches of the containers whose resources home has changed, and makes have what
// they will be. What this cluster added, as from a LimitRange, stays. was is nil where nothing was
// written down: then home has changed nothing yet.
func resizes(template, have []corev1.Container, was map[string]corev1.ResourceRequirements) []map[string]any {
	if was == nil {
		return nil
	}
	var changes []map[string]any
	for _, c := range template {
		i := slices.IndexFunc(have, func(h corev1.Container) bool { return h.Name == c.Name })
		if i < 0 || sameResources(was[c.Name], c.Resources) {
			continue
		}
		requests := quantities(c.Resources.Requests, was[c.Name].Requests, &have[i].Resources.Requests)
		limits := quantities(c.Resources.Limits, was[c.Name].Limits, &have[i].Resources.Limits)
		resources := map[string]any{}
		if len(requests) > 0 {
			resources["requests"] = requests
		}
		if len(limits) > 0 {
			resources["limits"] = limits
		}
		if len(resources) > 0 {
			changes = append(changes, map[string]any{"name": c.Name, "resources": resources})
		}
	}
	return changes
}

// quantities returns the patch that gives have the quantities of want and takes away, with nil, those
// that were copied earlier; it changes have accordingly.
func quantities(want, was corev1.ResourceList, have *corev1.ResourceList) map[string]any {
	changes := map[string]any{}
	next := have.DeepCopy()
	if next == nil {
		next = corev1.ResourceList{}
	}
	for name, quantity := range want {
		if now, ok := next[name]; !ok || now.Cmp(quantity) != 0 {
			changes[string(name)] = quantity.String()
			next[name] = quantity
		}
	}
	for name := range was {
		_, wanted := want[name]
		if _, ok := next[name]; ok && !wanted {
			changes[string(name)] = nil
			delete(next, name)
		}
	}
	*have = next
	return changes
}

func sameResources(a, b corev1.ResourceRequirements) bool {
	return sameQuantities(a.Requests, b.Requests) && sameQuantities(a.Limits, b.Limits)
}

func sameQuantities(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		other, ok := b[name]
		if !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// recorded returns the resources to write down as copied: those of the template where the pod has them,
// else those that were copied before. Without a pod, it is about to be made with those of the template.
func recorded(
	template *corev1.PodSpec, pod *corev1.Pod, was map[string]corev1.ResourceRequirements,
) map[string]corev1.ResourceRequirements {
	result := map[string]corev1.ResourceRequirements{}
	for _, containers := range [][]corev1.Container{template.InitContainers, template.Containers} {
		for _, c := range containers {
			resources := corev1.ResourceRequirements{Requests: rounded(c.Resources.Requests), Limits: rounded(c.Resources.Limits)}
			if pod != nil && was != nil && !sameResources(was[c.Name], c.Resources) && !has(pod, c, was[c.Name]) {
				resources = was[c.Name]
			}
			if len(resources.Requests)+len(resources.Limits) > 0 {
				result[c.Name] = resources
			}
		}
	}
	return result
}

// has reports whether the container of a pod has the resources of its template.
func has(pod *corev1.Pod, c corev1.Container, was corev1.ResourceRequirements) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == c.Name {
				have := containers[i].Resources
				return len(quantities(c.Resources.Requests, was.Requests, &have.Requests)) == 0 &&
					len(quantities(c.Resources.Limits, was.Limits, &have.Limits)) == 0
			}
		}
	}
	return false
}

// rounded returns a copy whose quantities are as they are read back, so that the text that is written
// down stays the same.
func rounded(list corev1.ResourceList) corev1.ResourceList {
	var result corev1.ResourceList
	for name, quantity := range list {
		if result == nil {
			result = corev1.ResourceList{}
		}
		if parsed, err := resource.ParseQuantity(quantity.String()); err == nil {
			result[name] = parsed
		}
	}
	return result
}
