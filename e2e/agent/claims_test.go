package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the owner laid down lets home copy its claims and change what claims carry.
func TestAHomeClusterCopiesItsClaimsAndBringsThemInStep(t *testing.T) {
	x := newTenant(t, nil)
	own := x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(own)
	eventually(t, "home has its rights", func() error { return second(claims.List(t.Context(), list)) })
	handleOf := func(name string) (handle string) {
		eventually(t, name+" is bound", func() error {
			claim, err := claims.Get(t.Context(), name, get)
			if err != nil || claim.Status.Phase != corev1.ClaimBound {
				return assert.AnError
			}
			volume, err := x.client.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, get)
			if err == nil {
				handle = volume.Spec.CSI.VolumeHandle
			}
			return err
		})
		return handle
	}
	_, err := claims.Create(t.Context(), x.newClaim(own, "data"), create)
	require.NoError(t, err)
	source := handleOf("data")
	copied := x.newClaim(own, "copy")
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	_, err = claims.Create(t.Context(), copied, create)
	require.NoError(t, err)
	handle := handleOf("copy")
	for _, volume := range bed.WestStorage.VolumesOf(own) {
		if volume.Handle == handle {
			assert.Equal(t, source, volume.Source)
		}
	}

	patch := func(change string, subresources ...string) error {
		return second(claims.Patch(t.Context(), "copy", types.MergePatchType, []byte(change), metav1.PatchOptions{}, subresources...))
	}
	assert.NoError(t, patch(`{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b"}}}`))
	assert.NoError(t, patch(`{"spec":{"volumeAttributesClassName":"gold"}}`))
	classes := x.client.StorageV1().VolumeAttributesClasses()
	assert.True(t, apierrors.IsNotFound(second(classes.Get(t.Context(), "absent", get))), "home may ask whether a class exists")
	forbidden(t, map[string]error{
		"list attributes classes":      second(classes.List(t.Context(), list)),
		"write the status of a claim":  patch(`{"status":{"phase":"Lost"}}`, "status"),
		"delete an attributes class":   classes.Delete(t.Context(), "absent", remove),
		"change the volume of a claim": second(x.client.CoreV1().PersistentVolumes().Patch(t.Context(), "any", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})),
	})
}
