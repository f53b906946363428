package confinement

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// TestAPolicyThatIsNotEnforcedIsNoConfinement: the objects are right, but the API server lets pass
// what they forbid, as one whose admission plugin is off does.
func TestAPolicyThatIsNotEnforcedIsNoConfinement(t *testing.T) {
	client := fake.NewClientset()
	c, err := New(client, &rest.Config{})
	require.NoError(t, err)
	tries := 0
	var answer error
	c.try = func(context.Context) error { tries++; return answer }
	missing, err := c.Refusal(t.Context())
	require.NoError(t, err)
	assert.Contains(t, missing.Message, "is missing")
	assert.Zero(t, tries)
	binding, made := c.want.Binding.DeepCopy(), c.want.Policy.DeepCopy()
	made.ResourceVersion = "1"
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)

	lax, err := c.Refusal(t.Context())
	require.NoError(t, err)
	require.NotNil(t, lax)
	assert.Equal(t, policy.ReasonNotConfined, lax.Reason)
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, policy.Marker,
		errors.New("ValidatingAdmissionPolicy 'lodestone-home' with binding 'lodestone-home' denied request: no"))
	confined, err := c.Refusal(t.Context())
	require.NoError(t, err)
	assert.Nil(t, confined)

	// It is not tried again for each namespace, but it is when somebody changed it.
	tries = 0
	confined, err = c.Refusal(t.Context())
	require.NoError(t, err)
	assert.Nil(t, confined)
	assert.Zero(t, tries)
	made.ResourceVersion = "2"
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	answer = nil
	lax, err = c.Refusal(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, lax)
}
