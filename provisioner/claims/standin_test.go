package claims

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// served is a fake discovery with the VolumeSnapshot API.
type served struct {
	discovery.ServerResourcesInterface
}

func (served) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "volumesnapshots"}, {Name: "volumesnapshotcontents"}}}, nil
}

// restoring is claim shop/restored, to be created at home from snapshot shop/friday.
type restoring struct {
	*testing.T
	client *fake.Clientset
	custom *dynamicfake.FakeDynamicClient
	writes int
	failAt int
	// lost: the failing write takes effect.
	lost bool
}

func newRestoring(t *testing.T, failAt int, lost bool) *restoring {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "restored", UID: "u1", Annotations: map[string]string{
			keys.SelectedNode: "node-1", keys.StorageProvisioner: keys.Driver}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("lodestone"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: "friday"},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	r := &restoring{T: t, failAt: failAt, lost: lost, client: fake.NewClientset(claim),
		custom: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
			runtime.NewScheme(), map[schema.GroupVersionResource]string{volumesnapshot.Snapshots: "VolumeSnapshotList",
				volumesnapshot.Contents: "VolumeSnapshotContentList"})}
	meta := metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind}
	r.put(volumesnapshot.Snapshots,
		&volumesnapshot.Snapshot{TypeMeta: meta, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "friday", UID: "f1"},
			Status: volumesnapshot.SnapshotStatus{ContentName: ptr.To("content-f1")}}, true)
	meta.Kind += "Content"
	r.put(volumesnapshot.Contents, &volumesnapshot.Content{TypeMeta: meta, ObjectMeta: metav1.ObjectMeta{Name: "content-f1", UID: "c1"},
		Spec: volumesnapshot.ContentSpec{
			Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "friday", UID: "f1"}, DeletionPolicy: volumesnapshot.Delete,
			Driver: "disk.csi.dev",
			Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("volume-1")}},
		Status: volumesnapshot.ContentStatus{SnapshotHandle: ptr.To("handle-1"), ReadyToUse: ptr.To(true)}}, true)
	for _, verb := range []string{"create", "patch", "delete"} {
		r.client.PrependReactor(verb, "persistentvolumeclaims", r.react(func() clienttesting.ObjectTracker { return r.client.Tracker() }))
		r.custom.PrependReactor(verb, "*", r.react(func() clienttesting.ObjectTracker { return r.custom.Tracker() }))
	}
	return r
}

// react makes one write fail.
func (r *restoring) react(tracker func() clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.writes++
		if r.writes-1 != r.failAt {
			return false, nil, nil
		}
		if r.lost {
			if _, _, err := clienttesting.ObjectReaction(tracker())(action); err != nil {
				return true, nil, err
			}
		}
		return true, nil, errInjected
	}
}

func (r *restoring) put(at schema.GroupVersionResource, object metav1.Object, create bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(r, err)
	encoded, err := volumesnapshot.Write(object)
	require.NoError(r, err)
	encoded.Object = content
	if create {
		require.NoError(r, r.custom.Tracker().Create(at, encoded, object.GetNamespace()))
		return
	}
	require.NoError(r, r.custom.Tracker().Update(at, encoded, object.GetNamespace()))
}

// see returns an object of the snapshot API, nil if there is none.
func see[T any](r *restoring, at schema.GroupVersionResource, namespace, name string) *T {
	found, err := r.custom.Resource(at).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r, err)
	object, err := volumesnapshot.Read[T](found)
	require.NoError(r, err)
	return object
}

// step takes one step of a freshly started provisioner.
func (r *restoring) step() string {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	sources, err := home.NewSources(informers.NewSharedInformerFactory(r.client, 0))
	require.NoError(r, err)
	claims, err := r.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	require.NoError(r, err)
	for i := range claims.Items {
		require.NoError(r, sources.Claims.GetStore().Add(&claims.Items[i]))
	}
	volumes, err := r.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	require.NoError(r, err)
	for i := range volumes.Items {
		require.NoError(r, sources.Volumes.GetStore().Add(&volumes.Items[i]))
	}
	for name, provisioner := range map[string]string{"lodestone": keys.Driver, "fast": "disk.csi.dev"} {
		require.NoError(r, sources.Classes.GetStore().Add(&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name,
				Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": fmt.Sprint(name == "fast")}},
			Provisioner: provisioner, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}))
	}
	require.NoError(r, sources.Nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}))
	metrics := NewMetrics(prometheus.NewRegistry())
	taken := home.NewSnapshots(r.custom, served{})
	go taken.Run(ctx)
	require.Eventually(r, func() bool { return taken.State() == home.Served }, 10*time.Second, time.Millisecond)
	f := New(Config{
		Client: r.client, Sources: sources, Snapshots: taken,
		Clusters: remote.New(remote.Config{Objects: cache.NewSharedIndexInformer(nil, nil, 0, nil)}),
		Place:    backing.Place{HomeID: "h1", StorageNamespace: "storage"}, Recorder: record.NewFakeRecorder(100), Metrics: metrics,
		Publisher: publishing{r: r},
	})
	o := f.observe("u1", false)
	next := decide.Next(o)
	if result := f.perform(context.WithoutCancel(ctx), o, next); result.err != nil {
		require.ErrorIs(r, result.err, errInjected)
	}
	return next.Verb()
}

