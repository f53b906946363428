// Package translate says what a home pod is in a remote cluster, and what the
// status of the pod there means at home. All of it is pure: values in, values
// out.
package translate

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// ownPrefix begins every label and annotation that is Lodestone's: what they
	// say of the home pod is not true of the remote one.
	ownPrefix = "lodestone.dev/"

	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// Mapping returns the namespace of the remote cluster that belongs to a home
// namespace.
type Mapping func(home string) string

// Template returns the pod to ask for in the remote cluster. What the pod says
// of itself is kept, claims, ConfigMaps and Secrets under their names; what it
// says of home's nodes is dropped. The pod is not changed. A claim may have another
// name there, which only its volume tells: see Rename.
func Template(pod *corev1.Pod, mapped Mapping) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	template.Labels = foreign(pod.Labels)
	template.Annotations = foreign(pod.Annotations)
	delete(template.Annotations, lastApplied)
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	template.Annotations[keys.HomeNamespace] = pod.Namespace

	spec := &template.Spec
	// Given by home's scheduler and admission, or only possible later in the life
	// of a pod.
	spec.NodeName = ""
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	spec.SchedulingGroup = nil
	spec.EphemeralContainers = nil
	spec.Priority, spec.PreemptionPolicy = nil, nil
	spec.Overhead = nil
	// A controller of home sets these conditions, where nobody there sees it:
	// Status counts them in.
	spec.ReadinessGates = nil
	// The identity there is none of home's.
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.AutomountServiceAccountToken = ptr.To(false)
	// The Services of home's namespace are told by DNS, not by variables that
	// a kubelet makes of whatever is in the namespace there.
	spec.EnableServiceLinks = ptr.To(false)

	// Only home's scheduler knows the marker; a node there has none to give.
	eachContainer(spec, func(c *corev1.Container) {
		c.Resources.Requests = unmarked(c.Resources.Requests)
		c.Resources.Limits = unmarked(c.Resources.Limits)
	})
	claims(pod.Name, spec)
	place(spec, mapped)
	tokens(pod, spec)
	fields(pod, spec, mapped(pod.Namespace) != pod.Namespace)
	return template
}

// claims has generic ephemeral volumes use the claims that home made for them,
// whose shadows have the same names there: a kubelet refuses a claim that its pod
// does not own. That this pod owns them at home, home's scheduler has seen to.
func claims(pod string, spec *corev1.PodSpec) {
	for i := range spec.Volumes {
		if volume := &spec.Volumes[i]; volume.Ephemeral != nil {
			volume.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod + "-" + volume.Name}}
		}
	}
}

// Rename gives the claims of a template other names; those that names says nothing of
// keep theirs.
func Rename(template *corev1.PodTemplateSpec, names map[string]string) {
	for i := range template.Spec.Volumes {
		if source := template.Spec.Volumes[i].PersistentVolumeClaim; source != nil && names[source.ClaimName] != "" {
			source.ClaimName = names[source.ClaimName]
		}
	}
}

// KeepClaims gives a template the claims of an earlier one of the same pod. They were
// found out when that was first asked for, and a pod never changes its volumes.
func KeepClaims(template *corev1.PodTemplateSpec, earlier corev1.PodTemplateSpec) {
	had := map[string]string{}
	for i := range earlier.Spec.Volumes {
		if source := earlier.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
			had[earlier.Spec.Volumes[i].Name] = source.ClaimName
		}
	}
	for i := range template.Spec.Volumes {
		volume := &template.Spec.Volumes[i]
		if source := volume.PersistentVolumeClaim; source != nil && had[volume.Name] != "" {
			source.ClaimName = had[volume.Name]
		}
	}
}

// foreign returns the labels or annotations that are not Lodestone's.
func foreign(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, ownPrefix) })
	return kept
}

// unmarked takes the marker resource off a list, and returns nil where it was all
// there was.
func unmarked(list corev1.ResourceList) corev1.ResourceList {
	if _, marked := list[keys.MarkerResource]; !marked {
		return list
	}
	delete(list, keys.MarkerResource)
	if len(list) == 0 {
		return nil
	}
	return list
}

// eachContainer calls do for every container of a pod.
func eachContainer(spec *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		do(&spec.Containers[i])
	}
}
