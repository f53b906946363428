package scheduling_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// gravityStage is a stage with a ready remote cluster. What draws pods does not
// depend on the mode.
func gravityStage(t *testing.T) *stage {
	t.Helper()
	testbed.Require(t)
	s := newStage(t, beds["names mode"])
	s.join(metav1.ConditionTrue, standard)
	return s
}

var homeNodes = []string{"home-1", "home-2"}

// class makes a storage class of this stage; its name is returned.
func (s *stage) class(name, provisioner string, parameters map[string]string) string {
	s.t.Helper()
	class := must.Create(s.t, s.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + s.namespace}, Provisioner: provisioner, Parameters: parameters,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	s.t.Cleanup(func() {
		_ = s.Client().StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	return class.Name
}

// foreign gives a new claim a volume that Lodestone knows only by the labels that
// an administrator gave it.
func (s *stage) foreign(name string, labels map[string]string) {
	s.t.Helper()
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	// The volume comes first: Kubernetes looks for one that came later every 15 s.
	volume := must.Create(s.t, s.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name, Labels: labels},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: access, Capacity: size().Requests, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/" + name}},
		},
	})
	s.t.Cleanup(func() {
		_ = s.Client().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
	})
	must.Create(s.t, s.Client().CoreV1().PersistentVolumeClaims(s.namespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: access, StorageClassName: ptr.To(""), VolumeName: volume.Name,
			Resources: size()},
	})
	await.Until(s.t, "claim "+name+" is bound", func() bool {
		bound, err := s.Client().CoreV1().PersistentVolumeClaims(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	})
}

// awaitScores waits until the extender has seen what its scores of the virtual
// node and of a home node for a pod depend on: a preference is not corrected
// later. It is asked as kube-scheduler asks.
func (s *stage) awaitScores(pod corev1.Pod, there, here int64) {
	s.t.Helper()
	pod.Namespace = s.namespace
	names := []string{s.node, "home-1"}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &pod, NodeNames: &names})
	require.NoError(s.t, err)
	var got extenderv1.HostPriorityList
	await.Until(s.t, "the extender scores", func() bool {
		request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url()+"/prioritize", bytes.NewReader(body))
		require.NoError(s.t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		err = json.NewDecoder(response.Body).Decode(&got)
		return err == nil && assert.ObjectsAreEqual(extenderv1.HostPriorityList{{Host: s.node, Score: there}, {Host: "home-1", Score: here}}, got)
	}, func() any { return got })
}

func mounting(name string, claims ...string) corev1.Pod {
	pod := named(name)
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// Nothing confines these pods: they could run anywhere.
func TestPodsThatShareALabelledVolumeComeToIt(t *testing.T) {
	s := gravityStage(t)
	s.foreign("there", map[string]string{keys.Cluster: s.remote})
	s.foreign("here", map[string]string{keys.Cluster: keys.Home})
	s.awaitScores(mounting("x", "there"), 10, 0)
	s.awaitScores(mounting("x", "here"), 0, 10)
	for _, pod := range []string{"one", "two", "three"} {
		s.pod(named(pod), false, "there")
		assert.Equal(t, s.node, s.awaitNode(pod))
	}
	s.pod(named("four"), false, "here")
	assert.Contains(t, homeNodes, s.awaitNode("four"))
}

// The volumes of pods 0 and 1 are in the remote cluster. These pods are not there
// now, so that kube-scheduler's own spreading has nothing to do.
func TestNewVolumesOfAStatefulSetHeedTheOthers(t *testing.T) {
	s := gravityStage(t)
	for _, test := range []struct {
		set         string
		parameters  map[string]string
		there, here int64
		want        []string
	}{
		{set: "together", parameters: map[string]string{keys.Siblings: keys.SiblingsPack}, there: 10, here: 0, want: []string{s.node}},
		{set: "apart", parameters: map[string]string{keys.Siblings: keys.SiblingsSpread}, there: 0, here: 10, want: homeNodes},
	} {
		t.Run(test.set, func(t *testing.T) {
			class := s.class(test.set, keys.Driver, test.parameters)
			for _, pod := range []string{"-0", "-1"} {
				s.volume(s.claim("data-"+test.set+pod, nil), s.remote)
			}
			// A claim like that of pod 2, for the extender alone.
			s.claimOf(class, "data-"+test.set+"-3")
			like := mounting(test.set+"-3", "data-"+test.set+"-3")
			like.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: test.set, UID: "none",
				Controller: ptr.To(true)}}
			s.awaitScores(like, test.there, test.here)
			s.statefulSet(test.set, class, 2, 1)
			assert.Contains(t, test.want, s.awaitSelected("data-"+test.set+"-2"))
		})
	}
}

// kube-scheduler would rather have the fourth pod on a node where none of the
// others is.
func TestAClassThatPacksOutweighsTheSpreadingOfPods(t *testing.T) {
	s := gravityStage(t)
	class := s.class("together", keys.Driver, map[string]string{keys.Siblings: keys.SiblingsPack})
	for _, pod := range []string{"db-0", "db-1", "db-2"} {
		s.volume(s.claim("data-"+pod, nil), s.remote)
	}
	s.statefulSet("db", class, 0, 4)
	assert.Equal(t, s.node, s.awaitSelected("data-db-3"))
}

// statefulSet makes a StatefulSet with so many pods, from the ordinal first on,
// which start together.
func (s *stage) statefulSet(name, class string, first, pods int32) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	must.Create(s.t, s.Client().AppsV1().StatefulSets(s.namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &pods, Ordinals: &appsv1.StatefulSetOrdinals{Start: first}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Affinity:   s.affinity(false),
					Containers: []corev1.Container{{Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(class), Resources: size(),
				},
			}},
		},
	})
}

