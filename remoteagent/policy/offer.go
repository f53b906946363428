package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// ReasonOverOffer is the reason of a pod that would go beyond the offer.
const ReasonOverOffer = "OverOffer"

// Within says why a pod with these requests would go beyond what the owner
// offers a home cluster whose other pods request used, nil if it would not.
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
			return &Refusal{ReasonOverOffer, fmt.Sprintf("The owner of this cluster offers home cluster %s %s of %s in all; its pods request %s and this one %s more: remove some, or ask for a larger offer.",
				home.Name, limit.String(), name, before.String(), wanted.String())}
		}
	}
	return nil
}

// AddRequests adds requests to a sum.
func AddRequests(sum, requests corev1.ResourceList) {
	for name, quantity := range requests {
		s := sum[name].DeepCopy()
		s.Add(quantity)
		sum[name] = s
	}
}

// One is what each pod counts for besides its requests.
func One() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
}
