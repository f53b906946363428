package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

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
		"nothing":                         {want: "0"},
		"a request":                       {spec: corev1.PodSpec{Containers: containers{asking(cpu("1"), cpu("8"))}}, want: "1"},
		"a limit without a request":       {spec: corev1.PodSpec{Containers: containers{asking(nil, cpu("8"))}}, want: "8"},
		"a request of none at all":        {spec: corev1.PodSpec{Containers: containers{asking(cpu("0"), cpu("8"))}}, want: "0"},
		"containers add up":               {spec: corev1.PodSpec{Containers: containers{asking(nil, cpu("2")), asking(cpu("1"), nil)}}, want: "3"},
		"an init container's limit":       {spec: corev1.PodSpec{InitContainers: containers{asking(nil, cpu("5"))}, Containers: containers{asking(cpu("1"), nil)}}, want: "5"},
		"a sidecar's limit":               {spec: corev1.PodSpec{InitContainers: containers{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Limits: cpu("5")}}}, Containers: containers{asking(cpu("1"), nil)}}, want: "6"},
		"overhead":                        {spec: corev1.PodSpec{Overhead: cpu("2"), Containers: containers{asking(cpu("1"), nil)}}, want: "3"},
		"the pod's own request":           {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: cpu("4"), Limits: cpu("9")}, Containers: containers{asking(cpu("1"), nil)}}, want: "4"},
		"the pod's own limit":             {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: cpu("9")}, Containers: containers{asking(nil, nil)}}, want: "9"},
		"the pod's own limit, and a part": {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: cpu("9")}, Containers: containers{asking(cpu("1"), nil)}}, want: "1"},
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
