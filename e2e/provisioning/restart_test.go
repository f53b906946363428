package provisioning

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
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
	provisioner, err = bed.RunProvisioner(context.Background(), "provisioner", binary, longRefusals)
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
	program, err := bed.RunProvisioner(t.Context(), fmt.Sprintf("provisioner-%d", r.started), binary, longRefusals)
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
	namespace := newNamespace(t)
	classes := []string{fabric.Class, newClass(t, with(keys.LocalClass, fabric.HomeNow, keys.RemoteClass, fabric.WestNow))}
	twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
	made := func(claim *corev1.PersistentVolumeClaim) []types.UID {
		return append(twins(twinOf(claim)), shadows(claim.Name)...)
	}

	const count = 20
	var claims []*corev1.PersistentVolumeClaim
	for i := range count {
		name := fmt.Sprintf("data-%d", i)
		claims = append(claims, bed.CreateClaim(t, fabric.NewClaim(namespace, name, classes[i/2%2])))
		place := fabric.AtHome
		if i%2 == 1 {
			place = fabric.InWest
		}
		bed.CreatePod(t, place(fabric.NewPod(namespace, name, name)))
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
	eventually(t, func() bool { return published() >= count/2 }, func() string {
		return fmt.Sprintf("only %d volumes are published", published())
	})
	r.retire(t)
	eventually(t, func() bool { return published() >= count-2 }, func() string {
		return fmt.Sprintf("only %d volumes are published", published())
	})
	r.kill(t)
	for _, claim := range claims {
		bed.AwaitRunning(t, namespace, claim.Name)
		_, virtual := awaitBound(t, bed.Home, namespace, claim.Name)
		eventually(t, func() bool { return backingOf(t, virtual).Annotations[keys.Unpublished] == "" }, func() string {
			return claim.Name + " is not marked as published"
		})
		assert.Equal(t, []types.UID{backingOf(t, virtual).UID}, made(claim), "backing claims of %s", claim.Name)
	}
	assert.Len(t, volumesBehind(namespace, claims), count)

	for _, claim := range claims {
		must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), claim.Name)
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
	kept, doomed := newNamespace(t), newNamespace(t)
	type left struct {
		cluster         *testbed.Cluster
		namespace, name string
	}
	var lefts []left
	for _, namespace := range []string{kept, doomed} {
		bed.WestStorage.SetClaim(namespace, "far", never)
		bed.CreateClaim(t, fabric.NewClaim(namespace, "far", class))
		bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "far", "far")))
		near := bed.CreateClaim(t, fabric.NewClaim(namespace, "near", class))
		bed.HomeStorage.SetClaim(fabric.Storage, twinOf(near), never)
		bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "near", "near")))
		lefts = append(lefts, left{bed.West, namespace, "far"}, left{bed.Home, fabric.Storage, twinOf(near)})
	}
	for _, l := range lefts {
		eventually(t, func() bool { return claimOf(t, l.cluster, l.namespace, l.name) != nil }, func() string {
			return "there is no backing claim"
		})
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
		awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, kept, name) })
	}
	deleteNamespace(t, bed.Home, doomed)
	awaitNamespaceGone(t, bed.Home, doomed)
	for _, l := range lefts {
		require.NotNil(t, claimOf(t, l.cluster, l.namespace, l.name), "nobody is there to remove it yet")
	}

	startProvisioner(t)
	started = true
	for _, l := range lefts {
		awaitAbsent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, l.cluster, l.namespace, l.name) })
	}
}

// refuseVolumes makes home refuse the volumes of a class.
func refuseVolumes(t *testing.T, class string) (undo func()) {
	t.Helper()
	return refuse(t, bed.Home, class, "persistentvolumes", "object.spec.storageClassName == '"+class+"'", func(ctx context.Context) error {
		_, err := bed.Home.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: class},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName:       class,
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/"}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

func TestVolumeThatCannotBeCreatedForAWhileIsCreatedLater(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		class := newClass(t)
		twins, shadows := watchClaims(t, bed.Home, fabric.Storage), watchClaims(t, bed.West, namespace)
		undo := refuseVolumes(t, class)
		claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		made := func() int { return len(twins(twinOf(claim))) + len(shadows("data")) }
		eventually(t, func() bool { return made() == 1 }, func() string { return "there is no backing claim" })
		assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "VolumeNotStored"), twinOf(claim))
		assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))

		undo()
		_, virtual := awaitBound(t, bed.Home, namespace, "data")
		bed.AwaitRunning(t, namespace, "db")
		require.NotNil(t, backingOf(t, virtual))
		assert.Equal(t, 1, made(), "the backing claim was made anew")
	})
}

func TestClaimThatIsDeletedWhileItsVolumeCannotBeCreatedLeavesNothing(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		class := newClass(t)
		undo := refuseVolumes(t, class)
		claim := bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		await.Event(t, bed.Home.Client(), namespace, "data", "VolumeNotStored")
		remove(t, namespace)
		awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })

		undo()
		awaitAbsent(t, "twin", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, fabric.Storage, twinOf(claim)) })
		awaitAbsent(t, "shadow", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.West, namespace, "data") })
		awaitAbsent(t, "virtual volume", func() *corev1.PersistentVolume { return volumeOf(t, bed.Home, twinOf(claim)) })
		eventually(t, func() bool { return len(bed.WestStorage.VolumesOf(namespace)) == 0 }, func() string {
			return "a real volume leaked in west"
		})
		eventually(t, func() bool {
			for _, volume := range bed.HomeStorage.VolumesOf(fabric.Storage) {
				if volume.Claim == twinOf(claim) {
					return false
				}
			}
			return true
		}, func() string { return "a real volume leaked at home" })
	})
}

func TestClaimThatIsDeletedWhileItsBackingClaimIsPendingLeavesNothing(t *testing.T) {
	onRoutes(t, func(t *testing.T, route route, namespace string) {
		class := newClass(t, with(keys.RemoteClass, fabric.WestNow))
		claim := fabric.NewClaim(namespace, "data", class)
		claim = bed.CreateClaim(t, claim)
		bed.WestStorage.SetClaim(namespace, "data", never)
		bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), never)
		bed.CreatePod(t, route.place(fabric.NewPod(namespace, "db", "data")))
		pending := func() *corev1.PersistentVolumeClaim {
			if b := claimOf(t, bed.Home, fabric.Storage, twinOf(claim)); b != nil {
				return b
			}
			return claimOf(t, bed.West, namespace, "data")
		}
		eventually(t, func() bool { return pending() != nil }, func() string { return "there is no backing claim" })
		remove(t, namespace)
		awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
		awaitAbsent(t, "backing claim", pending)
	})
}
