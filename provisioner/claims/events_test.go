package claims

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

func refusedBy(t *testing.T, clusters ...string) string {
	t.Helper()
	var all []locality.Refusal
	for _, id := range clusters {
		all = append(all, locality.Refusal{Cluster: id, Reason: "Test", Until: time.Now().Add(time.Minute)})
	}
	encoded, err := locality.EncodeRefusals(all)
	require.NoError(t, err)
	return encoded
}

func TestOpened(t *testing.T) {
	for name, row := range map[string]struct {
		before, after map[string]string
		volume        string
		want          bool
	}{
		"nothing changed": {before: map[string]string{keys.Class: "fast"}, after: map[string]string{keys.Class: "fast"}},
		"a refusal is over": {
			before: map[string]string{keys.Refused: refusedBy(t, "west")}, want: true,
		},
		"one refusal of two is over": {
			before: map[string]string{keys.Refused: refusedBy(t, "west", "east")},
			after:  map[string]string{keys.Refused: refusedBy(t, "east")}, want: true,
		},
		"a new refusal closes": {after: map[string]string{keys.Refused: refusedBy(t, "west")}},
		"the user chooses another class": {
			before: map[string]string{keys.Class: "wrong"}, after: map[string]string{keys.Class: "fast"}, want: true,
		},
		"a node is selected meanwhile": {
			before: map[string]string{keys.Refused: refusedBy(t, "west")}, after: map[string]string{keys.SelectedNode: "home-1"},
		},
		"a bound claim is no longer held by a move": {
			before: map[string]string{keys.Move: "uid", keys.SelectedNode: "home-1"}, after: map[string]string{keys.SelectedNode: "home-1"},
			volume: "pvc-1", want: true,
		},
		"a move begins": {after: map[string]string{keys.Move: "uid"}, volume: "pvc-1"},
		"a class is written on a bound claim": {
			after: map[string]string{keys.Class: "fast"}, volume: "pvc-1",
		},
		"a touch opens nothing": {after: map[string]string{keys.ClusterChanged: "now"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
			before.Annotations, after.Annotations = row.before, row.after
			before.Spec.VolumeName, after.Spec.VolumeName = row.volume, row.volume
			assert.Equal(t, row.want, mayOpenPods(before, after))
		})
	}
}

// When a namespace is opened, pods in it wait for a claim without a volume, for a claim
// whose volume is in a cluster that they may now use, and for others.
func TestPodsOfANamespaceThatIsOpenedAreWoken(t *testing.T) {
	sources, err := home.NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	require.NoError(t,
		sources.Classes.GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver}))
	claim := func(namespace, name string, bound, virtual bool, pods ...corev1.PodSpec) {
		uid := types.UID(namespace + "-" + name)
		pvc := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
		}
		if bound {
			pvc.Spec.VolumeName = "pvc-" + string(uid)
		}
		require.NoError(t, sources.Claims.GetStore().Add(pvc))
		if virtual {
			require.NoError(t, sources.Volumes.GetStore().Add(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName, Annotations: map[string]string{keys.Backing: "west/shop/data/uid"}},
				Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: uid}},
			}))
		}
		for _, spec := range pods {
			spec.Volumes = []corev1.Volume{
				{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}},
			}
			require.NoError(t,
				sources.Pods.GetStore().Add(home.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-of-" + name},
					Spec: spec})))
		}
	}
	waiting, running := corev1.PodSpec{}, corev1.PodSpec{NodeName: "west"}
	claim("shop", "unbound", false, false)
	claim("shop", "bound", true, true, waiting)
	claim("shop", "in-use", true, true, running)
	claim("shop", "idle", true, true)
	claim("shop", "foreign", true, false, waiting)
	claim("other", "unbound", false, false)
	claim("other", "bound", true, true, waiting)

	f := New(Config{Sources: sources})
	namespace := func(offload string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: offload}}}
	}
	f.namespaceChanged(namespace("x"), namespace("x"))
	assert.Empty(t, f.memory.claims, "nothing was opened")
	f.namespaceChanged(namespace(""), namespace(keys.OffloadEnabled))
	woken := map[types.UID]bool{}
	for range 2 {
		uid, _ := f.queue.Get()
		woken[uid] = true
		assert.NotEmpty(t, f.memory.of(uid).changed(time.Now()))
	}
	assert.Equal(t, map[types.UID]bool{"shop-unbound": true, "shop-bound": true}, woken)
	assert.Len(t, f.memory.claims, 2)
}

