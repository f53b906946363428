package claims

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// patientWorld is a home cluster in which somebody has deleted a twin, with the reactions
// of Kubernetes and of the real storage.
type patientWorld struct {
	*fake.Clientset
	t *testing.T
	// requests counts the provisioner's requests; fail decides the result of each.
	requests int
	fail     func(n int, action clienttesting.Action) error
	made     int
}

const (
	healedClaim = types.UID("c1")
	storage     = "lodestone-storage"
)

func newPatient(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy) *patientWorld {
	t.Helper()
	virtual := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-c1", UID: "v1", Annotations: map[string]string{
		keys.Backing: "home/" + storage + "/pvc-c1/old", keys.BackingVolume: "real"}}}
	virtual.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: healedClaim}
	virtual.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	virtual.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("2Gi")}
	virtual.Status.Phase = corev1.VolumeBound
	real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "r1"}}
	real.Spec.ClaimRef = &corev1.ObjectReference{Namespace: storage, Name: "pvc-c1", UID: "old"}
	real.Spec.PersistentVolumeReclaimPolicy, real.Spec.StorageClassName = policy, "fast"
	real.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("2Gi")}
	real.Status.Phase = corev1.VolumeBound
	twin := backing.Again(virtual, real, types.NamespacedName{Namespace: storage, Name: "pvc-c1"}, "here")
	twin.UID, twin.DeletionTimestamp, twin.Status.Phase = "old", ptr.To(metav1.Now()), corev1.ClaimBound
	w := &patientWorld{t: t, Clientset: fake.NewClientset(virtual, real, twin)}
	w.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.requests++
		if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
			create.GetObject().(*corev1.PersistentVolumeClaim).UID = types.UID(fmt.Sprintf("new-%d", w.made+1))
		}
		if w.fail != nil {
			if err := w.fail(w.requests, action); err != nil {
				return true, nil, err
			}
		}
		w.count(action)
		return false, nil, nil
	})
	return w
}

func (w *patientWorld) count(action clienttesting.Action) {
	if action.GetVerb() == "create" {
		w.made++
	}
}

