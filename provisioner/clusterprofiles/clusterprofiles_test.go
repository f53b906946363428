package clusterprofiles

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestAClusterProfileTellsWhatItsRemoteClusterTells(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "u1"}}
	assert.Empty(t, status(remote)["conditions"], "nothing is known yet")
	remote.Status = v1alpha1.RemoteClusterStatus{
		KubernetesVersion: "v1.36.3", ClusterUID: "c1",
		Conditions: []metav1.Condition{
			{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Unreachable", Message: "it does not answer", LastTransitionTime: since},
			{Type: v1alpha1.Reachable, Status: metav1.ConditionFalse, Reason: "NoAnswer", Message: "no answer", LastTransitionTime: since},
			{Type: v1alpha1.Authorized, Status: metav1.ConditionTrue, LastTransitionTime: since},
		},
	}
	assert.Equal(t, map[string]any{
		"conditions": []any{
			map[string]any{"type": "ControlPlaneHealthy", "status": "False", "reason": "NoAnswer", "message": "no answer",
				"lastTransitionTime": "2026-01-02T03:04:05Z"},
			map[string]any{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "it does not answer",
				"lastTransitionTime": "2026-01-02T03:04:05Z"},
		},
		"version":    map[string]any{"kubernetes": "v1.36.3"},
		"properties": []any{map[string]any{"name": "lodestone.dev/cluster-uid", "value": "c1"}},
	}, status(remote))
	assert.Equal(t, "u1", string(Profile(remote).GetOwnerReferences()[0].UID), "it goes with its RemoteCluster")
}
