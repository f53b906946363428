package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// copyOf is a VolumeReplica in east whose newest version is so old; with a reason something is in its way.
func copyOf(name string, age time.Duration, reason string) v1alpha1.VolumeReplica {
	healthy := metav1.Condition{Type: v1alpha1.ReplicaHealthy, Status: metav1.ConditionTrue, Reason: "Sealed"}
	if reason != "" {
		healthy = metav1.Condition{Type: v1alpha1.ReplicaHealthy, Status: metav1.ConditionFalse, Reason: reason, Message: "something\nis wrong"}
	}
	return v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}},
			RPO: &metav1.Duration{Duration: 15 * time.Minute}, Paused: reason == "Paused"},
		Status: v1alpha1.VolumeReplicaStatus{Primary: "west", Conditions: []metav1.Condition{healthy},
			Standbys: []v1alpha1.ReplicaStandbyStatus{{Cluster: "east", Class: "fast", Sealed: &metav1.Time{Time: now.Add(-age)},
				Versions: []v1alpha1.ReplicaVersion{{Name: "replica-u-v12-1795742003"}}}}}}
}

func TestReplicasAreShownWithWhatIsWrong(t *testing.T) {
	f := facts{replicas: []v1alpha1.VolumeReplica{copyOf("well", 7*time.Minute, ""), copyOf("late", time.Hour, ""),
		copyOf("away", time.Hour, "ClusterAway"), copyOf("paused", time.Hour, "Paused")}}
	list := f.shownReplicas(only{}, now)
	require.Len(t, list, 4)
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"away", "late", "paused", "well"}, names)
	assert.Equal(t, "something is wrong", list[0].Message)
	assert.Equal(t, []string{"replicas that are late or suspect, or that something keeps from being made: shop/away (ClusterAway, late), " +
		"shop/late (Late); kubectl lodestone replicate status -A says of each why"}, behind(list))
	assert.Nil(t, behind(list[2:]))
	list[3].Runnable = "False"
	assert.Equal(t, []string{"replicas whose standby could not run the pods that use them now: shop/well (east); kubectl lodestone " +
		"replicate status -A says of each why"}, behind(list[2:]))
	list[3].Runnable = "Unknown"
	assert.Nil(t, behind(list[2:]))
	assert.Empty(t, f.shownReplicas(only{namespace: "bank"}, now))
	assert.NotNil(t, f.shownReplicas(only{namespace: "bank"}, now), "lists are never missing")

	var out bytes.Buffer
	require.NoError(t, replicaTable(&out, list, false, now))
	assert.Equal(t, `
NAMESPACE   REPLICA   CLAIM   DATA   STANDBY   VERSION   LAG   RPO   STATE
shop        away      data    west   east      12        60m   15m   ClusterAway, late
shop        late      data    west   east      12        60m   15m   Late
shop        paused    data    west   east      12        60m   15m   Paused, late
shop        well      data    west   east      12        7m    15m   Sealed
`, out.String())

	f.replicas = nil
	for i := range shown + 3 {
		f.replicas = append(f.replicas, copyOf(fmt.Sprintf("r%02d", i), time.Minute, ""))
	}
	f.replicas = append(f.replicas, copyOf("z", time.Hour, ""))
	out.Reset()
	require.NoError(t, replicaTable(&out, f.shownReplicas(only{}, now), false, now))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, lines, shown+2)
	assert.Contains(t, lines[1], "Late", "those with something wrong are first")
	assert.Equal(t, "and 4 more: kubectl lodestone replicate status -A lists them", lines[len(lines)-1])

	s := Status{Replicas: f.shownReplicas(only{}, now)}
	s.limitTo([]string{"north"})
	assert.Empty(t, s.Replicas)
}
