package remote

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

func shadowOf(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: "6a4f-1", ResourceVersion: "7", Labels: map[string]string{keys.HomeID: "here"}}}
	if change != nil {
		change(shadow)
	}
	return shadow
}

func TestTrustedTakesWhatAnAPIServerStores(t *testing.T) {
	shadow := shadowOf(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1.5Gi")}
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Ei")}
	})
	trusted, err := Trusted(shadow.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, shadow, trusted)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "v"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1e3")}}}
	trusted, err = Trusted(volume.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, volume, trusted)

	odd := volume.DeepCopy()
	odd.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"x", corev1.ReadWriteOnce, "y"}
	trusted, err = Trusted(odd)
	require.NoError(t, err)
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	assert.Equal(t, volume, trusted, "no other volume could have that")
}

func TestTrustedLeavesTheNameAloneOfWhatIsBroken(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"a UID that is a path":       func(c *corev1.PersistentVolumeClaim) { c.UID = "a/b" },
		"no UID":                     func(c *corev1.PersistentVolumeClaim) { c.UID = "" },
		"a name that is a path":      func(c *corev1.PersistentVolumeClaim) { c.Name = "../../secrets/x" },
		"a name with its namespace":  func(c *corev1.PersistentVolumeClaim) { c.Namespace, c.Name = "", "shop/data" },
		"a namespace that is a path": func(c *corev1.PersistentVolumeClaim) { c.Namespace = "shop/.." },
		"a long name":                func(c *corev1.PersistentVolumeClaim) { c.Name = strings.Repeat("a", 5000) },
		"more than an API server stores": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"x": strings.Repeat("x", maxObject)}
		},
		"owners without end": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = make([]metav1.OwnerReference, maxEntries+1)
		},
		"a long storage class": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = ptr.To(strings.Repeat("a", 300))
		},
		"a long version": func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = strings.Repeat("1", 100) },
	} {
		t.Run(name, func(t *testing.T) {
			broken := shadowOf(change)
			trusted, err := Trusted(broken.DeepCopy())
			require.NoError(t, err)
			assert.Equal(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: broken.Namespace, Name: broken.Name, ResourceVersion: broken.ResourceVersion}}, trusted)
		})
	}
	trusted, err := Trusted(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pv", UID: "v"}})
	require.NoError(t, err)
	assert.Equal(t, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pv"}}, trusted)
	trusted, err = Trusted(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "c"},
		Provisioner: strings.Repeat("p", 300)})
	require.NoError(t, err)
	assert.Equal(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}, trusted)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mover", UID: "p"}, Status: corev1.PodStatus{PodIP: "10.1.2.3"}}
	trusted, err = Trusted(pod.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, pod, trusted)
	pod.UID = types.UID(strings.Repeat("p", 1<<20))
	trusted, err = Trusted(pod)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mover"}}, trusted)
}

func TestTrustedTakesSizesOffThatAreNone(t *testing.T) {
	for _, size := range []string{"1e1000", "-1Gi", "1e-1000", "99999999999999999999999Ei", "1e1000000000"} {
		trusted, err := Trusted(shadowOf(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}))
		require.NoError(t, err)
		shadow, ok := trusted.(*corev1.PersistentVolumeClaim)
		require.True(t, ok)
		assert.Equal(t, "here", shadow.Labels[keys.HomeID], "it is still known")
		if left, ok := shadow.Status.Capacity[corev1.ResourceStorage]; ok {
			assert.True(t, soundSize(left), size)
		}
	}
}

func TestOfASnapshotOfAnotherClusterOnlyWhatIsSoundIsKept(t *testing.T) {
	good := func() *volumesnapshot.Snapshot {
		return &volumesnapshot.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1", UID: "s1", ResourceVersion: "7",
				Labels:      map[string]string{keys.HomeID: "h1", "other": "x"},
				Annotations: map[string]string{keys.Content: "c", keys.MadeBy: "disk.csi.dev", "other": "x"}},
			Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("1Gi"))},
		}
	}
	s := good()
	TrustedSnapshot(s)
	assert.Equal(t, map[string]string{keys.HomeID: "h1"}, s.Labels)
	assert.Equal(t, map[string]string{keys.Content: "c", keys.MadeBy: "disk.csi.dev"}, s.Annotations)
	assert.True(t, *s.Status.ReadyToUse)
	assert.Equal(t, "1Gi", s.Status.RestoreSize.String())

	s = good()
	s.Status.RestoreSize = ptr.To(resource.MustParse("-1"))
	s.Status.Error = &volumesnapshot.Failure{Message: ptr.To(strings.Repeat("x", 5000))}
	s.Annotations[keys.MadeBy] = strings.Repeat("x", 5000)
	TrustedSnapshot(s)
	assert.Nil(t, s.Status.RestoreSize)
	assert.Len(t, *s.Status.Error.Message, 1024)
	assert.NotContains(t, s.Annotations, keys.MadeBy)

	for name, change := range map[string]func(*volumesnapshot.Snapshot, string){
		"a UID that is a path, and goes into a handle": func(s *volumesnapshot.Snapshot, _ string) { s.UID = "s1/shop/x" },
		"a long version":     func(s *volumesnapshot.Snapshot, long string) { s.ResourceVersion = long },
		"a long claim":       func(s *volumesnapshot.Snapshot, long string) { s.Spec.Source.ClaimName = &long },
		"a long content":     func(s *volumesnapshot.Snapshot, long string) { s.Spec.Source.ContentName = &long },
		"a long class":       func(s *volumesnapshot.Snapshot, long string) { s.Spec.ClassName = &long },
		"a long own content": func(s *volumesnapshot.Snapshot, long string) { s.Status.ContentName = &long },
	} {
		s = good()
		change(s, strings.Repeat("x", 1<<20))
		TrustedSnapshot(s)
		assert.Equal(t, &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-c1"}}, s, name)
	}
	s = good()
	s.Kind, s.APIVersion, s.GenerateName = strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20)
	s.SetSelfLink(s.Kind)
	TrustedSnapshot(s)
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Less(t, len(encoded), snapshotBytes, "no more is kept than is counted")
}

