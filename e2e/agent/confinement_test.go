package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/deploy/remote/home"
	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestNoRightsAreGivenWhereHomesAreNotConfined: without the policy that the agent was built with, or
// without its binding, a new home cluster gets no rights and one that is served no namespace more.
// What was given before stays, so that volumes there can still be deleted.
func TestNoRightsAreGivenWhereHomesAreNotConfined(t *testing.T) {
	x := newTenant(t, nil)
	before := x.namespace()
	admission := bed.West.Client().AdmissionregistrationV1()
	t.Cleanup(func() { confine(t) })

	must.Delete(t, admission.ValidatingAdmissionPolicyBindings(), "lodestone-home")
	late := "ns-" + rand.String(6)
	x.request(late)
	assert.Contains(t, x.told(late, "NotConfined"), "ValidatingAdmissionPolicyBinding lodestone-home is missing")
	unbound(t, late)
	assert.Equal(t, metav1.ConditionTrue, x.condition(before).Status)
	bound(t, before)
	// What starts a look at the home cluster, whose rights stay.
	must.Kubectl(t, bed.West, "", "annotate", "namespace", x.tenantNamespace(), "a=b")
	eventually(t, "the owner is told", func() error {
		home, err := bed.Agents.HomeClusters().Get(t.Context(), x.id, get)
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionFalse(home.Status.Conditions, remotev1alpha1.Confined) ||
			!meta.IsStatusConditionTrue(home.Status.Conditions, remotev1alpha1.Ready) {
			return fmt.Errorf("conditions %+v", home.Status.Conditions)
		}
		return nil
	})
	confine(t)
	x.given(late)
	bound(t, late)

	policies, bindings := admission.ValidatingAdmissionPolicies(), admission.ValidatingAdmissionPolicyBindings()
	ofPolicy := func(change func(*admissionv1.ValidatingAdmissionPolicy)) func() error {
		return func() error {
			policy := must.Get(t, policies, "lodestone-home")
			change(policy)
			return second(policies.Update(t.Context(), policy, metav1.UpdateOptions{}))
		}
	}
	ofBinding := func(change func(*admissionv1.ValidatingAdmissionPolicyBinding)) func() error {
		return func() error {
			binding := must.Get(t, bindings, "lodestone-home")
			change(binding)
			return second(bindings.Update(t.Context(), binding, metav1.UpdateOptions{}))
		}
	}
	for what, change := range map[string]func() error{
		"the policy lacks a rule": ofPolicy(func(policy *admissionv1.ValidatingAdmissionPolicy) {
			policy.Spec.Validations = policy.Spec.Validations[1:]
		}),
		"the policy is about others": ofPolicy(func(policy *admissionv1.ValidatingAdmissionPolicy) {
			policy.Spec.MatchConditions[0].Expression = "request.userInfo.username == 'system:serviceaccount:lodestone-remote:lodestone-marker'"
		}),
		"the binding only warns": ofBinding(func(binding *admissionv1.ValidatingAdmissionPolicyBinding) {
			binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}),
		"the binding leaves namespaces out": ofBinding(func(binding *admissionv1.ValidatingAdmissionPolicyBinding) {
			binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": "lodestone-remote"}}}
		}),
		"the binding is that of another policy": ofBinding(func(binding *admissionv1.ValidatingAdmissionPolicyBinding) {
			binding.Spec.PolicyName = "another"
		}),
	} {
		require.NoError(t, change(), what)
		id := "h" + rand.String(6)
		must.Create(t, bed.Agents.HomeClusters(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}})
		eventually(t, "the new home cluster is told, when "+what, func() error {
			home, err := bed.Agents.HomeClusters().Get(t.Context(), id, get)
			if err != nil {
				return err
			}
			ready := meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Ready)
			if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "NotConfined" {
				return fmt.Errorf("condition %+v", ready)
			}
			return nil
		})
		mine := metav1.ListOptions{LabelSelector: keys.HomeID + "=" + id}
		roles := must.List(t, bed.West.Client().RbacV1().RoleBindings(metav1.NamespaceAll), mine)
		wide := must.List(t, bed.West.Client().RbacV1().ClusterRoleBindings(), mine)
		assert.Empty(t, roles.Items, what)
		assert.Empty(t, wide.Items, what)
		// What somebody added to the binding would outlive that it is applied.
		must.Delete(t, bindings, "lodestone-home")
		confine(t)
		require.NoError(t, bed.AwaitTenant(t.Context(), id))
	}
}

// TestNoRightsAreGivenWhereThePolicyCannotBeTried takes the rights of the marker away, so that what refuses its dry run is not the
// policy: it may be in the cluster as it should be, and yet not be in force.
func TestNoRightsAreGivenWhereThePolicyCannotBeTried(t *testing.T) {
	testbed.Require(t)
	bindings := bed.West.Client().RbacV1().RoleBindings("lodestone-remote")
	marker := must.Get(t, bindings, "lodestone-marker")
	marker.ResourceVersion, marker.UID = "", ""
	putBack := func() {
		_, err := bindings.Create(context.WithoutCancel(t.Context()), marker, create)
		assert.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	}
	t.Cleanup(putBack)
	must.Delete(t, bindings, marker.Name)
	await.Until(t, "the marker has no rights", func() bool {
		said, err := bed.West.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:lodestone-remote:lodestone-marker",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "lodestone-remote", Verb: "create",
					Resource: "configmaps"},
			}}, create)
		return err == nil && !said.Status.Allowed
	})
	// A policy that was tried is not tried again before it changes.
	must.Kubectl(t, bed.West, "", "annotate", "validatingadmissionpolicy", "lodestone-home", "--overwrite", "note="+rand.String(6))

	id := "h" + rand.String(6)
	must.Create(t, bed.Agents.HomeClusters(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}})
	x := tenant{t: t, id: id}
	assert.Contains(t, x.homeCondition(remotev1alpha1.Ready, metav1.ConditionFalse, "NotConfined"), "lodestone-marker")
	_, err := bed.West.Client().RbacV1().RoleBindings(x.tenantNamespace()).Get(t.Context(), "lodestone-home-tenant", get)
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	putBack()
	require.NoError(t, bed.AwaitTenant(t.Context(), id))
}

// confine puts the policy and its binding back.
func confine(t *testing.T) {
	t.Helper()
	_, err := bed.West.Kubectl(context.WithoutCancel(t.Context()), string(home.Admission), "apply", "--server-side", "--force-conflicts",
		"-f", "-")
	require.NoError(t, err)
}

func bound(t *testing.T, namespace string) {
	t.Helper()
	_, err := bed.West.Client().RbacV1().RoleBindings(namespace).Get(t.Context(), "lodestone-home", get)
	assert.NoError(t, err)
}

func unbound(t *testing.T, namespace string) {
	t.Helper()
	_, err := bed.West.Client().RbacV1().RoleBindings(namespace).Get(t.Context(), "lodestone-home", get)
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}
