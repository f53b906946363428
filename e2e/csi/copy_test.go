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

// TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims has external-provisioner
// clone twins and shadows. The pods of the copies may go anywhere: the data says
// where.
func TestTheRealProvisionerCopiesTheVolumesOfVirtualClaims(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		for name, size := range map[string]string{"as large as its source": "1Gi", "larger than its source": "2Gi"} {
			t.Run(name+", "+r.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				create(t, namespace, r.place)
				source := served(t, namespace, r.driver())
				write(t, r.driver(), source.volume.ID)

				copyOf(t, namespace, anywhere, sized(size))
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
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			create(t, namespace, r.place)
			source := served(t, namespace, r.driver())
			write(t, r.driver(), source.volume.ID)
			ask(t, bed.Home, namespace, "data", "2Gi")
			source.requireGrown(t, r.driver(), 2)
			small := fabric.NewClaim(namespace, "small", virtual)
			small.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
			_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), small, metav1.CreateOptions{})
			require.NoError(t, err)
			createPod(t, fabric.NewPod(namespace, "small", "small"))
			copyOf(t, namespace, anywhere, sized("2Gi"))
			runs(t, namespace, "reader")
			c := behind(t, namespace, "copy", r.driver())
			assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
			assert.Equal(t, int64(2*gibibyte), c.volume.Bytes)
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "small", "InvalidClaim"), "less than the 2Gi")
		})
	}
}