// publishing creates the virtual volume at once and binds its claim.
type publishing struct {
	idlePublisher
	r *restoring
}

func (p publishing) Publish(claim *corev1.PersistentVolumeClaim, get func() *corev1.PersistentVolume) {
	volume := get()
	require.NotNil(p.r, volume)
	volume.UID, volume.Status.Phase = "v1", corev1.VolumeBound
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	require.NoError(p.r, p.r.client.Tracker().Add(volume))
	bound := claim.DeepCopy()
	bound.Spec.VolumeName, bound.Status.Phase = volume.Name, corev1.ClaimBound
	require.NoError(p.r, p.r.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), bound, bound.Namespace))
}

// play acts as the snapshot controller and the real provisioner.
func (r *restoring) play() {
	if s := see[volumesnapshot.Snapshot](r, volumesnapshot.Snapshots, "storage", "pvc-u1"); s != nil && s.UID == "" {
		c := see[volumesnapshot.Content](r, volumesnapshot.Contents, "", "lodestone-pvc-u1")
		require.NotNil(r, c, "a snapshot without a content")
		s.UID, s.Status = "s1", volumesnapshot.SnapshotStatus{ContentName: &c.Name, ReadyToUse: ptr.To(true)}
		c.Spec.Snapshot.UID = "s1"
		r.put(volumesnapshot.Snapshots, s, false)
		r.put(volumesnapshot.Contents, c, false)
	}
	twin, err := r.client.CoreV1().PersistentVolumeClaims("storage").Get(r.Context(), "pvc-u1", metav1.GetOptions{})
	if apierrors.IsNotFound(err) || twin.Spec.VolumeName != "" {
		return
	}
	require.NoError(r, err)
	require.NotNil(r, see[volumesnapshot.Snapshot](r, volumesnapshot.Snapshots, "storage", "pvc-u1"), "a twin without its source")
	twin.UID, twin.Spec.VolumeName, twin.Status.Phase = "b1", "real", corev1.ClaimBound
	require.NoError(r, r.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), twin, twin.Namespace))
	require.NoError(r, r.client.Tracker().Add(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "v2", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "disk.csi.dev"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: twin.Spec.Resources.Requests, AccessModes: twin.Spec.AccessModes,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "storage", Name: "pvc-u1", UID: "b1"},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.dev",
				VolumeHandle: "volume-2"}},
		},
	}))
}

// TestARestoreSurvivesARestartAtEachOfItsWrites starts a new provisioner for each step and
// makes each write fail in turn, with and without effect.
func TestARestoreSurvivesARestartAtEachOfItsWrites(t *testing.T) {
	// Stand-in content and snapshot, the backing claim and its mark, and both deletions.
	const writes = 6
	for failAt := range writes + 1 {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, carried out %t", failAt, lost), func(t *testing.T) {
				t.Parallel()
				r := newRestoring(t, failAt, lost)
				idle := 0
				for steps := 0; idle < 2; steps++ {
					require.Less(t, steps, 4*writes, "it does not come to rest")
					if idle++; r.step() != "Idle" {
						idle = 0
					}
					r.play()
				}
				twin, err := r.client.CoreV1().PersistentVolumeClaims("storage").Get(t.Context(), "pvc-u1", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, "pvc-u1", twin.Spec.DataSource.Name)
				assert.Equal(t, volumesnapshot.Kind, twin.Spec.DataSource.Kind)
				assert.False(t, backing.Unpublished(twin))
				_, err = r.client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-u1", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Nil(t, see[volumesnapshot.Snapshot](r, volumesnapshot.Snapshots, "storage", "pvc-u1"))
				assert.Nil(t, see[volumesnapshot.Content](r, volumesnapshot.Contents, "", "lodestone-pvc-u1"))
				assert.NotNil(t, see[volumesnapshot.Snapshot](r, volumesnapshot.Snapshots, "shop", "friday"), "the user's own stays")
				assert.NotNil(t, see[volumesnapshot.Content](r, volumesnapshot.Contents, "", "content-f1"))
				assert.GreaterOrEqual(t, r.writes, writes)
			})
		}
	}
}
