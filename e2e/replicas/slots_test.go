package replicas

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// slotsOf are the real claims at the standby that a replica keeps its versions in.
func slotsOf(t *testing.T, cluster *testbed.Cluster, made *v1alpha1.VolumeReplica) []corev1.PersistentVolumeClaim {
	t.Helper()
	list := must.List(t, cluster.Client().CoreV1().PersistentVolumeClaims(""),
		metav1.ListOptions{LabelSelector: keys.ReplicaOf + "=" + string(made.UID)})
	return list.Items
}

// slotWith returns the one that says that it has the version of a name, and fails if none does.
func slotWith(t *testing.T, cluster *testbed.Cluster, made *v1alpha1.VolumeReplica, version string) *corev1.PersistentVolumeClaim {
	t.Helper()
	for _, slot := range slotsOf(t, cluster, made) {
		if seal, err := volumesnapshot.DecodeSeal(slot.Annotations[keys.Seal]); err == nil &&
			strings.Contains(version, fmt.Sprintf("-v%d-", seal.Number)) {
			return &slot
		}
	}
	require.Fail(t, "no slot has version "+version)
	return nil
}

// restart stops the provisioner, and starts it anew.
func restart(t *testing.T) {
	t.Helper()
	require.NoError(t, provisioner.Stop())
	var err error
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
}

// TestASecondCopyIsKeptWhereTheStandbyHasNoSnapshots has a copy kept in two slots while the provisioner is stopped in between, fails over
// to it, goes back, and removes it.
func TestASecondCopyIsKeptWhereTheStandbyHasNoSnapshots(t *testing.T) {
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	before := counted(t, from)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) {
		r.Spec.Standbys[0].ClassName, r.Spec.Versions.Keep = plainDriver, 4
	})
	now := sealed(t, made, time.Time{})
	first := now.Status.Standbys[0]
	assert.Equal(t, []any{v1alpha1.InSlots, plainDriver}, []any{first.In, first.Class})
	assert.Contains(t, meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy).Message,
		"which takes twice the room and keeps 2 versions at most, not the 4 of spec.versions.keep")
	assert.Greater(t, first.Sent, int64(16<<20), "all is sent once")

	// whole checks that the newest version is whole, and returns how far the application had counted in it.
	whole := func(now *v1alpha1.VolumeReplica) int {
		t.Helper()
		has := counted(t, bed.FolderOf(t, bed.West, namespace, slotWith(t, bed.West, made, now.Status.Standbys[0].Versions[0].Name).Name))
		assert.LessOrEqual(t, len(now.Status.Standbys[0].Versions), 2)
		return has
	}
	last := whole(now)
	assert.GreaterOrEqual(t, last, before, "what was written before the cut is in it")
	for i, stage := range []string{"", "Copy", "Seal", "Clean"} {
		if stage != "" {
			until(t, "a point is in "+stage, made, func(now *v1alpha1.VolumeReplica) bool {
				return strings.HasSuffix(now.Status.Standbys[0].Point, stage) || now.Status.Standbys[0].Sealed.After(first.Sealed.Time)
			})
			restart(t)
		}
		next := sealed(t, made, now.Status.Standbys[0].Sealed.Time)
		has := whole(next)
		assert.Greater(t, has, last, "a later version has more")
		t.Logf("point %d: %d bytes were sent", i+2, next.Status.Standbys[0].Sent)
		if i > 0 {
			assert.Less(t, next.Status.Standbys[0].Sent, int64(4<<20), "what a slot has is not sent again")
		}
		now, last = next, has
	}
	assert.Len(t, slotsOf(t, bed.West, made), 2)

	// No claim can be made of a version beside it.
	madeOf(t, namespace, "drill", made.Name, "")
	told(t, namespace, "drill", "keeps its versions in two real claims that are written in turn, without snapshots, and no other claim can")

	now = pause(t, made)
	slot := slotWith(t, bed.West, made, now.Status.Standbys[0].Versions[0].Name)
	at := bed.FolderOf(t, bed.West, namespace, slot.Name)
	has := counted(t, at)
	over := inPhase(t, failOver(t, "over", made, "", v1alpha1.FenceProven), v1alpha1.MoveRetain)
	assert.Equal(t, at, folder(t, namespace), "the claim gets the slot itself")
	beyond(t, namespace, has)
	diverged := counted(t, from)
	assert.GreaterOrEqual(t, diverged, has)
	must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
	says(t, made, "SameCluster", "is in cluster west, where its copy is, too")
	until(t, "the version that the claim got is none of the replica's any more", made, func(seen *v1alpha1.VolumeReplica) bool {
		return len(seen.Status.Standbys[0].Versions) == len(now.Status.Standbys[0].Versions)-1
	})
	atWest := beyond(t, namespace, has+5)

	// And back, and on: the slot that is left has a version until another one has a newer.
	back := must.Create(t, objects(t).In(namespace), &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: "back"},
		Spec: v1alpha1.VolumeMoveSpec{Claims: made.Spec.Claims, Target: v1alpha1.MoveTarget{Cluster: keys.Home}, Into: over.Name,
			KeepSourceFor: &metav1.Duration{Duration: time.Second}, TTLSecondsAfterFinished: ptr.To(int32(600))},
	})
	inPhase(t, back, v1alpha1.MoveDone)
	assert.Equal(t, from, folder(t, namespace))
	assert.GreaterOrEqual(t, counted(t, from), atWest, "what was written at the standby came back")
	next := sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	assert.GreaterOrEqual(t, whole(next), atWest)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)

	removes(t, made)
	await.Until(t, "nothing is left at the standby", func() bool {
		list := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace))
		return len(list.Items) == 0
	})
	await.Until(t, "the storage has no volume", func() bool {
		volumes, err := drivers[plainDriver].Volumes()
		require.NoError(t, err)
		return len(volumes) == 0
	})
	beyond(t, namespace, counted(t, from))
}