func (s *stage) claimOf(class, name string) {
	s.t.Helper()
	must.Create(s.t, s.Client().CoreV1().PersistentVolumeClaims(s.namespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(class), Resources: size(),
		},
	})
}

// A claim asks for 1Mi, so 100Mi would be plenty.
func TestNewVolumesComeWhereThereIsRoom(t *testing.T) {
	s := gravityStage(t)
	real := s.class("disk", "disk.example.com", nil)
	class := s.class("lodestone", keys.Driver, map[string]string{keys.LocalClass: real})
	capacity := must.Create(t, s.Client().StorageV1().CSIStorageCapacities(s.namespace), &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, StorageClassName: real,
		NodeTopology: &metav1.LabelSelector{}, Capacity: ptr.To(resource.MustParse("80Mi")),
	})
	for _, test := range []struct {
		claim       string
		home, free  string
		there, here int64
		want        []string
	}{
		{claim: "there", home: "8Mi", free: "80Mi", there: 10, here: 1, want: []string{s.node}},
		{claim: "here", home: "80Mi", free: "512Ki", there: 0, here: 10, want: homeNodes},
	} {
		t.Run(test.claim, func(t *testing.T) {
			capacity.Capacity = ptr.To(resource.MustParse(test.home))
			capacity = must.Update(t, s.Client().StorageV1().CSIStorageCapacities(s.namespace), capacity)
			s.join(metav1.ConditionTrue, v1alpha1.OfferedClass{Name: "standard", Default: true, Free: ptr.To(resource.MustParse(test.free))})
			s.claimOf(class, test.claim)
			s.awaitScores(mounting(test.claim, test.claim), test.there, test.here)
			s.pod(named(test.claim), false, test.claim)
			assert.Contains(t, test.want, s.awaitSelected(test.claim))
		})
	}
}

// seat is a resource of which each node of these tests has one, and other nodes
// none.
const seat = corev1.ResourceName("example.com/seat")

func seats() corev1.ResourceList {
	return corev1.ResourceList{
		seat: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("10"),
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
}

// seated returns a pod that takes a seat, and makes its priority class.
func (s *stage) seated(name string, priority int32) corev1.Pod {
	s.t.Helper()
	class := must.Create(s.t, s.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + rand.String(6)}, Value: priority,
	})
	s.t.Cleanup(func() {
		_ = s.Client().SchedulingV1().PriorityClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	pod := named(name)
	pod.Spec.PriorityClassName = class.Name
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{seat: resource.MustParse("1")}, Limits: corev1.ResourceList{seat: resource.MustParse("1")},
	}}}
	return pod
}

// fill makes a node with one seat and a pod that takes it.
func (s *stage) fill(node fakekubelet.Node, pod corev1.Pod) {
	s.t.Helper()
	node.Allocatable = seats()
	_, err := fakekubelet.Start(s.t.Context(), fakekubelet.Options{Config: s.AdminConfig(), Nodes: []fakekubelet.Node{node}})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = s.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	s.pod(pod, false)
	require.Equal(s.t, node.Name, s.awaitNode(pod.Name))
}

func (s *stage) exists(pod string) bool {
	found, err := s.Client().CoreV1().Pods(s.namespace).Get(s.t.Context(), pod, metav1.GetOptions{})
	return err == nil && found.DeletionTimestamp == nil
}

// urgent makes a pod of high priority whose claim home refused lately. Its claim
// has the pod's name.
func (s *stage) urgent(name string) {
	s.t.Helper()
	refused, err := locality.EncodeRefusals([]locality.Refusal{{Cluster: keys.Home, Reason: "Test", Until: time.Now().Add(time.Hour)}})
	require.NoError(s.t, err)
	s.claim(name, map[string]string{keys.Refused: refused})
	s.pod(s.seated(name, 1000), false, name)
}

// Both clusters are full, and home refused the claims of the urgent pods.
// kube-scheduler by itself would evict the pod at home, whose priority is the
// lowest: in vain, as an urgent pod is then refused there.
func TestNobodyIsEvictedWhereTheClaimCannotGo(t *testing.T) {
	inEachMode(t, func(s *stage) {
		remote := virtualNode(s.remote)
		remote.Name += "-full"
		s.fill(fakekubelet.Node{Name: "home-full-" + s.remote}, s.seated("low-at-home", 1))
		s.fill(remote, s.seated("low-in-remote", 2))

		// Nothing is known of the remote cluster yet: the pod can go nowhere.
		s.urgent("too-early")
		require.Eventually(s.t, func() bool { return s.refusal(s.t, "too-early") != "" }, long, often)
		early := must.Get(s.t, s.Client().CoreV1().Pods(s.namespace), "too-early")
		assert.Empty(s.t, early.Status.NominatedNodeName, "no node must be emptied for it: %s", s.refusal(s.t, "too-early"))
		must.Delete(s.t, s.Client().CoreV1().Pods(s.namespace), "too-early")

		// A pod that needs no seat shows that all have heard of the cluster.
		s.join(metav1.ConditionTrue, standard)
		s.claim("seatless", nil)
		s.pod(named("seatless"), true, "seatless")
		s.awaitTouched("seatless", func(node string) bool { return node != "" })

		// Now there is one place for an urgent pod, and only there somebody goes.
		s.urgent("in-time")
		require.Eventually(s.t, func() bool { return s.selected("in-time") == remote.Name }, long, often)
		assert.False(s.t, s.exists("low-in-remote"), "its seat is what the urgent pod got")
		assert.True(s.t, s.exists("low-at-home"), "it was evicted in vain")
	})
}
