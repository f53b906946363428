package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestARequestElsewhereIsRefused(t *testing.T) {
	elsewhere := testbed.Namespace(t, bed.West)
	_, err := bed.Agents.NamespaceRequests(elsewhere).Create(t.Context(), &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "wanted-" + elsewhere}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "x"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "it is told so", func() error {
		request, err := bed.Agents.NamespaceRequests(elsewhere).Get(t.Context(), "wanted-"+elsewhere, metav1.GetOptions{})
		if err == nil && (len(request.Status.Conditions) == 0 || request.Status.Conditions[0].Reason != "NotAllowed") {
			err = fmt.Errorf("conditions %+v", request.Status.Conditions)
		}
		return err
	})
	assert.Nil(t, namespaceOf(t, "wanted-"+elsewhere))

	// Nor does it speak for a home cluster whose ID is the name of its namespace.
	x := newTenant(t, nil)
	given := x.namespace()
	require.NoError(t, bed.West.MakeNamespace(t.Context(), x.id))
	forged := &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: given, Finalizers: []string{keys.NamespaceFinalizer}},
		Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: given},
	}
	before, err := bed.West.Client().RbacV1().RoleBindings(given).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = bed.Agents.NamespaceRequests(x.id).Create(t.Context(), forged, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, bed.Agents.NamespaceRequests(x.id).Delete(t.Context(), given, metav1.DeleteOptions{}))
	await.Never(t, "rights or namespace are taken away", func() bool {
		now, err := bed.West.Client().RbacV1().RoleBindings(given).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
		return err != nil || now.UID != before.UID || namespaceOf(t, given).DeletionTimestamp != nil
	})
	_, err = bed.West.Kubectl(t.Context(), "", "patch", "namespacerequests.remote.lodestone.dev", "-n", x.id, given, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
}
