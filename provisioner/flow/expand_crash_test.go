package flow

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// idlePublisher is a Publisher with nothing to do.
type idlePublisher struct{ Publisher }

func (idlePublisher) HandedOut(types.UID) bool { return false }
func (idlePublisher) Forget(types.UID)         {}
func (idlePublisher) Withdraw(types.UID) bool  { return true }

// expansion is a claim of 1 GiB that asks for 3, of an NFS volume at home.
type expansion struct {
	client *fake.Clientset
	writes int
	failAt int
	// lost: the write that fails was carried out.
	lost bool
}

func newExpansion(t *testing.T, failAt int, lost bool) *expansion {
	t.Helper()
	sized := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim := func(namespace, name string, uid types.UID, volume, request string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: sized(request)}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: sized("1Gi")},
		}
	}
	volume := func(name string, uid types.UID, of *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: sized("1Gi"), ClaimRef: &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name, UID: of.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
	}
	virtual := claim("shop", "data", "u1", "pvc-u1", "3Gi")
	twin := claim("storage", "pvc-u1", "b1", "real", "1Gi")
	twin.Labels = map[string]string{keys.ClaimUID: "u1", keys.HomeID: "home-1"}
	above := volume("pvc-u1", "v1", virtual)
	above.Annotations = map[string]string{keys.Backing: backing.RefTo(keys.Home, twin).String(), keys.BackingVolume: "real"}
	e := &expansion{client: fake.NewClientset(virtual, twin, above, volume("real", "v2", twin)), failAt: failAt, lost: lost}
	e.client.PrependReactor("patch", "*", e.react)
	return e
}

var errInjected = errors.New("the connection is lost")

// react fails one write.
func (e *expansion) react(action clienttesting.Action) (bool, runtime.Object, error) {
	e.writes++
	if e.writes-1 != e.failAt {
		return false, nil, nil
	}
	if e.lost {
		if _, _, err := clienttesting.ObjectReaction(e.client.Tracker())(action); err != nil {
			return true, nil, err
		}
	}
	return true, nil, errInjected
}

// step takes one step of a provisioner that has just been started.
func (e *expansion) step(t *testing.T) decide.Verb {
	t.Helper()
	ctx := t.Context()
	sources, err := NewSources(informers.NewSharedInformerFactory(e.client, 0))
	require.NoError(t, err)
	claims, err := e.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range claims.Items {
		require.NoError(t, sources.Claims.GetStore().Add(&claims.Items[i]))
	}
	volumes, err := e.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range volumes.Items {
		require.NoError(t, sources.Volumes.GetStore().Add(&volumes.Items[i]))
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	f := New(Config{
		Client: e.client, Sources: sources, Clusters: clusters.New(clusters.Config{Objects: cache.NewSharedIndexInformer(nil, nil, 0, nil)}),
		Place: backing.Place{HomeID: "home-1", StorageNamespace: "storage"}, Recorder: record.NewFakeRecorder(100), Metrics: metrics,
	})
	f.SetPublisher(idlePublisher{})
	o := f.observe("u1", false)
	next := decide.Next(o)
	if result := f.perform(context.WithoutCancel(ctx), o, next); result.err != nil {
		require.ErrorIs(t, result.err, errInjected)
	}
	return next.Verb
}

// grow does what whoever expands the real volume does, once it is asked.
func (e *expansion) grow(t *testing.T) {
	t.Helper()
	twin := e.claim(t, "storage", "pvc-u1")
	if want := twin.Spec.Resources.Requests[corev1.ResourceStorage]; want.Cmp(*twin.Status.Capacity.Storage()) > 0 {
		real := e.volume(t, "real")
		real.Spec.Capacity[corev1.ResourceStorage], twin.Status.Capacity[corev1.ResourceStorage] = want, want
		require.NoError(t, e.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), real, ""))
		require.NoError(t, e.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), twin, twin.Namespace))
	}
}

func (e *expansion) claim(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := e.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return claim
}

func (e *expansion) volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	volume, err := e.client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return volume
}

// TestExpansionSurvivesARestartAtEachOfItsWrites starts a new provisioner for each
// step, and has each write in turn fail, before it is carried out and after.
func TestExpansionSurvivesARestartAtEachOfItsWrites(t *testing.T) {
	const writes = 3
	for failAt := range writes + 1 {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, carried out %t", failAt, lost), func(t *testing.T) {
				e := newExpansion(t, failAt, lost)
				idle := 0
				for steps := 0; idle < 2; steps++ {
					require.Less(t, steps, 3*writes, "it does not come to rest")
					if e.step(t) == decide.Idle {
						idle++
					}
					e.grow(t)
				}
				virtual := e.claim(t, "shop", "data")
				assert.Equal(t, "3Gi", e.claim(t, "storage", "pvc-u1").Spec.Resources.Requests.Storage().String())
				assert.Equal(t, "3Gi", e.volume(t, "pvc-u1").Spec.Capacity.Storage().String())
				assert.Equal(t, "3Gi", virtual.Status.Capacity.Storage().String())
				assert.Equal(t, corev1.ClaimBound, virtual.Status.Phase)
				want := writes
				if failAt < writes && !lost {
					want++
				}
				assert.Equal(t, want, e.writes, "no write is made in vain")
			})
		}
	}
}
