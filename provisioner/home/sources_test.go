package home

import (
	"fmt"
	"math"
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
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestUsedByAPodThatMayHaveACopy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a pod that may have a copy":               {want: true},
		"… even before it names one":               {change: func(p *corev1.Pod) { p.Annotations = nil }, want: true},
		"… and while it goes":                      {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, want: true},
		"a pod whose copy is proven gone":          {change: func(p *corev1.Pod) { p.Finalizers = []string{"x"} }},
		"a pod of another cluster":                 {change: func(p *corev1.Pod) { p.Spec.NodeName = "east" }},
		"a pod that was not scheduled":             {change: func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		"a pod of another namespace of the home's": {change: func(p *corev1.Pod) { p.Namespace = "bank" }},
	} {
		t.Run(name, func(t *testing.T) {
			sources, err := NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
			require.NoError(t, err)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Finalizers: []string{keys.RemotePodFinalizer},
					Annotations: map[string]string{keys.RemoteCopy: "c/s", "other": "x"}},
				Spec: corev1.PodSpec{NodeName: "west"},
			}
			if test.change != nil {
				test.change(pod)
			}
			require.NoError(t, sources.Pods.GetStore().Add(NewPod(pod)))
			assert.Equal(t, test.want, sources.Used("west", "shop-h1", "shop"))
		})
	}
}

// TestEachIsFoundAmongThoseOfItsBucket uses more objects than there are buckets.
func TestEachIsFoundAmongThoseOfItsBucket(t *testing.T) {
	sources, err := NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	const count = 2 * bucketCount
	name := func(i int) string { return fmt.Sprintf("x-%d", i) }
	for i := range count {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name(i), UID: types.UID(name(i))}
		require.NoError(t, sources.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{ObjectMeta: meta}))
		require.NoError(t, sources.Pods.GetStore().Add(&Pod{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID,
			Claims: []string{"shop/" + name(i), "shop/" + name(i+1)}}))
		meta.Namespace = ""
		require.NoError(t, sources.Attachments.GetStore().Add(&storagev1.VolumeAttachment{ObjectMeta: meta,
			Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-of-" + name(i),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(name(i))}}}))
		meta.Annotations = map[string]string{keys.Backing: "west/shop/" + name(i) + "/" + name(i)}
		// The backing claim of every third volume was recreated.
		handle := meta.Annotations[keys.Backing]
		if i%3 == 0 {
			handle = "west/shop/" + name(i) + "/first-" + name(i)
		}
		require.NoError(t, sources.Volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver,
				VolumeHandle: handle}}}}))
	}
	for i := range count {
		claim := sources.Claim(types.UID(name(i)))
		require.NotNil(t, claim)
		assert.Equal(t, name(i), claim.Name)
		assert.Equal(t, "node-of-"+name(i), sources.AttachedTo(name(i)))
		volumes := sources.VolumesOf(types.UID(name(i)))
		require.Len(t, volumes, 1)
		assert.Equal(t, name(i), volumes[0].Name)
		handle := backing.Ref{Cluster: "west", Namespace: "shop", Name: name(i), UID: types.UID(name(i))}
		if i%3 == 0 {
			assert.Nil(t, sources.VolumeOf(handle), "no volume was made with it")
			handle.UID = "first-" + handle.UID
		}
		volume := sources.VolumeOf(handle)
		require.NotNil(t, volume)
		assert.Equal(t, name(i), volume.Name)
		want := 2
		if i == 0 {
			want = 1
		}
		assert.Len(t, sources.PodsOf("shop/"+name(i)), want)
	}
	assert.Nil(t, sources.Claim("none"))
	assert.Empty(t, sources.AttachedTo("none"))
	assert.Empty(t, sources.VolumesOf("none"))
	assert.Empty(t, sources.VolumesOf("first-x-0"), "it is no more")
	assert.Nil(t, sources.VolumeOf(backing.Ref{Cluster: "west", Namespace: "shop", Name: "none", UID: "none"}))
	assert.Nil(t, sources.VolumeOf(backing.Ref{Cluster: "east", Namespace: "shop", Name: "x-1", UID: "x-1"}), "of another cluster")
	assert.Empty(t, sources.PodsOf("shop/none"))
	assert.Equal(t, count, sources.VolumesIn("west"))
}

func TestAVolumeOfARestoredClaimIsFound(t *testing.T) {
	sources, err := NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	for name, claim := range map[string]types.UID{"pvc-u1": "u1", "pvc-u0": "u2", "pvc-u3": "", "other": "u4"} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			keys.Backing: "west/shop/d/b"}},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim}}}
		if name == "other" {
			volume.Annotations = nil
		}
		require.NoError(t, sources.Volumes.GetStore().Add(volume))
	}
	assert.Equal(t, "pvc-u1", sources.Virtual("u1").Name)
	assert.Equal(t, "pvc-u0", sources.Virtual("u2").Name, "it was made for an earlier claim")
	for _, none := range []types.UID{"u0", "u3", "u4", ""} {
		assert.Nil(t, sources.Virtual(none), none)
	}
	assert.Equal(t, "pvc-u0", sources.MadeFor("u0").Name)
	assert.Nil(t, sources.MadeFor("u2"))

	again := sources.Virtual("u2").DeepCopy()
	again.Name = "pvc-u9"
	require.NoError(t, sources.Volumes.GetStore().Add(again))
	assert.Nil(t, sources.Virtual("u2"), "two volumes say to be of one claim")
}

