package policy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ReasonNotAllowed is the reason of what the owner of the cluster, or the rules
// of the agent, do not allow.
const ReasonNotAllowed = "NotAllowed"

// ReasonUnreadable is the reason of a template that cannot be read.
const ReasonUnreadable = "Unreadable"

// Ours reports whether a pod is the one that a ShadowPod asks for.
func Ours(pod *corev1.Pod, shadow *remotev1alpha1.ShadowPod) bool {
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
	for _, volume := range shadow.Spec.Pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil || source.PodCertificate != nil {
				return refuse("Volume " + volume.Name + " asks for a token or certificate of this cluster, which its pods of other clusters do not get: leave it out.")
			}
		}
	}
	return nil
}

// NewPod returns the pod that a ShadowPod asks for, within what its home cluster
// is allowed. What Pod Security judges is left to it.
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
		// It must not end and disappear unseen.
		pod.Finalizers = []string{keys.UnrecordedFinalizer}
	}
	pod.Annotations[keys.Applied] = appliedOf(shadow)
	confine(&pod.Spec, home)
	own(pod.Spec.Affinity, pod.Namespace, shadow.Spec.Home.Cluster)
	return pod
}

// confine takes from a pod what is not its home cluster's to choose.
func confine(spec *corev1.PodSpec, home *remotev1alpha1.HomeCluster) {
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
		return t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable && (t.Key == "" || !slices.Contains(home.Spec.Tolerations, t.Key))
	})
	if spec.TerminationGracePeriodSeconds != nil {
		// With zero, whoever deletes the pod would see it gone while it runs.
		spec.TerminationGracePeriodSeconds = ptr.To(max(*spec.TerminationGracePeriodSeconds, 1))
	}
	stay(spec)
}

// stay keeps a pod off nodes that stand for other clusters. Terms are ORed, so
// each must say it.
func stay(spec *corev1.PodSpec) {
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
		// An empty term matches no node, and must not begin to.
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
	labels[keys.HomeID] = shadow.Spec.Home.Cluster
	labels[keys.PodUID] = string(shadow.Spec.Home.UID)
	return labels
}

func annotationsOf(shadow *remotev1alpha1.ShadowPod) map[string]string {
	annotations := maps.Clone(shadow.Spec.Pod.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[keys.Pod] = shadow.Spec.Home.Namespace + "/" + shadow.Spec.Home.Name
	return annotations
}