func stored[T any](w *patientWorld, kind, namespace, name string) *T {
	obj, err := w.Tracker().Get(corev1.SchemeGroupVersion.WithResource(kind), namespace, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	typed, ok := any(obj).(*T)
	require.True(w.t, ok)
	return typed
}

func (w *patientWorld) volume(name string) *corev1.PersistentVolume {
	return stored[corev1.PersistentVolume](w, "persistentvolumes", "", name)
}

func (w *patientWorld) twin() *corev1.PersistentVolumeClaim {
	return stored[corev1.PersistentVolumeClaim](w, "persistentvolumeclaims", storage, "pvc-c1")
}

// live makes Kubernetes and the real storage react.
func (w *patientWorld) live() {
	claims, volumes := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
		corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	twin, real := w.twin(), w.volume("real")
	if twin != nil && twin.DeletionTimestamp != nil && len(twin.Finalizers) == 0 {
		require.NoError(w.t, w.Tracker().Delete(claims, storage, twin.Name))
		twin = nil
	}
	switch ref := real.Spec.ClaimRef; {
	case ref.UID == "" && twin != nil && twin.Spec.VolumeName == real.Name:
		ref.UID, real.Status.Phase, twin.Status.Phase = twin.UID, corev1.VolumeBound, corev1.ClaimBound
		require.NoError(w.t, w.Tracker().Update(claims, twin, storage))
	case ref.UID == "":
		real.Status.Phase = corev1.VolumeAvailable
	case twin == nil || twin.UID != ref.UID:
		real.Status.Phase = corev1.VolumeReleased
		require.Equal(w.t, corev1.PersistentVolumeReclaimRetain, real.Spec.PersistentVolumeReclaimPolicy, "the data is deleted")
	}
	require.NoError(w.t, w.Tracker().Update(volumes, real, ""))
}

func (w *patientWorld) observe() steps.Observation {
	o := steps.Observation{Now: time.Now(), UID: healedClaim, Volume: w.volume("pvc-c1"), Real: w.volume("real"),
		Cluster: func(string) steps.Cluster {
			return steps.Cluster{Usable: true, Seen: true, ClusterClasses: route.ClusterClasses{Known: true}}
		}}
	if twin := w.twin(); twin != nil {
		b := steps.Backing{Cluster: keys.Home, Claim: twin}
		if o.Real.Spec.ClaimRef.UID == twin.UID {
			b.Volume = o.Real
		}
		o.Backings = append(o.Backings, b)
	}
	return o
}

// treat runs a provisioner until there is nothing to do or a request fails.
func (w *patientWorld) treat(prompt bool) error {
	metrics := NewMetrics(prometheus.NewRegistry())
	f := New(Config{Client: w, Place: backing.Place{HomeID: "here", StorageNamespace: storage}, Recorder: record.NewFakeRecorder(100),
		Metrics: metrics})
	idle := 0
	for range 60 {
		o := w.observe()
		step := decide.Next(o)
		if step.Action == nil {
			if idle++; idle > 3 {
				return nil
			}
			w.live()
			continue
		}
		idle = 0
		require.Equal(w.t, "Heal", step.Verb())
		if err := f.healBacking(w.t.Context(), o, step.Action.(steps.HealBacking)); err != nil {
			return err
		}
		if prompt {
			w.live()
		}
	}
	w.t.Fatal("it does not come to an end")
	return nil
}

func (w *patientWorld) healed(policy corev1.PersistentVolumeReclaimPolicy) {
	twin, real, virtual := w.twin(), w.volume("real"), w.volume("pvc-c1")
	require.NotNil(w.t, twin)
	assert.Nil(w.t, twin.DeletionTimestamp)
	assert.Equal(w.t, types.UID("new-1"), twin.UID, "it is made once")
	assert.True(w.t, backing.Protected(twin) && backing.IsOf(twin, healedClaim, "here") && !backing.Unpublished(twin))
	assert.Equal(w.t, twin.UID, real.Spec.ClaimRef.UID)
	assert.Equal(w.t, policy, real.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(w.t, backing.RefTo(keys.Home, twin).String(), virtual.Annotations[keys.Backing])
	assert.NotContains(w.t, virtual.Annotations, keys.Healing)
}

func TestATwinThatSomebodyDeletedIsMadeAnewWhereverTheProvisionerEnds(t *testing.T) {
	for _, policy := range []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain} {
		for _, prompt := range []bool{true, false} {
			whole := newPatient(t, policy)
			require.NoError(t, whole.treat(prompt))
			whole.healed(policy)
			require.GreaterOrEqual(t, whole.requests, 6)
			for end := 1; end <= whole.requests; end++ {
				for _, carriedOut := range []bool{false, true} {
					w := newPatient(t, policy)
					w.fail = func(n int, action clienttesting.Action) error {
						if n == end && carriedOut && action.GetVerb() != "get" {
							_, _, err := clienttesting.ObjectReaction(w.Tracker())(action)
							require.NoError(t, err)
							w.count(action)
						}
						if n >= end {
							return errors.New("killed")
						}
						return nil
					}
					require.Error(t, w.treat(prompt), "request %d", end)
					w.fail = nil
					w.live()
					require.NoError(t, w.treat(prompt))
					w.healed(policy)
				}
			}
		}
	}
}

// Caches may be stale, so the API server decides.
func TestHealingAsksBeforeWhatCannotBeUndone(t *testing.T) {
	for cure, spoil := range map[steps.Cure]func(o *steps.Observation){
		steps.LetGo: func(o *steps.Observation) {
			o.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		steps.Free: func(o *steps.Observation) {
			o.Real.Spec.PersistentVolumeReclaimPolicy, o.Backings = corev1.PersistentVolumeReclaimRetain, nil
		},
		steps.Restore: func(o *steps.Observation) {
			o.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
			o.Backings[0].Claim.DeletionTimestamp = nil
		},
	} {
		t.Run(string(cure), func(t *testing.T) {
			w := newPatient(t, corev1.PersistentVolumeReclaimDelete)
			o := w.observe()
			o.Volume.Annotations[keys.Healing] = "Delete"
			spoil(&o)
			step, _ := decide.Next(o).Action.(steps.HealBacking)
			require.Equal(t, cure, step.Cure)
			before := fmt.Sprint(w.twin(), w.volume("real"))
			f := New(Config{Client: w, Place: backing.Place{HomeID: "here", StorageNamespace: storage}})
			require.ErrorIs(t, f.healBacking(t.Context(), o, step), errChanged)
			assert.Equal(t, before, fmt.Sprint(w.twin(), w.volume("real")))
		})
	}
}
