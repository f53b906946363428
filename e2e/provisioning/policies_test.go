package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// refuse makes a cluster refuse to create some objects, chosen by a condition in
// CEL, until the returned function is called or the test ends. probe says whether
// it is in force yet.
func refuse(t *testing.T, cluster *testbed.Cluster, name, resourceName, condition string, probe func(context.Context) error) (undo func()) {
	t.Helper()
	api := cluster.Client().AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resourceName}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "chosen", Expression: condition}},
			Validations:     []admissionv1.Validation{{Expression: "false", Message: "the owner of this cluster says no"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	undo = func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	t.Cleanup(undo)
	eventually(t, func() bool { return probe(t.Context()) != nil }, func() string { return "the policy is not in force" })
	return undo
}

// refuseClaims makes west refuse all claims in a namespace.
func refuseClaims(t *testing.T, namespace string) {
	t.Helper()
	refuse(t, bed.West, namespace, "persistentvolumeclaims", "object.metadata.namespace == '"+namespace+"'", func(ctx context.Context) error {
		_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Create(ctx, fabric.NewClaim(namespace, "probe", fabric.WestNow), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// limitClaims makes west allow only so many claims in a namespace.
func limitClaims(t *testing.T, namespace, most string) {
	t.Helper()
	quotas := bed.West.Client().CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(most)}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool {
		quota, err := quotas.Get(t.Context(), "claims", metav1.GetOptions{})
		require.NoError(t, err)
		return len(quota.Status.Used) > 0
	}, func() string { return "the quota is not in force" })
}

func offload(t *testing.T, namespace string) {
	t.Helper()
	_, err := bed.Home.Kubectl(t.Context(), "", "label", "namespace", namespace, "lodestone.dev/offload=enabled")
	require.NoError(t, err)
}
