package policy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests returns what a pod counts for in an offer. Where a request is left
// out, the limit counts, since the API server makes it the request.
func Requests(spec corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: counted(spec.InitContainers), Containers: counted(spec.Containers), Overhead: spec.Overhead,
	}}
	if spec.Resources != nil {
		whole := *spec.Resources
		pod.Spec.Resources = &whole
		// The pod's own limit counts if none of its containers requests any.
		inside := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{SkipPodLevelResources: true, ExcludeOverhead: true})
		requests := defaulted(whole)
		for name := range whole.Limits {
			quantity, ok := inside[name]
			if _, asked := whole.Requests[name]; !asked && ok && !quantity.IsZero() {
				requests[name] = quantity
			}
		}
		whole.Requests = requests
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	AddRequests(requests, One())
	return requests
}

// counted returns what counts of containers.
func counted(containers []corev1.Container) []corev1.Container {
	all := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		all = append(all, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: defaulted(c.Resources)},
		})
	}
	return all
}

// defaulted returns requests with limits in the place of those left out.
func defaulted(resources corev1.ResourceRequirements) corev1.ResourceList {
	requests := maps.Clone(resources.Limits)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	maps.Copy(requests, resources.Requests)
	return requests
}
