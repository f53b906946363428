package route_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

func TestANodeOutsideTheTopologiesOfTheRealClassIsRefusedAlone(t *testing.T) {
	zonal := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "zonal"}, Provisioner: "disk.example.com", VolumeBindingMode: ptr.To(wait),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}},
	}
	cluster := route.Home([]*storagev1.StorageClass{zonal})
	given := row{node: node(keys.Home), cluster: cluster, parameters: map[string]string{keys.LocalClass: "zonal"}}
	_, err := given.to(t)
	var refused *route.Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "NotInTopology", refused.Reason)
	assert.Equal(t, "node-1", refused.Node)
	assert.Contains(t, refused.Message, `"zonal"`)

	given.node.Labels = map[string]string{"zone": "a"}
	to, err := given.to(t)
	require.NoError(t, err)
	assert.Equal(t, "zonal", to.Class.Name)
	assert.True(t, to.Deferred())
}
