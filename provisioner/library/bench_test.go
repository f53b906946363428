package library

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// tooOften is more than the failures after which the library gives up unless it
// is told not to.
const tooOften = 20

// bench is a running Library on a fake API server.
type bench struct {
	*Library
	client  *fake.Clientset
	allowed atomic.Bool // what Revalidate says
	asked   atomic.Int32
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
	b.Library = newLibrary(klog.Background(), Config{
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
		Revalidate: func(uid types.UID) *corev1.PersistentVolume {
			b.asked.Add(1)
			if !b.allowed.Load() {
				return nil
			}
			return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(uid)}}
		},
	}, func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, time.Millisecond)
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	t.Cleanup(func() {
		b.awaitWorkers(t)
		cancel()
		<-done
		factory.Shutdown()
	})
	return b
}

// awaitWorkers waits for the last that a worker does for a new volume. The library
// itself waits for none, and the next one writes to the scheme that they read.
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

// failing makes an action on volumes fail so many times, and counts the tries.
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
