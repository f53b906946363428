package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestTheClassOfASnapshotRemovesWhatWasTaken(t *testing.T) {
	class := func(name, driver, policy string, normal bool) volumesnapshot.Class {
		found := volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: policy}
		if normal {
			found.Annotations = map[string]string{volumesnapshot.DefaultClass: "true"}
		}
		return found
	}
	for name, row := range map[string]struct {
		classes []volumesnapshot.Class
		want    string
	}{
		"none":                {},
		"of another driver":   {classes: []volumesnapshot.Class{class("a", "b.test", "Delete", true)}},
		"one that keeps all":  {classes: []volumesnapshot.Class{class("a", "a.test", "Retain", true)}},
		"the default one":     {classes: []volumesnapshot.Class{class("a", "a.test", "Delete", false), class("b", "a.test", "Delete", true)}, want: "b"},
		"the first by name":   {classes: []volumesnapshot.Class{class("c", "a.test", "Delete", false), class("b", "a.test", "Delete", false)}, want: "b"},
		"one without a name":  {classes: []volumesnapshot.Class{class("../x", "a.test", "Delete", true)}},
		"not the default one": {classes: []volumesnapshot.Class{class("a", "a.test", "Retain", true), class("b", "a.test", "Delete", false)}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, classFor(row.classes, "a.test")) })
	}
}

func TestASnapshotOfSomethingElseIsNotCopied(t *testing.T) {
	known := &record.Claim{Source: record.Copy{Ref: backing.Ref{Name: "data"}}, Snapshot: &record.Snapshot{Driver: "a.test", Handle: "v1"}}
	for name, row := range map[string]struct {
		alter func(*volumesnapshot.Snapshot, *volumesnapshot.Content)
		says  string
	}{
		"of the volume":       {alter: func(*volumesnapshot.Snapshot, *volumesnapshot.Content) {}},
		"of another claim":    {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Spec.Source.ClaimName = ptr.To("other") }, says: "of another claim than data"},
		"of a content":        {alter: func(s *volumesnapshot.Snapshot, _ *volumesnapshot.Content) { s.Spec.Source.ClaimName = nil }, says: "of another claim than data"},
		"another's content":   {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Snapshot.UID = "s2" }, says: "c is not its own"},
		"of another volume":   {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Source.VolumeHandle = ptr.To("v2") }, says: "c is of another volume"},
		"of a snapshot":       {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Source.VolumeHandle = nil }, says: "c is of another volume"},
		"of another driver":   {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.Driver = "b.test" }, says: "c is of another volume"},
		"one that is to stay": {alter: func(_ *volumesnapshot.Snapshot, c *volumesnapshot.Content) { c.Spec.DeletionPolicy = "Retain" }, says: "remove it by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &volumesnapshot.Snapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s1"}, Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("c")},
				Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To("data")}},
			}
			c := &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: volumesnapshot.ContentSpec{
				Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "s", UID: "s1"}, DeletionPolicy: "Delete", Driver: "a.test",
				Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("v1")},
			}}
			row.alter(s, c)
			why := notOf(known, s, c)
			assert.Equal(t, row.says == "", why == "", why)
			assert.Contains(t, why, row.says)
		})
	}
}

func TestWhatAnAPIServerHasAgainstASnapshotIsRemembered(t *testing.T) {
	w := &work{}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "volumesnapshots"}, "s", assert.AnError)
	require.NoError(t, w.asked(1, quota))
	assert.Contains(t, w.refused[1], "forbidden")
	require.Error(t, w.asked(1, apierrors.NewInternalError(assert.AnError)), "that is tried again")
	require.NoError(t, w.asked(2, apierrors.NewAlreadyExists(schema.GroupResource{}, "s")))
	assert.NotContains(t, w.refused, 2)
}

func TestTheMoverAtASnapshotHasNothingButItsClaim(t *testing.T) {
	c := New(Config{Place: backing.Place{HomeID: "h1"}})
	r := &record.Record{UID: "m1", Phase: v1alpha1.MovePreCopy, Claims: []record.Claim{{
		Source: record.Copy{Ref: backing.Ref{Name: "data"}}, Target: record.Copy{Ref: backing.Ref{Name: "to"}},
		Snapshot: &record.Snapshot{Copy: record.Copy{Ref: backing.Ref{Name: "move-m1-0-snapshot"}}},
	}}}
	volume := func(end record.End) (claim, secret string, args []string) {
		spec := c.moverSpec(r, 0, end, "")
		return spec.Volumes[0].PersistentVolumeClaim.ClaimName, spec.Volumes[1].Secret.SecretName, append(spec.Containers[0].Command, spec.Containers[0].Args...)
	}
	claim, secret, args := volume(record.Snapped)
	assert.Equal(t, []string{"move-m1-0-snapshot", "move-m1-0-snapshot"}, []string{claim, secret})
	assert.Subset(t, args, []string{"send", "--snapshot"})
	claim, secret, args = volume(record.Source)
	assert.Equal(t, []string{"data", "move-m1-0-source"}, []string{claim, secret})
	assert.Contains(t, args, "send")
	assert.NotContains(t, args, "--snapshot")
	_, _, args = volume(record.Target)
	assert.NotContains(t, args, "--no-snapshot", "it is to take the copy of a snapshot first")
	r.Phase = v1alpha1.MoveFinalSync
	_, _, args = volume(record.Target)
	assert.Subset(t, args, []string{"receive", "--no-snapshot"})
	r.Claims[0].Store = &record.Store{}
	assert.EqualValues(t, leaving, graceOf(r, 0, record.Snapped, 5), "it removes what it has in an object store")
	assert.Equal(t, map[string]string{keys.MoveOf: "m1", keys.HomeID: "h1"}, c.ofSnapshot(r))
}
