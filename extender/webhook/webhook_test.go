package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/deploy"
)

const sound = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p}
`

func TestAPolicyThatAWebhookCannotFollowIsRefused(t *testing.T) {
	replace := func(old, with string) string {
		changed := bytes.Replace([]byte(sound), []byte(old), []byte(with), 1)
		require.NotEqual(t, sound, string(changed), old)
		return string(changed)
	}
	for name, row := range map[string]struct{ content, want string }{
		"a sound one":       {content: sound},
		"without a binding": {replace("policyName: p}", "policyName: q}"), "it has no binding"},
		"its binding selects": {replace("{policyName: p}", "{policyName: p, matchResources: {namespaceSelector: {}}}"),
			"its binding selects resources"},
		"for all resources": {replace("    resourceRules:", "    excludeResourceRules:"), "it is for all resources"},
		"for names":         {replace("resources: [pods]", "resources: [pods], resourceNames: [a]"), "names of resources"},
		"parameters of others": {replace("  matchConstraints:", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints:"),
			"its parameters"},
		"a field nobody knows": {replace("  failurePolicy:", "  failurepolicies: a\n  failurePolicy:"), "failurepolicies"},
		"parameters by no name": {replace("  matchConstraints:",
			"  paramKind: {apiVersion: v1, kind: PersistentVolumeClaim}\n  matchConstraints:"), "its parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			read, err := Read(fstest.MapFS{"a/b.yaml": {Data: []byte(row.content)}, "a/c.txt": {Data: []byte("kind: [")}})
			if row.want == "" {
				require.NoError(t, err)
				assert.Len(t, read, 1)
				return
			}
			assert.ErrorContains(t, err, row.want)
		})
	}
}

func TestOnlyNamespacesWithAMoveAreCalledForByWhatFailsClosed(t *testing.T) {
	read, err := Read(deploy.Files)
	require.NoError(t, err)
	closed := 0
	for _, policy := range read {
		hook := policy.Configuration().Webhooks[0]
		expressions := hook.NamespaceSelector.MatchExpressions
		if *hook.FailurePolicy == registrationv1.Ignore {
			assert.LessOrEqual(t, *hook.TimeoutSeconds, int32(3), "%s: it delays all such objects where nobody answers", policy.Name)
			continue
		}
		closed++
		assert.Equal(t, "lodestone-move-gate", policy.Name)
		assert.Contains(t, expressions, metav1.LabelSelectorRequirement{Key: "lodestone.dev/moving", Operator: "In", Values: []string{"true"}})
		last := expressions[len(expressions)-1]
		assert.Equal(t, metav1.LabelSelectorOpNotIn, last.Operator)
		assert.Subset(t, last.Values, []string{"kube-system", "lodestone-system", "lodestone-storage", "lodestone-certificates"})
	}
	assert.Equal(t, 1, closed)
}

// request is one to make an object.
func request(t *testing.T, resource, kind string, object any) *admissionv1.AdmissionReview {
	t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	return &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "u", UserInfo: authenticationv1.UserInfo{Username: "jane"},
			Namespace: "shop", Operation: admissionv1.Create,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
			Object: runtime.RawExtension{Raw: raw}}}
}

func pod() *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db"}}, Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
}

// TestEachPolicyIsEvaluated has each policy at work on an object that it is for: one that does not compile fails.
func TestEachPolicyIsEvaluated(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"lodestone.dev/moving": "true"}}}
	agents := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	agents.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	daemonSets := request(t, "daemonsets", "DaemonSet", agents)
	daemonSets.Request.Kind.Group, daemonSets.Request.Resource.Group = "apps", "apps"
	uses := pod()
	uses.Spec.Volumes = append(uses.Spec.Volumes, corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}})
	objects := map[string]*admissionv1.AdmissionReview{"daemonsets": daemonSets, "pods": request(t, "pods", "Pod", uses),
		"persistentvolumeclaims": request(t, "persistentvolumeclaims", "PersistentVolumeClaim", claim)}
	read, err := Read(deploy.Files)
	require.NoError(t, err)
	for _, policy := range read {
		e, err := newEvaluator(policy)
		require.NoError(t, err)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		asked := objects[policy.Spec.MatchConstraints.ResourceRules[0].Resources[0]].Request
		patch, err := e.mutate(t.Context(), asked, namespace, []runtime.Object{claim})
		require.NoError(t, err, policy.Name)
		assert.NotEmpty(t, patch, policy.Name)
	}
}

func TestWhatGoesWrongRefusesOnlyWhereThePolicyFailsClosed(t *testing.T) {
	read, err := Read(deploy.Files)
	require.NoError(t, err)
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })
	handler, err := NewHandler(read, client, informers.NewSharedInformerFactory(client, 0).Core().V1().Namespaces().Lister())
	require.NoError(t, err)
	ask := func(path string, body any) *httptest.ResponseRecorder {
		content, err := json.Marshal(body)
		require.NoError(t, err)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(content)))
		return answer
	}
	for _, policy := range read {
		var review admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(ask("/"+policy.Name, request(t, "pods", "Pod", pod())).Body.Bytes(), &review))
		assert.Equal(t, "u", string(review.Response.UID))
		assert.Equal(t, policy.Name != "lodestone-move-gate", review.Response.Allowed, policy.Name)
		if !review.Response.Allowed {
			assert.Contains(t, review.Response.Result.Message, "policy lodestone-move-gate cannot be followed now: try again")
		}
	}
	assert.Equal(t, http.StatusBadRequest, ask("/lodestone-move-gate", map[string]string{}).Code)
	assert.Equal(t, http.StatusNotFound, ask("/other", map[string]string{}).Code)
}
