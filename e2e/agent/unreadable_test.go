package agent

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// shadowOf makes a ShadowPod with home's rights and with anything as its template.
func (x tenant) shadowOf(namespace, name string, template any) {
	x.t.Helper()
	text, err := json.Marshal(x.newShadow(namespace, name))
	require.NoError(x.t, err)
	var object map[string]any
	require.NoError(x.t, json.Unmarshal(text, &object))
	object["apiVersion"], object["kind"] = remotev1alpha1.GroupVersion.String(), "ShadowPod"
	object["spec"].(map[string]any)["pod"] = template
	text, err = json.Marshal(object)
	require.NoError(x.t, err)
	eventually(x.t, "home may make ShadowPods", func() error {
		return x.client.CoreV1().RESTClient().Post().
			AbsPath("/apis", remotev1alpha1.GroupVersion.Group, remotev1alpha1.GroupVersion.Version, "namespaces", namespace, "shadowpods").
			SetHeader("Content-Type", "application/json").Body(text).Do(x.t.Context()).Error()
	})
}

func TestATemplateThatIsNoneHindersNobody(t *testing.T) {
	hostile, other := newTenant(t, nil), newTenant(t, nil)
	bad := hostile.namespace()
	hostile.shadowOf(bad, "text", "x")
	hostile.shadowOf(bad, "quantity", map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "app", "image": "app:1", "resources": map[string]any{"requests": map[string]any{"cpu": "abc"}}},
	}}})
	hostile.pending(bad, "text", policy.ReasonUnreadable, "not the template of a pod")
	hostile.pending(bad, "quantity", policy.ReasonUnreadable, "not the template of a pod")

	// An agent that starts now lists them.
	t.Run("without an agent", withoutAgent)
	good := other.namespace()
	other.shadow(good, "web", nil)
	other.runs(good, "web")

	// And they keep no HomeCluster.
	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), hostile.id, metav1.DeleteOptions{}))
	eventually(t, "the HomeCluster is gone", func() error {
		if err := second(bed.Agents.HomeClusters().Get(t.Context(), hostile.id, get)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	})
}
