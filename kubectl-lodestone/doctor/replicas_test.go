package doctor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// kept is a VolumeReplica with an RPO of 15 minutes whose newest version is so old; 0: it has none.
func kept(name string, age time.Duration, status metav1.ConditionStatus, reason string) v1alpha1.VolumeReplica {
	r := v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}},
			Paused: reason == "Paused"},
		Status: v1alpha1.VolumeReplicaStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ReplicaHealthy, Status: status, Reason: reason,
			Message: "this is why"}}, Standbys: []v1alpha1.ReplicaStandbyStatus{{Cluster: "east"}}}}
	if age > 0 {
		r.Status.Standbys[0].Sealed = &metav1.Time{Time: now.Add(-age)}
	}
	return r
}

func TestReplicasThatAreLateOrRefusedAreFound(t *testing.T) {
	well := kept("well", time.Minute, metav1.ConditionTrue, "Sealed")
	const late = ", with an RPO of 15m in cluster east (Late): the newest version is older than the RPO of 15m"
	for name, row := range map[string]struct {
		replica v1alpha1.VolumeReplica
		level   Level
		says    string
	}{
		"all is well":  {well, OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it is paused": {kept("r", time.Hour, metav1.ConditionFalse, "Paused"), OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it has begun": {kept("r", 0, metav1.ConditionFalse, "Seeding"), OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it is a little late": {kept("r", 20*time.Minute, metav1.ConditionTrue, "Sealed"), Warning,
			"VolumeReplica shop/r has a copy that is 20m old" + late},
		"it is very late": {kept("r", time.Hour, metav1.ConditionTrue, "Sealed"), Problem,
			"VolumeReplica shop/r has a copy that is 60m old" + late},
		"it is refused": {kept("r", 0, metav1.ConditionFalse, "NoSnapshots"), Problem,
			"VolumeReplica shop/r has no sealed version in cluster east (NoSnapshots): this is why"},
	} {
		t.Run(name, func(t *testing.T) {
			found := replicas(Facts{Now: now, Replicas: []v1alpha1.VolumeReplica{well, row.replica}})
			require.Len(t, found, 1)
			assert.Equal(t, row.level, found[0].Level)
			assert.Equal(t, row.says, found[0].Says)
		})
	}
	var many []v1alpha1.VolumeReplica
	for i := range 8 {
		many = append(many, kept(fmt.Sprint("r", i), time.Hour, metav1.ConditionTrue, "Sealed"))
	}
	found := replicas(Facts{Now: now, Replicas: many})
	require.Len(t, found, 6)
	assert.Equal(t, "3 more VolumeReplicas are late, suspect or refused", found[5].Says)
}
