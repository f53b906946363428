package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestWithin(t *testing.T) {
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	for name, test := range map[string]struct {
		offer, used, requests corev1.ResourceList
		refused               bool
	}{
		"no offer named":              {used: cpu("100"), requests: cpu("100")},
		"up to the offer":             {offer: cpu("4"), used: cpu("3"), requests: cpu("1")},
		"beyond the offer":            {offer: cpu("4"), used: cpu("3"), requests: cpu("1001m"), refused: true},
		"nothing is offered":          {offer: cpu("0"), requests: cpu("1m"), refused: true},
		"a pod that requests nothing": {offer: cpu("0"), used: cpu("3")},
		"another resource than named": {offer: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}, requests: cpu("9")},
		"more pods than are offered": {offer: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}, requests: OnePod(),
			refused: true},
		"beyond already, nothing more": {offer: cpu("1"), used: cpu("3"), requests: OnePod()},
	} {
		t.Run(name, func(t *testing.T) {
			h := home.DeepCopy()
			h.Spec.Offer = test.offer
			assert.Equal(t, test.refused, Within(h, test.used, test.requests) != nil)
		})
	}
}

func TestRequests(t *testing.T) {
	cpu := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	asking := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	type containers = []corev1.Container
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing":                   {want: "0"},
		"a request":                 {spec: corev1.PodSpec{Containers: containers{asking(cpu("1"), cpu("8"))}}, want: "1"},
		"a limit without a request": {spec: corev1.PodSpec{Containers: containers{asking(nil, cpu("8"))}}, want: "8"},
		"a request of none at all":  {spec: corev1.PodSpec{Containers: containers{asking(cpu("0"), cpu("8"))}}, want: "0"},
		"containers add up": {spec: corev1.PodSpec{Containers: containers{asking(nil, cpu("2")), asking(cpu("1"), nil)}},
			want: "3"},
		"an init container's limit": {spec: corev1.PodSpec{InitContainers: containers{asking(nil, cpu("5"))},
			Containers: containers{asking(cpu("1"), nil)}}, want: "5"},
		"a sidecar's limit": {
			spec: corev1.PodSpec{InitContainers: containers{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
				Resources: corev1.ResourceRequirements{Limits: cpu("5")}}}, Containers: containers{asking(cpu("1"), nil)}}, want: "6",
		},
		"overhead": {spec: corev1.PodSpec{Overhead: cpu("2"), Containers: containers{asking(cpu("1"), nil)}}, want: "3"},
		"the pod's own request": {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: cpu("4"), Limits: cpu("9")},
			Containers: containers{asking(cpu("1"), nil)}}, want: "4"},
		"the pod's own limit": {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: cpu("9")},
			Containers: containers{asking(nil, nil)}}, want: "9"},
		"the pod's own limit, and a part": {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: cpu("9")},
			Containers: containers{asking(cpu("1"), nil)}}, want: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			before := *test.spec.DeepCopy()
			requests := Requests(test.spec)
			got := requests[corev1.ResourceCPU]
			assert.Equal(t, test.want, got.String())
			pods := requests[corev1.ResourcePods]
			assert.Equal(t, int64(1), pods.Value())
			assert.Equal(t, before, test.spec, "what is counted is not changed")
		})
	}
}
