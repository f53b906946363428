package claims

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// The remote agent recreates backing claims that are being deleted and have our finalizer.
// One that home deletes must never be in that state.
func TestAShadowThatHomeDeletesNeverLooksAsIfSomebodyElseDid(t *testing.T) {
	for end := 1; end <= 3; end++ {
		shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "b1", Finalizers: []string{keys.BackingFinalizer, "kubernetes.io/pvc-protection"}}}
		client := fake.NewClientset(shadow)
		var verbs []string
		client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if verbs = append(verbs, action.GetVerb()); len(verbs) == end {
				return true, nil, errors.New("killed")
			}
			return false, nil, nil
		})
		f := New(Config{Client: client, Clusters: remote.New(remote.Config{})})
		err := f.endShadow(t.Context(), client.CoreV1().PersistentVolumeClaims("shop"), "west", shadow)
		now, lookErr := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "shop", "data")
		switch end {
		case 1:
			require.Error(t, err)
			require.NoError(t, lookErr)
			assert.True(t, backing.Protected(now.(*corev1.PersistentVolumeClaim)), "nothing was done")
		case 2:
			require.Error(t, err)
			require.NoError(t, lookErr)
			assert.False(t, backing.Protected(now.(*corev1.PersistentVolumeClaim)), "it is let go before it is deleted")
		default:
			require.NoError(t, err)
			assert.Equal(t, []string{"patch", "delete"}, verbs)
		}
	}
}

// The removal was decided when the virtual volume did not name a real volume yet.
func TestAClaimThatHoldsTheDataOfAVolumeIsNotRemoved(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", Annotations: map[string]string{
		keys.Backing: "home/storage/pvc-u1/b1", keys.BackingVolume: "disk-1"}}}
	for name, holds := range map[string]string{"it holds the data": "disk-1", "it holds other data": "disk-2"} {
		twin := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "pvc-u1", UID: "b2"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: holds}}
		client := fake.NewClientset(volume, twin)
		f := New(Config{Client: client, Clusters: remote.New(remote.Config{}), Publisher: idlePublisher{}})
		seen := volume.DeepCopy()
		delete(seen.Annotations, keys.BackingVolume)
		o := steps.Observation{UID: "u1", Claim: &corev1.PersistentVolumeClaim{}, Volume: seen}
		err := f.removeBacking(t.Context(), o, steps.RemoveBacking{Backing: steps.Backing{Cluster: keys.Home, Claim: twin}})
		_, lookErr := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "storage", "pvc-u1")
		if holds == "disk-1" {
			require.ErrorIs(t, err, errChanged, name)
			require.NoError(t, lookErr, name)
			continue
		}
		require.NoError(t, err, name)
		require.Error(t, lookErr, name)
	}
}

// An administrator recreates the claim of a volume that is released at home.
func TestAVolumeWhoseClaimIsMadeAnewByHandIsNotGone(t *testing.T) {
	ref := backing.Ref{Cluster: keys.Home, Namespace: "shop", Name: "data", UID: "b1"}
	virtual := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.BackingVolume: "disk-1"}}}
	real := func(name, uid string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-1"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: name, UID: types.UID(uid)}}}
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "b2",
			Labels: map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h1"}, Annotations: map[string]string{keys.Claim: "shop/data"}},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "disk-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for name, row := range map[string]struct {
		objects []runtime.Object
		want    bool
	}{
		"it waits for the claim":               {objects: []runtime.Object{real("data", "")}},
		"the claim is there and not yet bound": {objects: []runtime.Object{real("data", "b2"), claim}},
		"it waits for another claim":           {objects: []runtime.Object{real("other", "")}, want: true},
		"another claim has it":                 {objects: []runtime.Object{real("data", "b2")}, want: true},
		"it is gone":                           {want: true},
	} {
		client := fake.NewClientset(row.objects...)
		f := New(Config{Client: client, Clusters: remote.New(remote.Config{}), Place: backing.Place{HomeID: "h1"}})
		gone, err := f.isGone(t.Context(), client, steps.Observation{UID: "u1", Volume: virtual}, ref)
		require.NoError(t, err, name)
		assert.Equal(t, row.want, gone, name)
	}
}

// A kubeconfig was exchanged, so that another cluster answers that there is no such claim and no such volume.
func TestAVolumeIsGoneOnlyIfItsOwnClusterSaysSo(t *testing.T) {
	ref := backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b1"}
	objects := cache.NewSharedIndexInformer(nil, nil, 0, nil)
	require.NoError(t, objects.GetStore().Add(&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}))
	f := New(Config{Clusters: remote.New(remote.Config{Objects: objects}), Place: backing.Place{HomeID: "h1"}})
	for asked, gone := range map[types.UID]bool{"uid-west": true, "uid-east": false} {
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: asked}})
		is, err := f.isGone(t.Context(), client, steps.Observation{UID: "u1", Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.BackingVolume: "disk-1", keys.ClusterUID: "uid-west"}}}}, ref)
		assert.Equal(t, gone, is, asked)
		if gone {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errChanged)
		}
	}

	// Another one takes the address between two requests.
	client, asked := fake.NewClientset(), 0
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		uid := map[bool]types.UID{true: "uid-west", false: "uid-east"}[asked == 1]
		return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}, nil
	})
	is, err := f.isGone(t.Context(), client, steps.Observation{UID: "u1", Volume: &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.BackingVolume: "disk-1", keys.ClusterUID: "uid-west"}}}}, ref)
	assert.False(t, is)
	require.ErrorIs(t, err, errChanged)
}
