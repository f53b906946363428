package policy

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ReasonNotAllowed is the reason of refusals by the owner of the cluster or by the rules of the
// agent.
const ReasonNotAllowed = "NotAllowed"

// ReasonUnreadable is the reason of a refusal because the template cannot be read.
const ReasonUnreadable = "Unreadable"

// IsPodOf reports whether a pod is the one that a ShadowPod asks for.
func IsPodOf(pod *corev1.Pod, shadow *remotev1alpha1.ShadowPod) bool {
	return pod.Name == shadow.Name && pod.Namespace == shadow.Namespace &&
		pod.Labels[keys.HomeID] == shadow.Spec.Home.Cluster &&
		pod.Labels[keys.PodUID] == string(shadow.Spec.Home.UID)
}

// Permit says why a home cluster may have no pod for a ShadowPod, nil if it may.
// namespace and home are nil where there are none.
func Permit(shadow *remotev1alpha1.ShadowPod, namespace *corev1.Namespace, home *remotev1alpha1.HomeCluster) *Refusal {
	id := shadow.Spec.Home.Cluster
	refuse := func(message string) *Refusal { return &Refusal{ReasonNotAllowed, message} }
	switch {
	case home == nil || home.DeletionTimestamp != nil:
		return refuse("There is no HomeCluster " + id + " in this cluster, or it is being removed: its owner must make it.")
	case namespace == nil || namespace.Labels[keys.HomeID] != id || namespace.Annotations[keys.MadeFor] == "":
		return refuse("The namespace was not made for home cluster " + id + ": ask for it with a NamespaceRequest.")
	case shadow.Labels[keys.HomeID] != id || shadow.Labels[keys.PodUID] != string(shadow.Spec.Home.UID):
		return refuse("The labels of the ShadowPod do not name its home cluster and its pod: make it again with them.")
	}
	if problem := shadow.Spec.Unreadable; problem != "" {
		return &Refusal{ReasonUnreadable, "spec.pod of the ShadowPod is not the template of a pod: make it again with one (" + problem + ")."}
	}
	if len(shadow.Spec.Pod.Spec.ResourceClaims) > 0 {
		return refuse("The pod asks for devices by claims (spec.resourceClaims), which home clusters get none of here: leave them out.")
	}
	for _, volume := range shadow.Spec.Pod.Spec.Volumes {
		if volume.Ephemeral != nil {
			// This cluster would make the claim, with whatever volumeName, selector or class it has.
			return refuse("Volume " + volume.Name + " is a generic ephemeral volume, whose claim would not be judged as those of home " +
				id + ": make the claim and name it.")
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil || source.PodCertificate != nil {
				return refuse("Volume " + volume.Name + " asks for a token or certificate of this cluster, which its pods of other clusters do not " +
					"get: leave it out.")
			}
		}
	}
	return nil
}

// NewPod returns the pod that a ShadowPod asks for, within what its home cluster is allowed. What
// Pod Security checks is not checked here.
func NewPod(shadow *remotev1alpha1.ShadowPod, home *remotev1alpha1.HomeCluster) *corev1.Pod {
	template := shadow.Spec.Pod.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   shadow.Namespace,
			Name:        shadow.Name,
			Labels:      labelsOf(shadow),
			Annotations: annotationsOf(shadow),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "ShadowPod", Name: shadow.Name, UID: shadow.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: template.Spec,
	}
	if template.Spec.RestartPolicy != "" && template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		// The pod must not end and disappear before its creation is recorded.
		pod.Finalizers = []string{keys.UnrecordedFinalizer}
	}
	pod.Annotations[keys.Applied] = appliedOf(shadow, nil, applied{})
	restrict(&pod.Spec, home)
	limitAffinity(pod.Spec.Affinity, pod.Namespace, shadow.Spec.Home.Cluster)
	return pod
}

// restrict removes from a pod what its home cluster must not choose.
func restrict(spec *corev1.PodSpec, home *remotev1alpha1.HomeCluster) {
	spec.NodeName = ""
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	spec.EphemeralContainers = nil
	spec.Overhead = nil
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "default", ""
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.Priority, spec.PreemptionPolicy = nil, nil
	if !slices.Contains(home.Spec.PriorityClasses, spec.PriorityClassName) {
		spec.PriorityClassName = ""
	}
	spec.Tolerations = slices.DeleteFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable &&
			(t.Key == "" || !slices.Contains(home.Spec.Tolerations, t.Key))
	})
	if spec.TerminationGracePeriodSeconds != nil {
		// With zero, the API server would delete the object at once while the pod still runs.
		spec.TerminationGracePeriodSeconds = ptr.To(max(*spec.TerminationGracePeriodSeconds, 1))
	}
	avoidVirtualNodes(spec)
}

