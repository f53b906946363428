package clusters

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestReadinessOfRemoteClustersIsExposed(t *testing.T) {
	objects := cache.NewSharedIndexInformer(nil, &v1alpha1.RemoteCluster{}, 0, nil)
	for name, status := range map[string]metav1.ConditionStatus{"west": metav1.ConditionTrue, "east": metav1.ConditionFalse, "new": ""} {
		remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			remote.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: status}}
		}
		require.NoError(t, objects.GetStore().Add(remote))
	}
	require.NoError(t, testutil.CollectAndCompare(New(Config{Objects: objects}), strings.NewReader(`
# HELP lodestone_provisioner_remote_cluster_ready 1 if a RemoteCluster is Ready, 0 if not.
# TYPE lodestone_provisioner_remote_cluster_ready gauge
lodestone_provisioner_remote_cluster_ready{cluster="east"} 0
lodestone_provisioner_remote_cluster_ready{cluster="new"} 0
lodestone_provisioner_remote_cluster_ready{cluster="west"} 1
`)))
}
