package provisioning

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
)

// A data source that Kubernetes drops when the claim is created is known to nobody
// after: the volume is empty, and above all nothing of another namespace is in it.
func TestADataSourceThatKubernetesDropsGivesAnEmptyVolume(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *corev1.PersistentVolumeClaim, elsewhere string){
		"a claim of another namespace": func(c *corev1.PersistentVolumeClaim, elsewhere string) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data", Namespace: &elsewhere}
		},
		"a volume": func(c *corev1.PersistentVolumeClaim, _ string) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolume", Name: "pvc-1"}
		},
	} {
		for _, route := range routes {
			t.Run(name+", "+route.name, func(t *testing.T) {
				t.Parallel()
				elsewhere, namespace := space(t), space(t)
				claimAndPod(t, elsewhere, fabric.Class, route.place)
				claim := fabric.NewClaim(namespace, "copy", fabric.Class)
				change(claim, elsewhere)
				made := createClaim(t, claim)
				require.Nil(t, made.Spec.DataSource, "Kubernetes must drop what this test is about")
				require.Nil(t, made.Spec.DataSourceRef, "Kubernetes must drop what this test is about")
				createPod(t, route.place(fabric.NewPod(namespace, "db", "copy")))
				runs(t, namespace, "db")
				volumes := slices.DeleteFunc(route.storage().Volumes(), func(v instant.Volume) bool {
					return v.Claim != twinOf(made) && v.Namespace != namespace
				})
				require.Len(t, volumes, 1)
				assert.Empty(t, volumes[0].Source)
			})
		}
	}
}
