package library

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

func TestNothingIsCreatedBeforeItIsPublished(t *testing.T) {
	b := start(t, nil, claim())
	require.Never(t, func() bool { return b.asked.Load() > 0 || b.volume(t) != nil }, 100*time.Millisecond, 10*time.Millisecond)
	assert.False(t, b.HandedOut("uid"))

	b.Publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
	volume := b.volume(t)
	assert.Equal(t, types.UID("uid"), volume.Spec.ClaimRef.UID)
	assert.Contains(t, volume.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	assert.True(t, b.HandedOut("uid"), "until it is told that the volume is seen")
	b.Forget("uid")
	assert.False(t, b.HandedOut("uid"))
}

func TestClaimThatChangedIsNotProvisionedAndCausesNoWarning(t *testing.T) {
	b := start(t, nil, claim())
	b.allowed.Store(false)
	b.Publish(claim())
	eventually(t, func() bool { return b.asked.Load() == 1 && !b.HandedOut("uid") })
	assert.Nil(t, b.volume(t))
	assert.Empty(t, b.warnings(t))

	b.allowed.Store(true)
	b.Publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
}

func TestWithdrawnClaimIsNotProvisionedUnlessItIsTooLate(t *testing.T) {
	b := start(t, nil)
	b.Publish(claim())
	assert.True(t, b.Withdraw("uid"))
	_, _, err := b.Provision(t.Context(), controller.ProvisionOptions{PVC: claim(), PVName: "pvc-uid"})
	assert.ErrorAs(t, err, new(*controller.IgnoredError))

	b.Publish(claim())
	volume, _, err := b.Provision(t.Context(), controller.ProvisionOptions{PVC: claim(), PVName: "pvc-uid"})
	require.NoError(t, err)
	assert.Equal(t, "pvc-uid", volume.Name)
	assert.False(t, b.Withdraw("uid"))
	b.Forget("uid")
	assert.True(t, b.Withdraw("uid"))
}

func TestVolumeThatCannotBeSavedIsSavedInTheEnd(t *testing.T) {
	var tries *atomic.Int32
	b := start(t, func(client *fake.Clientset) { tries = failing(client, "create", tooOften) }, claim())
	b.Publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
	assert.GreaterOrEqual(t, tries.Load(), int32(tooOften))
	assert.Equal(t, int32(1), b.asked.Load(), "what was handed out is saved, and nothing else")
	assert.Empty(t, b.warnings(t))
}

func TestVolumeIsDeletedOnlyWhenFinished(t *testing.T) {
	b := start(t, nil, released())
	require.Never(t, func() bool { return b.volume(t) == nil }, 100*time.Millisecond, 10*time.Millisecond)
	var ignored *controller.IgnoredError
	require.ErrorAs(t, b.Delete(t.Context(), released()), &ignored)
	b.Finish(released())
	eventually(t, func() bool { return b.volume(t) == nil })
}

func TestVolumeThatCannotBeDeletedIsDeletedInTheEnd(t *testing.T) {
	var tries *atomic.Int32
	b := start(t, func(client *fake.Clientset) { tries = failing(client, "delete", tooOften) }, released())
	b.Finish(released())
	eventually(t, func() bool { return b.volume(t) == nil })
	assert.GreaterOrEqual(t, tries.Load(), int32(tooOften))
}

func TestStoreOfVolumesKeepsWhatTheAPIServerSaid(t *testing.T) {
	b := start(t, nil, released())
	store := b.volumes.GetStore()
	fresh, made := released(), released()
	made.UID = ""
	require.NoError(t, store.Add(made))
	kept, ok, err := store.Get(fresh)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, fresh.UID, kept.(*corev1.PersistentVolume).UID)

	other := released()
	other.Name = "other"
	require.NoError(t, store.Add(other))
	_, ok, err = store.Get(other)
	require.NoError(t, err)
	assert.True(t, ok)
}
