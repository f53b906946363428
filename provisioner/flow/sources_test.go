package flow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

func TestUsedByAPodThatMayHaveACopy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a pod that may have a copy":               {want: true},
		"… even before it names one":               {change: func(p *corev1.Pod) { p.Annotations = nil }, want: true},
		"… and while it goes":                      {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, want: true},
		"a pod whose copy is proven gone":          {change: func(p *corev1.Pod) { p.Finalizers = []string{"x"} }},
		"a pod of another cluster":                 {change: func(p *corev1.Pod) { p.Spec.NodeName = "east" }},
		"a pod that was not scheduled":             {change: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"a pod of another namespace of the home's": {change: func(p *corev1.Pod) { p.Namespace = "bank" }},
	} {
		t.Run(name, func(t *testing.T) {
			sources, err := NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
			require.NoError(t, err)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Finalizers: []string{keys.RemotePodFinalizer}, Annotations: map[string]string{keys.RemoteCopy: "c/s", "other": "x"}},
				Spec:       corev1.PodSpec{NodeName: "west"},
			}
			if test.change != nil {
				test.change(pod)
			}
			require.NoError(t, sources.Pods.GetStore().Add(slim.NewPod(pod)))
			assert.Equal(t, test.want, sources.Used("west", "shop-h1", "shop"))
		})
	}
}
