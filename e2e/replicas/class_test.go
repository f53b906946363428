package replicas

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAStandbyThatLosesItsClassOfSnapshotsBeginsNoCopyAnew: what is at the standby stays, and points go on with it once versions can be
// sealed again. It is alone while the class is gone.
func TestAStandbyThatLosesItsClassOfSnapshotsBeginsNoCopyAnew(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	fill(t, folder(t, namespace))
	made := replicate(t, namespace, "west")
	now := sealed(t, made, time.Time{})
	head := slotsOf(t, bed.West, made)
	require.Len(t, head, 1)

	must.Kubectl(t, bed.West, "", "delete", "volumesnapshotclass", westDriver)
	back := func() {
		_, err := bed.West.Kubectl(context.Background(), fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass,
  metadata: {name: %[1]s}, driver: %[1]s, deletionPolicy: Delete}`, westDriver), "apply", "-f", "-")
		require.NoError(t, err)
	}
	t.Cleanup(back)
	says(t, made, "PointFailed", "no snapshot can be taken at the standby: cluster west has no VolumeSnapshotClass of driver "+westDriver)
	lost := until(t, "the version stays", made, func(now *v1alpha1.VolumeReplica) bool { return now.Status.Standbys[0].Sealed != nil })
	last := lost.Status.Standbys[0].Sealed.Time
	assert.NotEmpty(t, lost.Status.Standbys[0].Versions)
	assert.False(t, last.Before(now.Status.Standbys[0].Sealed.Time))

	back()
	again := sealed(t, made, last)
	assert.Less(t, again.Status.Standbys[0].Sent, int64(4<<20), "what is at the standby is not sent again")
	same := slotsOf(t, bed.West, made)
	require.Len(t, same, 1)
	assert.Equal(t, head[0].UID, same[0].UID)
	removes(t, made)
}