func small[T any](t *testing.T, obj *T) *T {
	t.Helper()
	slim, err := Transform(obj)
	require.NoError(t, err)
	again, err := Transform(slim)
	require.NoError(t, err)
	assert.Equal(t, slim, again, "an informer may transform what it has transformed")
	typed, ok := controller.Object[*T](again)
	require.True(t, ok)
	return typed
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func claimOf(name, volume string, labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: labels, Finalizers: []string{"f"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			Annotations: map[string]string{
				"pv.kubernetes.io/bind-completed": "yes", keys.StorageProvisioner: keys.Driver, keys.SelectedNode: "node", keys.Routed: "west",
				"team": "a",
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: volume, StorageClassName: ptr.To("virtual"), VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: gibibyte()},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gibibyte()},
	}
}

func TestClaimKeepsWhatIsRead(t *testing.T) {
	all := claimOf("a", "", nil).Annotations
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  map[string]string
	}{
		"an unbound claim keeps all annotations, for its library may write it back": {claim: claimOf("a", "", nil), want: all},
		"a bound claim keeps what somebody may ask for": {claim: claimOf("a", "pvc-1", nil),
			want: map[string]string{keys.Routed: "west", "team": "a"}},
		"a bound backing claim keeps its node, which is compared until it is published": {
			claim: claimOf("a", "pvc-1", map[string]string{keys.ClaimUID: "uid"}),
			want:  map[string]string{keys.Routed: "west", "team": "a", keys.SelectedNode: "node"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.claim.DeepCopy()
			slim := small(t, test.claim)
			assert.Equal(t, test.want, slim.Annotations)
			assert.Nil(t, slim.ManagedFields)
			before.ManagedFields, before.Annotations = nil, slim.Annotations
			assert.Equal(t, before, slim, "nothing else is lost")
		})
	}
}

func TestVolumeKeepsWhatIsRead(t *testing.T) {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", Labels: map[string]string{keys.Cluster: "west"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			Annotations: map[string]string{"pv.kubernetes.io/bound-by-controller": "yes", "pv.kubernetes.io/provisioned-by": "csi",
				keys.Backing: "ref"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gibibyte(), ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "shop", Name: "a",
				UID: "uid", ResourceVersion: "7"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: "h",
				VolumeAttributes: map[string]string{"pool": "p"}}},
			NodeAffinity: locality.Affinity("west", nil), StorageClassName: "virtual", MountOptions: []string{"ro"},
		},
	}
	before := volume.DeepCopy()
	slim := small(t, volume)
	before.ManagedFields = nil
	delete(before.Annotations, "pv.kubernetes.io/bound-by-controller")
	assert.Equal(t, before, slim)
}

func TestOthersKeepWhatIsRead(t *testing.T) {
	node := small(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}},
		Status: corev1.NodeStatus{Images: make([]corev1.ContainerImage, 9)}})
	assert.Equal(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}}, node)
	status := corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}}
	taken, err := homeNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"a": "b"}},
		Spec:   corev1.NodeSpec{Unschedulable: true, ProviderID: "x", Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{Images: make([]corev1.ContainerImage, 9), Allocatable: status.Allocatable}})
	require.NoError(t, err)
	assert.Equal(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: status,
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}}}, taken,
		"of nodes of home it is used which pods they take")
	attachment := small(t, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": "b"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")}}})
	assert.Equal(t, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")}}},
		attachment)
	namespace := small(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}})
	assert.Equal(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		namespace)
}

func TestPodKeepsItsClaims(t *testing.T) {
	slim, err := Transform(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Finalizers: []string{"f"}},
		Spec: corev1.PodSpec{NodeName: "node", Containers: make([]corev1.Container, 3), Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed},
	})
	require.NoError(t, err)
	assert.Equal(t, &Pod{
		Namespace: "shop", Name: "web", Finalizers: []string{"f"},
		Node: "node", Phase: corev1.PodFailed, Claims: []string{"shop/data", "shop/web-scratch"}, Grace: 30,
	}, slim)
	assert.True(t, slim.(*Pod).Finished())
	again, err := Transform(slim)
	require.NoError(t, err)
	assert.Same(t, slim, again)
}

func TestPodHasEndedOnceNothingOfItRuns(t *testing.T) {
	running := []corev1.ContainerStatus{{}, {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for name, row := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"it runs":                     {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: running}, false},
		"it is started again":         {corev1.PodStatus{Phase: corev1.PodRunning}, false},
		"it has ended":                {corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: running[:1]}, true},
		"somebody says it has failed": {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: running}, false},
		"a sidecar runs":              {corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: running}, false},
		"somebody looks into it":      {corev1.PodStatus{Phase: corev1.PodFailed, EphemeralContainerStatuses: running}, false},
	} {
		assert.Equal(t, row.want, NewPod(&corev1.Pod{Status: row.status}).Ended(), name)
	}
}

func TestPodMayTakeTheLongestOfItsGracePeriods(t *testing.T) {
	with := func(spec, deletion *int64) int64 {
		return NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: deletion},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: spec}}).Grace
	}
	assert.EqualValues(t, 30, with(nil, nil))
	assert.EqualValues(t, 0, with(ptr.To[int64](0), nil))
	assert.EqualValues(t, 5, with(ptr.To[int64](5), ptr.To[int64](0)))
	assert.EqualValues(t, 600, with(ptr.To[int64](5), ptr.To[int64](600)))
	assert.EqualValues(t, longestGrace, with(ptr.To[int64](math.MaxInt64), nil))
}
