package provisioning

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The tests of this file stop the provisioner that the others use, so they run
// alone.

func stopProvisioner(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	require.NoError(t, provisioner.Stop(stopGrace))
}

func startProvisioner(t *testing.T) {
	t.Helper()
	var err error
	provisioner, err = bed.RunProvisioner(context.Background(), "provisioner", binary, patient)
	require.NoError(t, err)
}

// stopGrace is how long a provisioner may take to end what it began.
const stopGrace = 10 * time.Second

// replicas are two provisioners.
type replicas struct {
	started int
	running []*testbed.Program
}

func startReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{}
	t.Cleanup(func() {
		for _, program := range r.running {
			assert.NoError(t, program.Stop(stopGrace))
		}
	})
	r.start(t)
	r.start(t)
	return r
}

func (r *replicas) start(t *testing.T) {
	t.Helper()
	r.started++
	program, err := bed.RunProvisioner(t.Context(), fmt.Sprintf("provisioner-%d", r.started), binary, patient)
	require.NoError(t, err)
	r.running = append(r.running, program)
}

// takeLeader waits until one leads and takes it off the list.
func (r *replicas) takeLeader(t *testing.T) *testbed.Program {
	t.Helper()
	leader := -1
	eventually(t, func() bool {
		for i, program := range r.running {
			if leads, err := fabric.Leads(program); err == nil && leads {
				leader = i
			}
		}
		return leader >= 0
	}, func() string { return "no provisioner leads" })
	program := r.running[leader]
	r.running = append(r.running[:leader], r.running[leader+1:]...)
	return program
}

// kill kills the leader and starts another replica.
func (r *replicas) kill(t *testing.T) {
	t.Helper()
	r.takeLeader(t).Kill()
	r.start(t)
}

// retire stops the leader as a rolling update does.
func (r *replicas) retire(t *testing.T) {
	t.Helper()
	require.NoError(t, r.takeLeader(t).Stop(stopGrace), "the provisioner must end in good order")
	r.start(t)
}

func TestKilledAndStoppedProvisionersLoseAndDuplicateNothing(t *testing.T) {
	stopProvisioner(t)
	t.Cleanup(func() { startProvisioner(t) })
	r := startReplicas(t)
	namespace := space(t)
	classes := []string{fabric.Class, newClass(t, with(keys.LocalClass, fabric.HomeNow, keys.RemoteClass, fabric.WestNow))}
	twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
	made := func(claim *corev1.PersistentVolumeClaim) []types.UID {
		return append(twins(twinOf(claim)), shadows(claim.Name)...)
	}

	const count = 20
	var claims []*corev1.PersistentVolumeClaim
	for i := range count {
		name := fmt.Sprintf("data-%d", i)
		claims = append(claims, createClaim(t, fabric.NewClaim(namespace, name, classes[i/2%2])))
		place := fabric.AtHome
		if i%2 == 1 {
			place = fabric.InWest
		}
		createPod(t, place(fabric.NewPod(namespace, name, name)))
	}
	published := func() (n int) {
		for _, claim := range claims {
			if volumeOf(t, bed.Home, twinOf(claim)) != nil {
				n++
			}
		}
		return n
	}
	backed := func() (n int) {
		for _, claim := range claims {
			n += len(made(claim))
		}
		return n
	}

	eventually(t, func() bool { return backed() >= 2 }, func() string { return "no backing claim is made" })
	r.kill(t)
	eventually(t, func() bool { return published() >= count/2 }, func() string { return fmt.Sprintf("only %d volumes are published", published()) })
	r.retire(t)
	eventually(t, func() bool { return published() >= count-2 }, func() string { return fmt.Sprintf("only %d volumes are published", published()) })
	r.kill(t)
	for _, claim := range claims {
		runs(t, namespace, claim.Name)
		_, virtual := bound(t, bed.Home, namespace, claim.Name)
		eventually(t, func() bool { return backingOf(t, virtual).Annotations[keys.Unpublished] == "" }, func() string { return claim.Name + " is not marked as published" })
		assert.Equal(t, []types.UID{backingOf(t, virtual).UID}, made(claim), "backing claims of %s", claim.Name)
	}
	assert.Len(t, volumesBehind(namespace, claims), count)

	for _, claim := range claims {
		require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
		deleteClaim(t, bed.Home, namespace, claim.Name)
	}
	eventually(t, func() bool { return published() < count }, func() string { return "no volume is deleted" })
	r.kill(t)
	eventually(t, func() bool { return published() < count/2 }, func() string { return fmt.Sprintf("still %d volumes", published()) })
	r.retire(t)
	eventually(t, func() bool { return published() == 0 }, func() string { return fmt.Sprintf("still %d volumes", published()) })
	assert.Empty(t, volumesBehind(namespace, claims), "real volumes leaked")
	for _, claim := range claims {
		assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, twinOf(claim)))
		assert.Nil(t, claimOf(t, bed.West, namespace, claim.Name))
	}
}

// volumesBehind returns the handles of the real volumes that exist for claims.
func volumesBehind(namespace string, claims []*corev1.PersistentVolumeClaim) []string {
	var handles []string
	for _, volume := range bed.WestStorage.VolumesOf(namespace) {
		handles = append(handles, volume.Handle)
	}
	twins := map[string]bool{}
	for _, claim := range claims {
		twins[twinOf(claim)] = true
	}
	for _, volume := range bed.HomeStorage.VolumesOf(fabric.Storage) {
		if twins[volume.Claim] {
			handles = append(handles, volume.Handle)
		}
	}
	return handles
}

// TestWhatWasLeftBehindIsRemovedAfterTheStart deletes claims whose backing claims
// were never published while no provisioner runs.
func TestWhatWasLeftBehindIsRemovedAfterTheStart(t *testing.T) {
	class := newClass(t, with(keys.RemoteClass, fabric.WestNow))
	kept, doomed := space(t), space(t)
	type left struct {
		cluster         *testbed.Cluster
		namespace, name string
	}
	var lefts []left
	for _, namespace := range []string{kept, doomed} {
		bed.WestStorage.SetClaim(namespace, "far", never)
		createClaim(t, fabric.NewClaim(namespace, "far", class))
		createPod(t, fabric.InWest(fabric.NewPod(namespace, "far", "far")))
		near := createClaim(t, fabric.NewClaim(namespace, "near", class))
		bed.HomeStorage.SetClaim(fabric.Storage, twinOf(near), never)
		createPod(t, fabric.AtHome(fabric.NewPod(namespace, "near", "near")))
		lefts = append(lefts, left{bed.West, namespace, "far"}, left{bed.Home, fabric.Storage, twinOf(near)})
	}
	for _, l := range lefts {
		eventually(t, func() bool { return claimOf(t, l.cluster, l.namespace, l.name) != nil }, func() string { return "there is no backing claim" })
	}
	stopProvisioner(t)
	started := false
	t.Cleanup(func() {
		if !started {
			startProvisioner(t)
		}
	})
	for _, name := range []string{"far", "near"} {
		deletePod(t, kept, name)
		deleteClaim(t, bed.Home, kept, name)
		absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, kept, name) })
	}
	deleteNamespace(t, bed.Home, doomed)
	namespaceGone(t, bed.Home, doomed)
	for _, l := range lefts {
		require.NotNil(t, claimOf(t, l.cluster, l.namespace, l.name), "nobody is there to remove it yet")
	}

	startProvisioner(t)
	started = true
	for _, l := range lefts {
		absent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, l.cluster, l.namespace, l.name) })
	}
}