// TestAFailoverThatIsAbortedGivesTheSlotBack aborts a failover from west to home, which keeps the versions in slots though it has
// snapshots.
func TestAFailoverThatIsAbortedGivesTheSlotBack(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.In = v1alpha1.InSlots })
	now := sealed(t, made, time.Time{})
	sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	now = pause(t, made)
	assert.Equal(t, v1alpha1.InSlots, now.Status.Standbys[0].In)
	newest := now.Status.Standbys[0].Versions[0].Name
	slot := slotWith(t, bed.Home, made, newest)
	assert.Equal(t, fabric.Storage, slot.Namespace)
	has := counted(t, bed.FolderOf(t, bed.Home, slot.Namespace, slot.Name))

	// An abort that comes too late changes nothing: then the claim has the slot.
	over := failOver(t, "aborted", made, "", v1alpha1.FenceProven)
	act(t, over, v1alpha1.ActionAbort)
	await.Until(t, "the failover is over", func() bool {
		seen := must.Get(t, objects(t).In(namespace), over.Name)
		over = seen
		return seen.Status.Phase == v1alpha1.MoveAborted || seen.Status.Phase == v1alpha1.MoveRetain
	}, func() any { return over.Status })
	if over.Status.Phase == v1alpha1.MoveAborted {
		same := slotWith(t, bed.Home, made, newest)
		assert.Equal(t, slot.UID, same.UID)
		assert.NotContains(t, same.Labels, keys.MoveOf)
		assert.NotContains(t, same.Labels, keys.ClaimUID)
		assert.NotContains(t, same.Finalizers, keys.BackingFinalizer)
		assert.Equal(t, has, counted(t, bed.FolderOf(t, bed.Home, slot.Namespace, slot.Name)))
		over = failOver(t, "over", made, newest, v1alpha1.FenceProven)
	}
	inPhase(t, over, v1alpha1.MoveRetain)
	assert.Equal(t, slot.UID, await.Claim(t, bed.Home.Client(), slot.Namespace, slot.Name).UID)
	beyond(t, namespace, has)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	beyond(t, namespace, has)
}

// TestAClaimThatHasGrownSinceItsVersionGetsTheSlotAndThenTheRoom: the slot is as small as the claim was, and grows with the claim.
func TestAClaimThatHasGrownSinceItsVersionGetsTheSlotAndThenTheRoom(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.In = v1alpha1.InSlots })
	sealed(t, made, time.Time{})
	now := pause(t, made)
	slot := slotWith(t, bed.Home, made, now.Status.Standbys[0].Versions[0].Name)
	has := counted(t, bed.FolderOf(t, bed.Home, slot.Namespace, slot.Name))

	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Patch(t, claims, "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`))
	room := func() string {
		claim := await.Claim(t, bed.Home.Client(), namespace, "data")
		return claim.Status.Capacity.Storage().String()
	}
	await.Until(t, "the claim grows", func() bool { return room() == "3Gi" }, func() any { return room() })

	over := inPhase(t, failOver(t, "over", made, "", v1alpha1.FenceProven), v1alpha1.MoveRetain)
	assert.Equal(t, slot.UID, await.Claim(t, bed.Home.Client(), slot.Namespace, slot.Name).UID)
	beyond(t, namespace, has)
	await.Until(t, "the slot grows", func() bool {
		grown := await.Claim(t, bed.Home.Client(), slot.Namespace, slot.Name)
		return grown.Status.Capacity.Storage().String() == "3Gi" && room() == "3Gi"
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	beyond(t, namespace, has)
}
