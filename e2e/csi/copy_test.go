package csi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// copyRoute is a way to a copy whose volume the driver can make at the first try: it
// copies only on the node of the source, which kube-scheduler does not know.
type copyRoute struct {
	route
	real   string // the real class
	reader func(source chain) func(*corev1.Pod) *corev1.Pod
}

var copyRoutes = []copyRoute{
	{routes[0], waiting, func(source chain) func(*corev1.Pod) *corev1.Pod {
		return func(pod *corev1.Pod) *corev1.Pod { return fabric.OnNode(pod, source.volume.Node) }
	}},
	// The pod goes where the data is by itself.
	{routes[1], atOnce, func(chain) func(*corev1.Pod) *corev1.Pod { return anywhere }},
}

// source makes claim "data", of a class of the namespace's name, with something in
// its volume.
func (r copyRoute) source(t *testing.T, namespace string) chain {
	t.Helper()
	classFor(t, namespace, r.real)
	create(t, namespace, r.place, of(namespace))
	c := served(t, namespace, r.driver())
	write(t, r.driver(), c.volume.ID)
	return c
}

// anywhere lets a pod run on all nodes.
func anywhere(pod *corev1.Pod) *corev1.Pod { return pod }

// copyOf makes a claim "copy" of claim "data", with a pod "reader".
func copyOf(t *testing.T, namespace string, place func(*corev1.Pod) *corev1.Pod, change ...func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claim := fabric.NewClaim(namespace, "copy", virtual)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	for _, c := range change {
		c(claim)
	}
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	createPod(t, place(fabric.NewPod(namespace, "reader", "copy")))
}

// TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims has external-provisioner
// clone twins and shadows.
func TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims(t *testing.T) {
	t.Parallel()
	for _, r := range copyRoutes {
		for name, size := range map[string]string{"as large as its source": "1Gi", "larger than its source": "2Gi"} {
			t.Run(name+", "+r.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				source := r.source(t, namespace)
				copyOf(t, namespace, r.reader(source), of(namespace), sized(size))
				runs(t, namespace, "reader")
				c := behind(t, namespace, "copy", r.driver())
				assert.Equal(t, source.volume.ID, c.volume.Source, "what the driver has copied")
				assert.Equal(t, source.volume.Node, c.volume.Node)
				want := resource.MustParse(size)
				assert.Equal(t, want.Value(), c.volume.Bytes)
				assert.Equal(t, want.Value(), c.virtual.Spec.Capacity.Storage().Value())
				assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			})
		}
	}
}

// TestACopyIsMadeOfASourceThatHasGrown: external-provisioner compares with what the
// source's claim asks for.
func TestACopyIsMadeOfASourceThatHasGrown(t *testing.T) {
	t.Parallel()
	for _, r := range copyRoutes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			source := r.source(t, namespace)
			ask(t, bed.Home, namespace, "data", "2Gi")
			source.requireGrown(t, r.driver(), 2)
			small := fabric.NewClaim(namespace, "small", namespace)
			small.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
			_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), small, metav1.CreateOptions{})
			require.NoError(t, err)
			createPod(t, fabric.NewPod(namespace, "small", "small"))
			copyOf(t, namespace, r.reader(source), of(namespace), sized("2Gi"))
			runs(t, namespace, "reader")
			c := behind(t, namespace, "copy", r.driver())
			assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			assert.Equal(t, int64(2*gibibyte), c.volume.Bytes)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "small", "InvalidClaim"), "less than the 2Gi")
		})
	}
}
