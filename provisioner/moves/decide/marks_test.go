package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// misbind makes the twin one that was published before it was bound to a volume.
func misbind(m *decide.Marked, volume string) {
	m.Standing.Current = backing.Ref{Cluster: keys.Home}
	m.Volume.Annotations[keys.BackingVolume] = "pvc-twin"
	m.Backing.Annotations, m.Backing.Spec.VolumeName = map[string]string{keys.Unpublished: "true"}, volume
}

func TestMarksAreTakenOffOnlyIfTheVolumeHasTheNewestData(t *testing.T) {
	bound := func() decide.Marked {
		volume := virtual(0, record.Source)
		return decide.Marked{
			Virtual: true, Volume: volume,
			Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: volume.Spec.ClaimRef.UID},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume.Name}},
			Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: ref(record.Source, 0).UID, Labels: map[string]string{}}},
		}
	}
	target := ref(record.Target, 0)
	elsewhere := []backing.Copy{{Cluster: target.Cluster, Claim: &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: target.Namespace, Name: target.Name, UID: target.UID}}}}
	leaving := &metav1.Time{Time: time.Now()}
	for name, row := range map[string]struct {
		change func(*decide.Marked)
		why    string
	}{
		"its volume has the only data":          {func(*decide.Marked) {}, ""},
		"it has no volume, and never had":       {func(m *decide.Marked) { m.Claim.Spec.VolumeName, m.Volume, m.Backing = "", nil, nil }, ""},
		"it is of a class of somebody else":     {func(m *decide.Marked) { m.Virtual, m.Volume, m.Backing = false, nil, nil }, ""},
		"it has data elsewhere":                 {func(m *decide.Marked) { m.Standing.Unclear = elsewhere }, "may have newer data"},
		"it has newer data elsewhere":           {func(m *decide.Marked) { m.Standing.Newer = elsewhere }, "may have newer data"},
		"a move replaced it, by an unknown one": {func(m *decide.Marked) { m.Standing.ReplacedBy = 3 }, "was replaced by a move"},
		"a move replaced it, before it was chosen": {func(m *decide.Marked) {
			m.Backing.Labels[keys.MoveOf], m.Backing.Annotations = "m2", map[string]string{keys.ReplacedBy: "1"}
		}, ""},
		"a cluster does not answer":           {func(m *decide.Marked) { m.Unread = "cluster west is away" }, "cluster west is away"},
		"its volume is gone":                  {func(m *decide.Marked) { m.Volume, m.Backing = nil, nil }, "is gone"},
		"its volume is another claim's":       {func(m *decide.Marked) { m.Volume.Spec.ClaimRef.UID = "other" }, "is gone"},
		"its volume says nothing":             {func(m *decide.Marked) { m.Volume.Annotations = nil }, "does not say where"},
		"its real claim is gone":              {func(m *decide.Marked) { m.Backing = nil }, "is gone"},
		"its real claim is another one":       {func(m *decide.Marked) { m.Backing.UID = "other" }, "is gone"},
		"its real claim is being deleted":     {func(m *decide.Marked) { m.Backing.DeletionTimestamp = leaving }, "is gone"},
		"a move replaced its real claim":      {func(m *decide.Marked) { m.Backing.Labels[keys.MoveOf] = "m2" }, "was replaced by a move"},
		"its twin is bound to another volume": {func(m *decide.Marked) { misbind(m, "other") }, "is bound to volume other"},
		"its twin is bound to its volume":     {func(m *decide.Marked) { misbind(m, "pvc-twin") }, ""},
		"its twin is not bound yet":           {func(m *decide.Marked) { misbind(m, "") }, ""},
		"it has no volume, but data elsewhere": {func(m *decide.Marked) {
			m.Claim.Spec.VolumeName, m.Standing.Unclear = "", elsewhere
		}, "may have"},
	} {
		m := bound()
		row.change(&m)
		why := decide.WhyKeepMarks(m)
		if row.why == "" {
			assert.Empty(t, why, name)
			continue
		}
		assert.Contains(t, why, row.why, name)
		m.Claim.Annotations = map[string]string{keys.Unlock: "true"}
		assert.Empty(t, decide.WhyKeepMarks(m), "%s, and an administrator has decided", name)
	}
}

func TestTheOlderCopyThatWasChosenIsTheNewestFromThenOn(t *testing.T) {
	newer := backing.Copy{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{keys.Generation: "4"}}}}
	chosen := map[string]string{keys.Unlock: "true"}
	for name, row := range map[string]struct {
		standing backing.Standing
		marks    map[string]string
		want     int64
	}{
		"there is a newer one": {standing: backing.Standing{Generation: 2, Newer: []backing.Copy{newer}}, marks: chosen, want: 5},
		"it was replaced":      {standing: backing.Standing{Generation: 2, ReplacedBy: 3}, marks: chosen, want: 4},
		"it is the newest":     {standing: backing.Standing{Generation: 2, Unclear: []backing.Copy{newer}}, marks: chosen},
		"nobody has chosen":    {standing: backing.Standing{Generation: 2, Newer: []backing.Copy{newer}}},
	} {
		m := decide.Marked{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: row.marks}},
			Volume: &corev1.PersistentVolume{}, Standing: row.standing}
		assert.Equal(t, row.want, decide.Supersedes(m), name)
	}
}