// heap returns how many bytes of the heap are in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// connected returns a connection to a cluster without objects.
func connected(t *testing.T) *connection {
	t.Helper()
	c := connect(t.Context(), "west", fake.NewClientset(), "here", nil, nil, func() {})
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), c.volumes.HasSynced, c.classes.HasSynced))
	return c
}

func TestWhatIsHeldIsCountedAsTheMemoryThatItTakes(t *testing.T) {
	const n = 20_000
	fill := func(store cache.Store, object func(name string) any) {
		for i := range n {
			trusted, err := cached(object(fmt.Sprintf("name-%d", i)))
			require.NoError(t, err)
			require.NoError(t, store.Add(trusted))
		}
	}
	for name, tell := range map[string]func(c *connection){
		"broken volumes": func(c *connection) {
			fill(c.volumes.GetStore(), func(name string) any {
				return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "none"}}
			})
		},
		"broken claims": func(c *connection) {
			watched := &claimWatch{SharedIndexInformer: informers.NewSharedInformerFactory(c.client,
				0).Core().V1().PersistentVolumeClaims().Informer()}
			c.claims["shop"] = watched
			fill(watched.GetStore(), func(name string) any {
				return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
			})
		},
		"bare nodes": func(c *connection) {
			c.nodes = c.factory.Core().V1().Nodes().Informer()
			fill(c.nodes.GetStore(), func(name string) any {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "n"}}
			})
		},
		"broken nodes": func(c *connection) {
			c.nodes = c.factory.Core().V1().Nodes().Informer()
			fill(c.nodes.GetStore(), func(name string) any {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "a/b", Labels: map[string]string{"x": strings.Repeat("x", 10_000)}}}
			})
		},
		"room": func(c *connection) {
			c.room = c.factory.Storage().V1().CSIStorageCapacities().Informer()
			fill(c.room.GetStore(), func(name string) any {
				return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "csi", UID: "c"}}
			})
		},
		"volumes with lists of nothing": func(c *connection) {
			fill(c.volumes.GetStore(), func(name string) any {
				return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v", OwnerReferences: make([]metav1.OwnerReference, 50)}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := connected(t)
			before := heap()
			tell(c)
			taken := heap() - before
			held := c.size()
			runtime.KeepAlive(c)
			assert.Greater(t, taken, n*200, "it is there")
			assert.Greater(t, held, taken)
			assert.Less(t, held, 6*taken, "no cluster is thought to tell far more than it does")
		})
	}
}

func TestOfAGroupSnapshotOfAnotherClusterOnlyWhatIsSoundIsKept(t *testing.T) {
	good := func() *volumesnapshot.GroupSnapshot {
		return &volumesnapshot.GroupSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "groupsnapshot-g1", UID: "s1", ResourceVersion: "7",
				Labels:      map[string]string{keys.ContentUID: "g1", "other": "x"},
				Annotations: map[string]string{keys.Content: "content", "other": "x"}},
			Spec: volumesnapshot.GroupSnapshotSpec{Source: volumesnapshot.GroupSnapshotSource{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
			Status: volumesnapshot.GroupSnapshotStatus{ReadyToUse: ptr.To(true)},
		}
	}
	s := good()
	TrustedGroup(s)
	assert.Equal(t, map[string]string{keys.ContentUID: "g1"}, s.Labels)
	assert.Equal(t, map[string]string{keys.Content: "content"}, s.Annotations)
	assert.Nil(t, s.Spec.Source.Selector)
	assert.True(t, *s.Status.ReadyToUse)
	s = good()
	s.Status.Error = &volumesnapshot.Failure{Message: ptr.To(strings.Repeat("x", 5000))}
	TrustedGroup(s)
	assert.LessOrEqual(t, len(*s.Status.Error.Message), 1100)
	for name, change := range map[string]func(*volumesnapshot.GroupSnapshot){
		"a UID that is a path": func(s *volumesnapshot.GroupSnapshot) { s.UID = "../x" },
		"a name too long":      func(s *volumesnapshot.GroupSnapshot) { s.Status.ContentName = ptr.To(strings.Repeat("x", 300)) },
	} {
		s := good()
		change(s)
		TrustedGroup(s)
		assert.Nil(t, s.Status.ReadyToUse, name)
		assert.Empty(t, s.UID, name)
	}
}

func TestOfTheOwnersOfASnapshotOnlyItsGroupIsKept(t *testing.T) {
	owner := func(api, kind, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: api, Kind: kind, Name: strings.Repeat("x", 100), UID: types.UID(uid)}
	}
	for uid, want := range map[string]string{"s1": "s1", "../s1": ""} {
		s := &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-1", UID: "m1", ResourceVersion: "7",
			OwnerReferences: []metav1.OwnerReference{owner("v1", "Pod", "p"),
				owner("groupsnapshot.storage.k8s.io/v1beta2", "VolumeGroupSnapshot", uid)}}}
		TrustedSnapshot(s)
		assert.Equal(t, want, volumesnapshot.GroupOf(s))
		for _, kept := range s.OwnerReferences {
			assert.Empty(t, kept.Name)
		}
	}
}
