package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// kept is a VolumeReplica whose newest version is so old, with conditions.
func kept(age time.Duration, conditions ...metav1.Condition) *v1alpha1.VolumeReplica {
	return &v1alpha1.VolumeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-east"},
		Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}},
			RPO: &metav1.Duration{Duration: 15 * time.Minute}},
		Status: v1alpha1.VolumeReplicaStatus{Primary: "west", Conditions: conditions, Standbys: []v1alpha1.ReplicaStandbyStatus{{
			Cluster: "east", Class: "fast", Sealed: &metav1.Time{Time: now.Add(-age)}, Sent: 5 << 20,
			Versions: []v1alpha1.ReplicaVersion{{Name: "replica-0f7b153b-4645-44d9-9d0e-f64b2f68c8bb-v12-1795742003"}, {Name: "older"}},
		}}},
	}
}

func healthy(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ReplicaHealthy, Status: status, Reason: reason, Message: message}
}

func TestWhatThereIsToSayOfAReplica(t *testing.T) {
	well := healthy(metav1.ConditionTrue, "Sealed", "the copy was compared and sealed")
	suspect := metav1.Condition{Type: v1alpha1.ReplicaSuspect, Status: metav1.ConditionTrue, Message: "a scrub found this"}
	none := kept(0, healthy(metav1.ConditionFalse, "Seeding", "the first copy is being made"))
	none.Status.Standbys[0].Sealed, none.Status.Standbys[0].Versions, none.Status.Standbys[0].Point = nil, nil, "point 1: Copy"
	asked := kept(0)
	asked.Status = v1alpha1.VolumeReplicaStatus{}
	for name, row := range map[string]struct {
		of             *v1alpha1.VolumeReplica
		words, message string
		has            string
		late, refused  bool
		suspect        bool
	}{
		"it is well": {of: kept(7*time.Minute, well), words: "Sealed", has: `east has a copy of claim "data", 7m old (version 12)`},
		"it is late, and the provisioner has said so": {of: kept(20*time.Minute, well, metav1.Condition{Type: v1alpha1.ReplicaWithinRPO,
			Status: metav1.ConditionFalse, Message: "what was written since then is in no version"}), words: "Late", late: true,
			message: "what was written since then is in no version",
			has:     `east has a copy of claim "data", 20m old (version 12), which is more than its RPO of 15m`},
		"it is late, and the provisioner has not said so": {of: kept(20*time.Minute, well, metav1.Condition{Type: v1alpha1.ReplicaWithinRPO,
			Status: metav1.ConditionTrue}), words: "Late", late: true, message: "the newest version is older than the RPO of 15m",
			has: `east has a copy of claim "data", 20m old (version 12), which is more than its RPO of 15m`},
		"it is late for a reason": {of: kept(time.Hour, healthy(metav1.ConditionFalse, "NoSnapshots", "no class")), words: "NoSnapshots, late",
			message: "no class", late: true, refused: true,
			has: `east has a copy of claim "data", 60m old (version 12), which is more than its RPO of 15m`},
		"it is paused": {of: kept(time.Minute, healthy(metav1.ConditionFalse, "Paused", "spec.paused is set")), words: "Paused",
			message: "spec.paused is set", has: `east has a copy of claim "data", 60s old (version 12)`},
		"it is suspect": {of: kept(time.Minute, well, suspect), words: "Sealed, suspect", message: "a scrub found this", suspect: true,
			has: `east has a copy of claim "data", 60s old (version 12)`},
		"it is suspect, and more": {of: kept(time.Minute, healthy(metav1.ConditionFalse, "Paused", "spec.paused is set"), suspect),
			words: "Paused, suspect", message: "spec.paused is set; a scrub found this", suspect: true,
			has: `east has a copy of claim "data", 60s old (version 12)`},
		"it has nothing yet": {of: none, words: "Seeding", message: "the first copy is being made"},
		"nobody has looked yet": {of: asked, words: "Unknown",
			message: "the provisioner has not looked at it yet: see whether it runs (kubectl get pods -n lodestone-system)"},
		"its clock is ahead": {of: kept(-time.Minute, well), words: "Sealed", has: `east has a copy of claim "data", 0s old (version 12)`},
	} {
		t.Run(name, func(t *testing.T) {
			c := Of(row.of, now)
			assert.Equal(t, row.words, c.Words())
			assert.Equal(t, row.message, c.Message)
			assert.Equal(t, row.has, c.Has("east", now))
			assert.Equal(t, row.late, c.Late)
			assert.Equal(t, row.refused, c.Refused())
			assert.Equal(t, row.late || row.refused || row.suspect, c.Behind())
			assert.Equal(t, "shop data-east data east", c.Namespace+" "+c.Name+" "+c.Claim+" "+c.Standby)
		})
	}
	c := Of(kept(time.Minute, well), now)
	assert.Equal(t, "west fast", c.Primary+" "+c.Class)
	assert.Equal(t, 2, c.Versions)
	odd := kept(time.Minute, well)
	odd.Status.Standbys[0].Versions[0].Name = "of-another-name"
	assert.Equal(t, `east has a copy of claim "data", 60s old`, Of(odd, now).Has("east", now))
}

func TestTimesAreWrittenWithoutZeros(t *testing.T) {
	for d, text := range map[time.Duration]string{15 * time.Minute: "15m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Second: "10s",
		26 * time.Hour: "26h", time.Hour + time.Second: "1h0m1s", 100 * time.Minute: "1h40m"} {
		assert.Equal(t, text, Short(d))
	}
}
