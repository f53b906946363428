package pvcontroller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestNothingIsCreatedBeforeItIsPublished(t *testing.T) {
	b := start(t, nil, claim())
	require.Never(t, func() bool { return b.asked.Load() > 0 || b.volume(t) != nil }, 100*time.Millisecond, 10*time.Millisecond)
	assert.False(t, b.HandedOut("uid"))

	b.publish(claim())
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
	b.publish(claim())
	eventually(t, func() bool { return b.asked.Load() == 1 && !b.HandedOut("uid") })
	assert.Nil(t, b.volume(t))
	assert.Empty(t, b.warnings(t))

	b.allowed.Store(true)
	b.publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
}

func TestWithdrawnClaimIsNotProvisionedUnlessItIsTooLate(t *testing.T) {
	b := start(t, nil)
	b.publish(claim())
	assert.True(t, b.Withdraw("uid"))
	_, _, err := b.Provision(t.Context(), controller.ProvisionOptions{PVC: claim(), PVName: "pvc-uid"})
	assert.ErrorAs(t, err, new(*controller.IgnoredError))

	b.publish(claim())
	volume, _, err := b.Provision(t.Context(), controller.ProvisionOptions{PVC: claim(), PVName: "pvc-uid"})
	require.NoError(t, err)
	assert.Equal(t, "pvc-uid", volume.Name)
	assert.False(t, b.Withdraw("uid"))
	b.Forget("uid")
	assert.True(t, b.Withdraw("uid"))
	require.True(t, b.creates.begin("pvc-uid"), "as the library does with what it got")
	b.creates.done()
}

func TestVolumeThatCannotBeSavedIsSavedInTheEnd(t *testing.T) {
	var tries *atomic.Int32
	b := start(t, func(client *fake.Clientset) { tries = failing(client, "create", tooOften) }, claim())
	b.publish(claim())
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

func TestAVolumeThatIsMadeIsToldOnce(t *testing.T) {
	b := start(t, nil, claim())
	b.publish(claim())
	eventually(t, func() bool { return b.volume(t) != nil })
	b.awaitWorkers(t)
	events, err := b.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var reasons []string
	for _, event := range events.Items {
		reasons = append(reasons, event.Reason)
		require.Equal(t, corev1.EventTypeNormal, event.Type)
	}
	require.Equal(t, []string{"ProvisioningSucceeded"}, reasons)
}

func TestAVolumeIsSaidToBeBoundOnceItIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		phase corev1.PersistentVolumePhase
		fails bool
		want  corev1.PersistentVolumePhase
		tries int
	}{
		"while its twin is being bound":                  {phase: corev1.VolumeBound, want: corev1.VolumeBound, tries: 1},
		"and else kube-controller-manager does it":       {want: corev1.VolumePending},
		"as where it has written the volume, or may not": {phase: corev1.VolumeBound, fails: true, want: corev1.VolumePending, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var patches [][]byte
			b := start(t, func(client *fake.Clientset) {
				client.PrependReactor("create", "persistentvolumes", func(action k8stesting.Action) (bool, runtime.Object, error) {
					// As an API server does.
					made := action.(k8stesting.CreateAction).GetObject().(*corev1.PersistentVolume).DeepCopy()
					made.UID, made.ResourceVersion, made.Status = "v1", "7", corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
					return true, made, client.Tracker().Add(made)
				})
				client.PrependReactor("patch", "persistentvolumes", func(action k8stesting.Action) (bool, runtime.Object, error) {
					patches = append(patches, action.(k8stesting.PatchAction).GetPatch())
					assert.Equal(t, "status", action.GetSubresource())
					if test.fails {
						return true, nil, errors.New("changed meanwhile")
					}
					return false, nil, nil
				})
			}, claim())
			b.Publish(claim(), func() *corev1.PersistentVolume {
				return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-uid"},
					Status: corev1.PersistentVolumeStatus{Phase: test.phase}}
			})
			eventually(t, func() bool { return b.volume(t) != nil })
			b.awaitWorkers(t)
			assert.Equal(t, test.want, b.volume(t).Status.Phase)
			require.Len(t, patches, test.tries)
			if test.tries > 0 {
				assert.JSONEq(t, `{"metadata":{"uid":"v1","resourceVersion":"7"},"status":{"phase":"Bound"}}`, string(patches[0]),
					"only what was made, as long as nobody has written it")
			}
			assert.Empty(t, b.warnings(t))
		})
	}
}

// tooOften is more failures than the library accepts by default before it gives up.
const tooOften = 20

// bench is a Controller that runs against a fake API server.
type bench struct {
	*Controller
	client  *fake.Clientset
	allowed atomic.Bool // whether claims may be published
	asked   atomic.Int32
	stop    context.CancelFunc
	ended   chan struct{}
}