// kube-scheduler found no room for the pods of claims without a node.
func TestPodsThatFoundNoRoomAreWokenWhenNobodyAsksForAnyMore(t *testing.T) {
	sources, err := home.NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	require.NoError(t,
		sources.Classes.GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver}))
	for name, annotations := range map[string]map[string]string{"waits": nil, "has-a-node": {keys.SelectedNode: "node-1"}} {
		require.NoError(t, sources.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Annotations: annotations},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
		}))
	}
	f := New(Config{Sources: sources})
	f.RoomReleased()
	assert.Len(t, f.memory.claims, 1)
	uid, _ := f.queue.Get()
	assert.Equal(t, types.UID("waits"), uid)
}

func TestAClaimThatIsRousedTwiceIsToldInTheEnd(t *testing.T) {
	sources, err := home.NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	require.NoError(t,
		sources.Classes.GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver}))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
	}
	require.NoError(t, sources.Claims.GetStore().Add(claim))
	f := New(Config{Sources: sources, Clusters: remote.New(remote.Config{}), Publisher: nobody{}})
	f.requeuePodsSoon(claim, "namespace shop")
	// In practice the namespace is granted in the other cluster a moment later.
	time.Sleep(settleTime / 5)
	f.requeuePodsSoon(claim, "cluster west")
	var changed string
	for changed == "" {
		uid, _ := f.queue.Get()
		changed = f.observe(uid, false).Changed
		f.queue.Done(uid)
	}
	assert.Equal(t, "cluster west", changed)
}

func TestAChangeIsToldOnceItIsDue(t *testing.T) {
	m := newMemory()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	soon := noon.Add(time.Second)
	m.setChange("uid", "cluster west", soon)
	assert.Empty(t, m.of("uid").changed(noon), "others have not seen it yet")
	m.settled("uid")
	m.retried("uid", noon)
	assert.Equal(t, "cluster west", m.of("uid").changed(soon), "what is not due yet stays")
	m.retried("uid", soon)
	assert.Empty(t, m.of("uid").changed(soon))
	assert.Equal(t, retryAgain, m.of("uid").dueIn(soon))
	again := soon.Add(retryAgain)
	assert.Equal(t, "cluster west", m.of("uid").changed(again), "an extender may have been late")
	m.retried("uid", again)
	assert.Empty(t, m.claims, "and that was the last time")
	m.setChange("uid", "cluster west", soon)
	m.settled("uid")
	assert.Equal(t, "cluster west", m.of("uid").changed(soon), "pods may wait for a claim that has its volume")
	m.setChange("uid", "cluster west", soon)
	m.forget("uid")
	assert.Empty(t, m.claims)
}

// nobody is a Publisher that creates no volumes.
type nobody struct{ Publisher }

func (nobody) HandedOut(types.UID) bool { return false }
func (nobody) Forget(types.UID)         {}
func (nobody) ForgetVolume(types.UID)   {}

// Most fields of a class are immutable, so a change means deleting and recreating it.
func TestAVolumeIsLookedAtWhenARealClassComesOrGoes(t *testing.T) {
	sources, err := home.NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	require.NoError(t, sources.Volumes.GetStore().Add(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", Annotations: map[string]string{keys.Backing: "home/storage/pvc-u1/b1"}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "u1"}},
	}))
	class := func(provisioner, version string, grows bool) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk", ResourceVersion: version}, Provisioner: provisioner,
			AllowVolumeExpansion: &grows}
	}
	fixed, grows, virtual := class("disk.csi.dev", "1", false), class("disk.csi.dev", "2", true), class(keys.Driver, "3", true)
	for name, row := range map[string]struct {
		before, after *storagev1.StorageClass
		want          int
	}{
		"it goes":            {before: fixed, want: 1},
		"it comes":           {after: grows, want: 1},
		"it may grow now":    {before: fixed, after: grows, want: 1},
		"it is as it was":    {before: grows, after: class("disk.csi.dev", "4", true)},
		"a virtual one goes": {before: virtual},
	} {
		f := New(Config{Sources: sources})
		f.classChanged(row.before, row.after)
		assert.Equal(t, row.want, f.queue.Len(), name)
	}
}
