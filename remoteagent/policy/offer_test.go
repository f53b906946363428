package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWithin(t *testing.T) {
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	for name, test := range map[string]struct {
		offer, used, requests corev1.ResourceList
		refused               bool
	}{
		"no offer named":               {used: cpu("100"), requests: cpu("100")},
		"up to the offer":              {offer: cpu("4"), used: cpu("3"), requests: cpu("1")},
		"beyond the offer":             {offer: cpu("4"), used: cpu("3"), requests: cpu("1001m"), refused: true},
		"nothing is offered":           {offer: cpu("0"), requests: cpu("1m"), refused: true},
		"a pod that requests nothing":  {offer: cpu("0"), used: cpu("3")},
		"another resource than named":  {offer: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}, requests: cpu("9")},
		"more pods than are offered":   {offer: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}, requests: One(), refused: true},
		"beyond already, nothing more": {offer: cpu("1"), used: cpu("3"), requests: One()},
	} {
		t.Run(name, func(t *testing.T) {
			h := home.DeepCopy()
			h.Spec.Offer = test.offer
			assert.Equal(t, test.refused, Within(h, test.used, test.requests) != nil)
		})
	}
}
