package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestHomeLetsItsClaimsGoFromANamespaceThatIsBeingDeleted has an administrator
// delete a namespace whose claim home still protects: home keeps its rights until
// it lets the claim go, and then nothing holds the namespace.
func TestHomeLetsItsClaimsGoFromANamespaceThatIsBeingDeleted(t *testing.T) {
	x := newTenant(t, nil)
	name := x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(name)
	claim := x.newClaim(name, "data")
	claim.Finalizers = []string{keys.BackingFinalizer}
	made, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	uid := namespaceOf(t, name).UID

	require.NoError(t, bed.West.Client().CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, "the claim is being deleted", func() error {
		now, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && now.DeletionTimestamp == nil {
			err = fmt.Errorf("claim %s is not", now.Name)
		}
		return err
	})
	eventually(t, "so are home's rights, which still hold", func() error {
		binding, err := bed.West.Client().RbacV1().RoleBindings(name).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
		if err == nil && binding.DeletionTimestamp == nil {
			err = fmt.Errorf("role binding %s is not being deleted", binding.Name)
		}
		return err
	})
	kept, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, made.UID, kept.UID)

	_, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the namespace is gone, and made again for the request", func() error {
		if now := namespaceOf(t, name); now == nil || now.UID == uid {
			return fmt.Errorf("namespace %+v", now)
		}
		return nil
	})
	x.given(name)
}