// avoidVirtualNodes excludes nodes that stand for other clusters. Node selector terms are ORed, so
// each must exclude them.
func avoidVirtualNodes(spec *corev1.PodSpec) {
	here := corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
		}
		return
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		// An empty term matches no node, and must not match one now.
		if len(terms[i].MatchExpressions) > 0 || len(terms[i].MatchFields) > 0 {
			terms[i].MatchExpressions = append(terms[i].MatchExpressions, here)
		}
	}
}

func labelsOf(shadow *remotev1alpha1.ShadowPod) map[string]string {
	labels := maps.Clone(shadow.Spec.Pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(key, _ string) bool { return ofPlace(key) })
	labels[keys.HomeID] = shadow.Spec.Home.Cluster
	labels[keys.PodUID] = string(shadow.Spec.Home.UID)
	return labels
}

// ofPlace reports whether a label says where a pod runs. An API server writes these when it binds a pod:
// those on the home pod name the virtual node's place, those on the pod here that of its node.
func ofPlace(label string) bool {
	return label == corev1.LabelTopologyZone || label == corev1.LabelTopologyRegion
}

func annotationsOf(shadow *remotev1alpha1.ShadowPod) map[string]string {
	annotations := maps.Clone(shadow.Spec.Pod.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[keys.Pod] = shadow.Spec.Home.Namespace + "/" + shadow.Spec.Home.Name
	return annotations
}

// limitAffinity restricts terms on other pods to pods of the same home cluster. kube-scheduler
// applies a pod's anti-affinity also to later pods: a term over all namespaces would keep the pods
// of others off its nodes.
func limitAffinity(affinity *corev1.Affinity, namespace, home string) {
	if with := affinity.PodAffinity; with != nil {
		limitTerms(with.RequiredDuringSchedulingIgnoredDuringExecution, namespace, home)
		limitWeightedTerms(with.PreferredDuringSchedulingIgnoredDuringExecution, namespace, home)
	}
	if apart := affinity.PodAntiAffinity; apart != nil {
		limitTerms(apart.RequiredDuringSchedulingIgnoredDuringExecution, namespace, home)
		limitWeightedTerms(apart.PreferredDuringSchedulingIgnoredDuringExecution, namespace, home)
	}
}

func limitTerms(terms []corev1.PodAffinityTerm, namespace, home string) {
	for i := range terms {
		limitTerm(&terms[i], namespace, home)
	}
}

func limitWeightedTerms(terms []corev1.WeightedPodAffinityTerm, namespace, home string) {
	for i := range terms {
		limitTerm(&terms[i].PodAffinityTerm, namespace, home)
	}
}

// limitTerm restricts one term. A term means the namespaces that it lists and those that it
// selects; without either, the pod's own namespace.
func limitTerm(term *corev1.PodAffinityTerm, namespace, home string) {
	if selector := term.NamespaceSelector; selector != nil {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: keys.HomeID, Operator: metav1.LabelSelectorOpIn, Values: []string{home},
		})
	}
	if len(term.Namespaces) == 0 {
		return
	}
	listed := slices.Contains(term.Namespaces, namespace)
	switch {
	case listed:
		term.Namespaces = []string{namespace}
	case term.NamespaceSelector != nil:
		term.Namespaces = nil
	default:
		// An empty list would mean the pod's own namespace; this means no namespace.
		term.Namespaces = nil
		term.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: keys.HomeID, Operator: metav1.LabelSelectorOpIn, Values: []string{home}},
			{Key: keys.HomeID, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
	}
}

// applied is what was last copied from a template to its pod, so that what others wrote on the pod
// stays.
type applied struct {
	Labels      []string          `json:"labels,omitempty"`
	Annotations []string          `json:"annotations,omitempty"`
	Images      map[string]string `json:"images,omitempty"`
	// Resources are those of the containers that have any; missing on pods of before they were copied.
	Resources map[string]corev1.ResourceRequirements `json:"resources"`
}

// appliedOf returns the annotation keys.Applied of a pod, which is nil while it is about to be made; was
// is what was last copied to it.
func appliedOf(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod, was applied) string {
	template := shadow.Spec.Pod
	a := applied{
		Resources:   recorded(&template.Spec, pod, was.Resources),
		Labels:      slices.DeleteFunc(slices.Sorted(maps.Keys(template.Labels)), ofPlace),
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

// Patch returns the strategic merge patch that applies changes of a template to its pod, nil if
// there are none: labels, annotations and images. See Adjust for what else can change.
func Patch(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) map[string]any {
	was := appliedTo(pod)
	labels := entries(labelsOf(shadow), pod.Labels, slices.DeleteFunc(was.Labels, ofPlace))
	annotations := annotationsOf(shadow)
	annotations[keys.Applied] = appliedOf(shadow, pod, was)
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

// entries returns the patch that gives have the entries of want and removes, with nil, other keys
// that were copied earlier.
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

// images returns the containers whose image was changed in the template. If only the pod's image
// differs, admission changed it.
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
