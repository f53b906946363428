package policy

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// ReasonOverOffer is the reason of a refused pod that would exceed the offer.
const ReasonOverOffer = "OverOffer"

// Within says why a pod with these requests would exceed what the owner offers a home cluster whose
// other pods request used, nil if it would not.
func Within(home *remotev1alpha1.HomeCluster, used, requests corev1.ResourceList) *Refusal {
	for name, limit := range home.Spec.Offer {
		wanted, ok := requests[name]
		if !ok || wanted.IsZero() {
			continue
		}
		sum := used[name].DeepCopy()
		sum.Add(wanted)
		if sum.Cmp(limit) > 0 {
			before := used[name]
			return &Refusal{ReasonOverOffer, fmt.Sprintf("The owner of this cluster offers home cluster %s %s of %s in all; its pods request %s "+
				"and this one %s more: remove some, or ask for a larger offer.", home.Name, limit.String(), name, before.String(), wanted.String())}
		}
	}
	return nil
}

// Requests returns what a pod counts for in an offer. For a missing request the limit counts, since
// the API server makes the limit the request.
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
	AddRequests(requests, OnePod())
	return requests
}

// counted returns the requests of containers in the form in which they count.
func counted(containers []corev1.Container) []corev1.Container {
	all := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		all = append(all, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: defaulted(c.Resources)},
		})
	}
	return all
}

// defaulted returns requests, with limits for those that are missing.
func defaulted(resources corev1.ResourceRequirements) corev1.ResourceList {
	requests := maps.Clone(resources.Limits)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	maps.Copy(requests, resources.Requests)
	return requests
}

// AddRequests adds requests to a sum.
func AddRequests(sum, requests corev1.ResourceList) {
	for name, quantity := range requests {
		s := sum[name].DeepCopy()
		s.Add(quantity)
		sum[name] = s
	}
}

// OnePod is what each pod counts for in addition to its requests.
func OnePod() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
}