func start(t *testing.T, prepare func(*fake.Clientset), objects ...runtime.Object) *bench {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "virtual"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	b := &bench{client: fake.NewClientset(append(objects, class, node)...)}
	b.allowed.Store(true)
	if prepare != nil {
		prepare(b.client)
	}
	factory := informers.NewSharedInformerFactory(b.client, 0)
	core := factory.Core().V1()
	b.Controller = newController(klog.Background(), Config{
		Client: b.client, Claims: core.PersistentVolumeClaims().Informer(), Volumes: core.PersistentVolumes().Informer(),
		Classes: factory.Storage().V1().StorageClasses().Informer(), Nodes: core.Nodes().Lister(),
		Metrics: metrics.New("test"), Workers: 2,
		Find: func(uid types.UID) *corev1.PersistentVolumeClaim {
			for _, obj := range core.PersistentVolumeClaims().Informer().GetStore().List() {
				if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.UID == uid {
					return claim
				}
			}
			return nil
		},
	}, func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, time.Millisecond)
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	b.stop, b.ended = cancel, make(chan struct{})
	go func() {
		defer close(b.ended)
		b.Run(ctx)
	}()
	t.Cleanup(func() {
		b.awaitWorkers(t)
		cancel()
		<-b.ended
		factory.Shutdown()
	})
	return b
}

// publish publishes a claim whose volume may be created while allowed is true.
func (b *bench) publish(claim *corev1.PersistentVolumeClaim) {
	b.Publish(claim, func() *corev1.PersistentVolume {
		b.asked.Add(1)
		if !b.allowed.Load() {
			return nil
		}
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)}}
	})
}

// awaitWorkers waits until a worker has finished with a new volume. The library does not
// wait for its workers, and the next library writes to the scheme that they read.
func (b *bench) awaitWorkers(t *testing.T) {
	t.Helper()
	made := 0
	for _, action := range b.client.Actions() {
		if action.Matches("create", "persistentvolumes") {
			made = 1
		}
	}
	eventually(t, func() bool {
		told := 0
		for _, action := range b.client.Actions() {
			if create, ok := action.(k8stesting.CreateAction); ok && action.GetResource().Resource == "events" {
				if event, ok := create.GetObject().(*corev1.Event); ok && event.Reason == "ProvisioningSucceeded" {
					told = 1
				}
			}
		}
		return told == made
	})
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "app", Name: "data", UID: "uid",
			Annotations: map[string]string{keys.SelectedNode: "node", keys.StorageProvisioner: keys.Driver},
		},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("virtual")},
	}
}

func released() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-uid", UID: "volume",
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": keys.Driver},
			Finalizers:  []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec:   corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
}

// failing makes this many actions with a verb on volumes fail, and counts the attempts.
func failing(client *fake.Clientset, verb string, times int32) *atomic.Int32 {
	tries := &atomic.Int32{}
	client.PrependReactor(verb, "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) <= times {
			return true, nil, errors.New("not now")
		}
		return false, nil, nil
	})
	return tries
}

func (b *bench) volume(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	volumes, err := b.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	if len(volumes.Items) == 0 {
		return nil
	}
	require.Len(t, volumes.Items, 1)
	return &volumes.Items[0]
}

func (b *bench) warnings(t *testing.T) []string {
	t.Helper()
	events, err := b.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var messages []string
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning {
			messages = append(messages, event.Message)
		}
	}
	return messages
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, time.Millisecond)
}

func TestRunWaitsForAVolumeThatIsBeingCreated(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	b := start(t, func(client *fake.Clientset) {
		client.PrependReactor("create", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
			close(arrived)
			<-answer
			return false, nil, nil
		})
	}, claim())
	b.publish(claim())
	<-arrived
	b.stop()
	select {
	case <-b.ended:
		t.Error("the next leader may work beside it")
	case <-time.After(50 * time.Millisecond):
	}
	close(answer)
	<-b.ended
	require.NotNil(t, b.volume(t))
}

func TestNoVolumeIsCreatedAfterTheEnd(t *testing.T) {
	b := start(t, nil, claim())
	b.stop()
	<-b.ended
	b.publish(claim())
	_, _, err := b.Provision(t.Context(), controller.ProvisionOptions{PVC: claim(), PVName: "pvc-uid"})
	require.ErrorAs(t, err, new(*controller.IgnoredError))
	_, err = countingClient{b.client, b.creates}.CoreV1().PersistentVolumes().Create(t.Context(), released(), metav1.CreateOptions{})
	require.ErrorIs(t, err, errEnding, "nor one that could not be saved before")
	require.Nil(t, b.volume(t))
}
