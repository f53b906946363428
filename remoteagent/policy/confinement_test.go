package policy

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/confinement"
)

func built() confinement.Confinement {
	return confinement.Confinement{
		Policy: &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{}}},
			Validations:      []admissionv1.Validation{{Expression: "false"}, {Expression: "true"}},
		}},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: ConfiningPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
}

func TestOnlyThePolicyThatTheAgentWasBuiltWithConfines(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*confinement.Confinement)
		says   string
	}{
		"the same": {change: func(*confinement.Confinement) {}},
		"the same with the API server's defaults": {change: func(c *confinement.Confinement) {
			c.Policy.ResourceVersion, c.Policy.Labels = "7", map[string]string{"owner": "me"}
			c.Policy.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
			match := c.Policy.Spec.MatchConstraints
			match.MatchPolicy, match.NamespaceSelector, match.ObjectSelector = ptr.To(admissionv1.Equivalent), &metav1.LabelSelector{},
				&metav1.LabelSelector{}
			match.ResourceRules[0].Scope = ptr.To(admissionv1.AllScopes)
		}},
		"no policy":  {func(c *confinement.Confinement) { c.Policy = nil }, "ValidatingAdmissionPolicy lodestone-home is missing"},
		"no binding": {func(c *confinement.Confinement) { c.Binding = nil }, "ValidatingAdmissionPolicyBinding lodestone-home is missing"},
		"a rule less": {func(c *confinement.Confinement) { c.Policy.Spec.Validations = c.Policy.Spec.Validations[1:] },
			"ValidatingAdmissionPolicy lodestone-home is another"},
		"it lets go": {func(c *confinement.Confinement) { c.Policy.Spec.FailurePolicy = ptr.To(admissionv1.Ignore) }, "is another"},
		"fewer objects": {func(c *confinement.Confinement) {
			c.Policy.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "is another"},
		"it only warns": {func(c *confinement.Confinement) { c.Binding.Spec.ValidationActions[0] = admissionv1.Warn },
			"ValidatingAdmissionPolicyBinding lodestone-home is another"},
	} {
		t.Run(what, func(t *testing.T) {
			have := built()
			test.change(&have)
			refusal := Check(built(), have)
			if test.says == "" {
				assert.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Equal(t, ReasonNotConfined, refusal.Reason)
			assert.Contains(t, refusal.Message, test.says)
			assert.Contains(t, refusal.Message, "Apply deploy/remote")
		})
	}
}

func TestOnlyARefusalByThePolicyProvesThatItIsInForce(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, Marker, errors.New(why))
	}
	assert.Nil(t, Tried(forbidden("ValidatingAdmissionPolicy 'lodestone-home' with binding 'lodestone-home' denied request: no")))
	for says, answer := range map[string]error{
		"does not enforce":           nil,
		"cannot be tried":            errors.New("no connection"),
		"refused by something else":  forbidden("User cannot create resource"),
		"refused by something else:": forbidden("ValidatingAdmissionPolicy 'other' with binding 'other' denied request: no"),
	} {
		refusal := Tried(answer)
		require.NotNil(t, refusal, says)
		assert.Contains(t, refusal.Message, says)
	}
}
