package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/swap/plan"
)

func TestAVolumeAndItsSuccessor(t *testing.T) {
	before := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-u1", UID: "v1", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", "external-attacher/disk",
				"external-provisioner.volume.kubernetes.io/finalizer"},
			Labels: map[string]string{keys.Cluster: keys.Home, "team": "a"},
			Annotations: map[string]string{keys.Backing: "home/s/pvc-u1/b1", keys.BackingVolume: "real-1",
				"pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "lodestone",
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u1", ResourceVersion: "5"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	kept := plan.Remembered(before)
	assert.Equal(t, before.UID, kept.UID, "which one it was")
	assert.Empty(t, kept.ResourceVersion)
	assert.Empty(t, kept.Status)
	assert.Equal(t, []string{"external-provisioner.volume.kubernetes.io/finalizer"}, kept.Finalizers)
	assert.Empty(t, kept.Spec.ClaimRef.ResourceVersion)
	assert.Equal(t, before.Spec.ClaimRef.UID, kept.Spec.ClaimRef.UID)

	next := plan.Successor(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", Labels: map[string]string{keys.Cluster: "west"},
			Annotations: map[string]string{keys.Backing: "west/shop/data/b2"}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
	}, kept)
	assert.Equal(t, map[string]string{keys.Cluster: "west", "team": "a"}, next.Labels)
	assert.Equal(t, map[string]string{keys.Backing: "west/shop/data/b2", "pv.kubernetes.io/provisioned-by": keys.Driver, "note": "n"},
		next.Annotations, "the real volume of the source is not that of the target")
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, next.Spec.PersistentVolumeReclaimPolicy, "as the administrator chose")
	assert.Equal(t, kept.Finalizers, next.Finalizers)
	assert.Equal(t, kept.Spec.ClaimRef, next.Spec.ClaimRef)
}

func TestAVolumeGoesAndComesBackUnderItsClaim(t *testing.T) {
	now := time.Now()
	s := plan.Swap{Claim: "data", Placeholder: "nobody", Part: "Fence", Began: now, Now: now}
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "v1",
			Annotations: map[string]string{keys.Backing: "home/s/pvc-u1/b1"}},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: "data"}}}
		change(v)
		return v
	}
	same := func(*corev1.PersistentVolume) {}
	goes := func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{Time: now} }
	released := func(v *corev1.PersistentVolume) {
		goes(v)
		v.Spec.ClaimRef.Name, v.Status.Phase = "nobody", corev1.VolumeReleased
	}
	bound := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	before := volume(same)

	assert.Equal(t, plan.Delete, plan.Release(s, plan.Seen{Claim: bound, Volume: before}, before).Action)
	assert.Equal(t, plan.Delete, plan.Release(s, plan.Seen{Claim: bound, Volume: volume(goes)}, before).Action, "it still names its claim")
	late := s
	late.Now = now.Add(time.Minute)
	assert.Equal(t, plan.Free, plan.Release(late, plan.Seen{Claim: bound, Volume: volume(goes)}, before).Action, "nobody waits for ever")
	assert.Equal(t, plan.Free, plan.Release(s, plan.Seen{Claim: bound, Volume: volume(released)}, before).Action)
	attached := volume(func(v *corev1.PersistentVolume) { released(v); v.Finalizers = []string{"external-attacher/disk"} })
	for _, step := range []plan.Step{plan.Release(s, plan.Seen{Claim: bound, Volume: attached}, before),
		plan.Make(s, plan.Seen{Claim: bound, Volume: attached}, before)} {
		assert.Equal(t, plan.Nothing, step.Action, "an attacher's finalizer is never stripped")
		assert.Contains(t, step.Wait, "external-attacher/disk")
	}
	assert.Contains(t, plan.WhyNotReleased(s, plan.Seen{Claim: bound, Volume: attached}), "external-attacher/disk")
	replaced := volume(func(v *corev1.PersistentVolume) { v.UID, v.Annotations[keys.Backing] = "v2", "home/s/other/b9" })
	assert.True(t, plan.Release(s, plan.Seen{Claim: bound, Volume: replaced}, before).Replaced)
	assert.True(t, plan.Make(s, plan.Seen{Claim: bound, Volume: replaced}, before).Replaced)

	touch := plan.Unbind(s, plan.Seen{Claim: bound})
	assert.Equal(t, plan.TouchUnbound, touch.Action)
	touched := bound.DeepCopy()
	touched.Annotations = map[string]string{keys.MoveTouched: touch.Text}
	assert.Contains(t, plan.Unbind(s, plan.Seen{Claim: touched}).Wait, "has no volume for now")
	assert.Equal(t, plan.TouchUnbound, plan.Unbind(late, plan.Seen{Claim: touched}).Action, "once more, for it may have come too early")
	pending := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	assert.Equal(t, plan.Step{}, plan.Unbind(s, plan.Seen{Claim: pending}))

	assert.Equal(t, plan.Create, plan.Make(s, plan.Seen{Claim: pending}, before).Action)
	assert.Equal(t, plan.Step{}, plan.Make(s, plan.Seen{Claim: pending, Volume: before}, before))
	assert.Equal(t, plan.Step{}, plan.Make(s, plan.Seen{Volume: replaced}, before), "who deleted the claim decides about the volume")
	assert.Equal(t, plan.Free, plan.Make(s, plan.Seen{Volume: volume(released)}, before).Action, "but not about one that would stay for ever")
	assert.Equal(t, plan.Touch, plan.Bind(s, plan.Seen{Claim: pending, Volume: before}).Action)
	there := volume(func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound })
	assert.Equal(t, plan.Step{}, plan.Bind(s, plan.Seen{Claim: bound, Volume: there}))
}
