// What becomes of pods of a virtual node is one file: its many short tests share the link to west that is cut, and how
// pods are refused and ended.

package remotepods

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestPodRunsInWest(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init"}}
	}))
	home, west := runs(t, namespace, "web")
	assert.Equal(t, "web", west.Labels["app"])
	assert.Equal(t, homeID, west.Labels[keys.HomeID])
	assert.Contains(t, home.Finalizers, keys.RemotePodFinalizer)
	assert.Contains(t, []string{"west-1", "west-2"}, west.Spec.NodeName)
	assert.Empty(t, home.Status.PodIP, "the pod networks are not routed")
	assert.Equal(t, "127.0.0.1", home.Status.HostIP)
	await.Until(t, "home's pod is ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	home = get(t, bed.Home, namespace, "web")
	assert.Len(t, home.Status.ContainerStatuses, 1)
	assert.Len(t, home.Status.InitContainerStatuses, 1)
	await.Until(t, "its address there is told", func() bool {
		return get(t, bed.Home, namespace, "web").Annotations[keys.RemoteIP] == west.Status.PodIP
	})

	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}

func TestGracefulDeletionIsPassedOn(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "slow", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(600)) }))
	_, west := runs(t, namespace, "slow")
	// The played kubelet ends a pod at once; a finalizer makes it take its time.
	hold(t, west, "test.dev/slow")
	remove(t, namespace, "slow", metav1.DeleteOptions{})
	await.Until(t, "the pod there is being deleted", func() bool {
		pod := get(t, bed.West, namespace, "slow")
		return pod != nil && pod.DeletionTimestamp != nil
	})
	found := shadow(t, namespace, "slow")
	require.NotNil(t, found)
	require.NotNil(t, found.Spec.GracePeriodSeconds)
	assert.Equal(t, int64(600), *found.Spec.GracePeriodSeconds)

	remove(t, namespace, "slow", forced())
	await.Until(t, "a shorter time is passed on", func() bool {
		found := shadow(t, namespace, "slow")
		return found != nil && *found.Spec.GracePeriodSeconds == 0
	})
	await.Always(t, "home's pod stays while the pod there does", func() bool { return get(t, bed.Home, namespace, "slow") != nil })
	hold(t, west, "")
	gone(t, namespace, "slow", made.UID)
}

func TestChangesFollowThePod(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	patch := []byte(`{"metadata":{"labels":{"color":"blue"},"annotations":{"note":"new"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}`)
	must.Patch(t, bed.Home.Client().CoreV1().Pods(namespace), "web", types.StrategicMergePatchType, patch)
	await.Until(t, "image, label and annotation arrive", func() bool {
		pod := get(t, bed.West, namespace, "web")
		return pod.Spec.Containers[0].Image == "app:2" && pod.Labels["color"] == "blue" && pod.Annotations["note"] == "new"
	})
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID, "it is the same pod")
}

// orphan returns a ShadowPod for a home pod that may not exist.
func orphan(namespace, name string, uid types.UID) *remotev1alpha1.ShadowPod {
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: homeID, keys.PodUID: string(uid)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true,
			Home:  remotev1alpha1.HomePod{Cluster: homeID, Namespace: namespace, Name: name, UID: uid},
			Pod:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}
}

func TestShadowPodOfNoPodIsRemoved(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	home, _ := runs(t, namespace, "web")
	for name, uid := range map[string]types.UID{"left": uuid.NewUUID(), "stray": home.UID} {
		must.Create(t, bed.Agents.ShadowPods(namespace), orphan(namespace, name, uid))
	}
	for _, name := range []string{"left", "stray"} {
		await.Until(t, "ShadowPod "+name+" and its pod are gone", func() bool {
			return shadow(t, namespace, name) == nil && get(t, bed.West, namespace, name) == nil
		})
	}
	assert.Equal(t, corev1.PodRunning, get(t, bed.Home, namespace, "web").Status.Phase)
	assert.NotNil(t, get(t, bed.West, namespace, "web"))
}

func TestNameIsFreeForTheNextPodWhenTheEarlierIsGone(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "first"))
	runs(t, namespace, "first") // the namespace is there
	left := orphan(namespace, "web", uuid.NewUUID())
	must.Create(t, bed.Agents.ShadowPods(namespace), left)
	made := create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	assert.Equal(t, string(made.UID), west.Labels[keys.PodUID])
}

func TestShadowPodDeletedInWestFailsThePod(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	must.Delete(t, bed.Agents.ShadowPods(namespace), "web")
	home := phase(t, namespace, "web", corev1.PodFailed)
	assert.Contains(t, []string{"RemotePodGone", ""}, home.Status.Reason)
	await.Until(t, "nothing holds the pod any more", func() bool {
		return len(get(t, bed.Home, namespace, "web").Finalizers) == 0
	})
	await.Always(t, "it is not made again", func() bool {
		return get(t, bed.West, namespace, "web") == nil && shadow(t, namespace, "web") == nil
	})
}

// end writes the status of a pod in west, as a kubelet does.
func end(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase, reason, message string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase, "reason": reason, "message": message}})
	require.NoError(t, err)
	_, err = bed.West.Client().CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{},
		"status")
	require.NoError(t, err)
}

// link is the way from home's programs to the API server of west: it can be cut
// while west itself works, and it can lose and delay requests.
type link struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy
	west   *url.URL

	mu     sync.Mutex
	broken bool
	// deaf: what the virtual node program asks about events is lost.
	deaf bool
	// heed is asked of every write of the virtual node program.
	heed func(*http.Request) fate
	kept []*http.Request
}

// fate is what becomes of a request.
type fate int

const (
	passes    fate = iota
	loses          // it never arrives
	unreplied      // it arrives, and its answer is lost
	late           // it is kept until deliver
)

// newLink returns a link and the kubeconfig that goes over it.
func newLink(config *rest.Config, kubeconfig []byte) (*link, []byte, error) {
	west, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, fmt.Errorf("read the address of west: %w", err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		return nil, nil, fmt.Errorf("make a transport to west: %w", err)
	}
	l := &link{west: west, proxy: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(west) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	l.server = httptest.NewUnstartedServer(l)
	l.server.EnableHTTP2 = true
	l.server.StartTLS()
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, cluster := range loaded.Clusters {
		cluster.Server = l.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw})
	}
	changed, err := clientcmd.Write(*loaded)
	return l, changed, err
}

func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch l.decide(r) {
	case loses, late:
		panic(http.ErrAbortHandler)
	case unreplied:
		l.proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case passes:
		l.proxy.ServeHTTP(w, r)
	}
}

func (l *link) decide(r *http.Request) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	program := strings.HasPrefix(r.UserAgent(), "lodestone-virtualnode")
	if l.broken || l.deaf && program && strings.HasSuffix(r.URL.Path, "/events") {
		return loses
	}
	if l.heed == nil || r.Method == http.MethodGet || !program || !aboutPods(r.URL.Path) {
		return passes
	}
	what := l.heed(r)
	if what == late {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return loses
		}
		kept := r.Clone(context.Background())
		kept.RequestURI, kept.Host = "", ""
		kept.URL.Scheme, kept.URL.Host = l.west.Scheme, l.west.Host
		kept.Body = io.NopCloser(bytes.NewReader(body))
		l.kept = append(l.kept, kept)
	}
	return what
}

// aboutPods says whether a request is about pods or ShadowPods.
func aboutPods(path string) bool {
	return strings.Contains(path, "/shadowpods") || strings.Contains(path, "/pods")
}

// heeds sets what becomes of the writes of the virtual node program, nil for
// nothing out of the ordinary.
func (l *link) heeds(heed func(*http.Request) fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heed = heed
}

// hears sets whether the virtual node program learns of events.
func (l *link) hears(events bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = !events
}

// cut cuts the link, and mend mends it.
func (l *link) cut() {
	l.mu.Lock()
	l.broken = true
	l.mu.Unlock()
	l.server.CloseClientConnections()
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

// deliver lets the kept requests arrive, and returns the status of each.
func (l *link) deliver() ([]int, error) {
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	var statuses []int
	for _, request := range kept {
		response, err := l.proxy.Transport.RoundTrip(request)
		if err != nil {
			return statuses, err
		}
		statuses = append(statuses, response.StatusCode)
		_ = response.Body.Close()
	}
	return statuses, nil
}

// TestEphemeralVolumeLivesInWestAsLongAsItsPod has a pod with a claim of its own
// beside the ephemeral volume, and then another pod of the same name.
func TestEphemeralVolumeLivesInWestAsLongAsItsPod(t *testing.T) {
	namespace := open(t)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.Class))
	handles := map[string]bool{}
	for range 2 {
		made := create(t, fabric.WithScratch(inWest(fabric.NewPod(namespace, "db", "data")), fabric.Class))
		_, west := runs(t, namespace, "db")
		assert.Equal(t, []string{"data", "db-scratch"}, claimNames(west))
		virtual := claim(t, bed.Home, namespace, "db-scratch")
		assert.True(t, metav1.IsControlledBy(virtual, made))
		backing := claim(t, bed.West, namespace, "db-scratch")
		require.Equal(t, corev1.ClaimBound, backing.Status.Phase)
		real := must.Get(t, bed.West.Client().CoreV1().PersistentVolumes(), backing.Spec.VolumeName)
		assert.False(t, handles[real.Spec.CSI.VolumeHandle], "each pod has a volume of its own")
		handles[real.Spec.CSI.VolumeHandle] = true

		remove(t, namespace, "db", metav1.DeleteOptions{})
		gone(t, namespace, "db", made.UID)
		await.Until(t, "the volume is gone", func() bool {
			_, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), virtual.Spec.VolumeName, metav1.GetOptions{})
			return apierrors.IsNotFound(err) && !bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle)
		})
		assert.Nil(t, claim(t, bed.West, namespace, "db-scratch"))
	}
	assert.NotNil(t, claim(t, bed.West, namespace, "data"), "the other claim stays")
}

// claim returns a claim of a cluster, nil if there is none.
func claim(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Find(t, cluster.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// refusedPod waits until a pod is refused, and checks that nothing of it is in
// west.
func refusedPod(t *testing.T, namespace, name, reason string) *corev1.Pod {
	t.Helper()
	pod := phase(t, namespace, name, corev1.PodFailed)
	assert.Equal(t, reason, pod.Status.Reason)
	assert.NotEmpty(t, pod.Status.Message)
	assert.Empty(t, pod.Finalizers)
	assert.Nil(t, shadow(t, namespace, name))
	assert.Equal(t, pod.Status.Message, await.Event(t, bed.Home.Client(), namespace, name, reason))
	return pod
}

// bind creates a pod and binds it to west's node, as a scheduler does that does
// not ask the extender.
func bind(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Spec.SchedulerName = "other"
	bindTo(t, create(t, pod))
}

// bindTo binds a pod that is there to west's node.
func bindTo(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	require.NoError(t, bed.Home.Client().CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: fabric.WestNode},
	}, metav1.CreateOptions{}))
}

func TestPodOfAClosedNamespaceIsRefused(t *testing.T) {
	namespace := closed(t)
	bind(t, newPod(namespace, "web"))
	assert.Contains(t, refusedPod(t, namespace, "web", "NamespaceNotOpen").Status.Message, "lodestone.dev/offload=enabled")
}

func TestPodThatNamesItsNodeIsRefused(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web", func(p *corev1.Pod) { p.Spec.NodeName = fabric.WestNode }))
	refusedPod(t, namespace, "web", "NotScheduled")
}

// TestPodWithAClaimOfDevicesIsRefused has a pod that a scheduler placed which does not know devices.
func TestPodWithAClaimOfDevicesIsRefused(t *testing.T) {
	namespace := open(t)
	bind(t, newPod(namespace, "train", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
	}))
	assert.Contains(t, refusedPod(t, namespace, "train", "ResourceClaims").Status.Message, "spec.resourceClaims")
}

// TestAClaimOfAnotherClassMountsNothingOfSomebodyElse has a claim that Lodestone does not serve, of the
// name of what an earlier claim of home left in west.
func TestAClaimOfAnotherClassMountsNothingOfSomebodyElse(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "first"))
	runs(t, namespace, "first") // the namespace is there
	left := fabric.NewClaim(namespace, "data", fabric.WestNow)
	left.Labels = map[string]string{keys.HomeID: homeID, keys.ClaimUID: "of-somebody-else"}
	must.Create(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), left)

	// A volume that can be used anywhere.
	core := bed.Home.Client().CoreV1()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{
			corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/"}},
	}}
	must.Create(t, core.PersistentVolumes(), volume)
	t.Cleanup(func() {
		assert.NoError(t, core.PersistentVolumes().Delete(context.Background(), namespace, metav1.DeleteOptions{}))
	})
	claim := fabric.NewClaim(namespace, "data", "")
	claim.Annotations = map[string]string{keys.UsableIn: "west"}
	claim.Spec.StorageClassName, claim.Spec.VolumeName = ptr.To(""), volume.Name
	must.Create(t, core.PersistentVolumeClaims(namespace), claim)

	create(t, inWest(fabric.NewPod(namespace, "thief", "data")))
	await.Until(t, "the pod says why it does not run", func() bool {
		return strings.Contains(get(t, bed.Home, namespace, "thief").Status.Message, "was made for another claim than "+namespace+"/data")
	}, func() any { return get(t, bed.Home, namespace, "thief").Status })
	assert.Nil(t, shadow(t, namespace, "thief"))

	// The owner of west says that it is nobody's.
	must.Kubectl(t, bed.West, "", "label", "pvc", "-n", namespace, "data", keys.ClaimUID+"-")
	runs(t, namespace, "thief")
}

func TestDaemonSetPodIsRefused(t *testing.T) {
	namespace := open(t)
	// Without the policy, a DaemonSet that tolerates everything wants a pod on west's node.
	t.Cleanup(func() { require.NoError(t, bed.WithDaemonSetPolicy(context.Background(), true)) })
	require.NoError(t, bed.WithDaemonSetPolicy(t.Context(), false))
	set := fabric.NewDaemonSet(namespace, "log")
	// No scheduler takes its pods: this test binds the one of west's node.
	set.Spec.Template.Spec.SchedulerName = "other"
	must.Create(t, bed.Home.Client().AppsV1().DaemonSets(namespace), set)
	var name string
	await.Until(t, "the DaemonSet has a pod for west's node", func() bool {
		list, err := bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, pod := range list.Items {
			if meantFor(&pod, fabric.WestNode) {
				name = pod.Name
			}
		}
		return name != ""
	})
	require.NoError(t, bed.Home.Client().CoreV1().Pods(namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: fabric.WestNode},
	}, metav1.CreateOptions{}))
	// The controller removes a failed pod soon; what was said stays.
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, name, "DaemonSetPod"), `DaemonSet "log"`)
	assert.Nil(t, shadow(t, namespace, name))
}

// meantFor says whether a DaemonSet made a pod for a node.
func meantFor(pod *corev1.Pod, node string) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 && field.Values[0] == node {
				return true
			}
		}
	}
	return false
}

func TestPodStaysWhenItsNamespaceIsClosedLater(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	label(t, namespace, nil)
	bind(t, newPod(namespace, "late"))
	refusedPod(t, namespace, "late", "NamespaceNotOpen")
	await.Always(t, "the first pod runs on", func() bool {
		pod, there := get(t, bed.Home, namespace, "web"), get(t, bed.West, namespace, "web")
		return pod.Status.Phase == corev1.PodRunning && there != nil && there.DeletionTimestamp == nil
	})
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}

// template returns the template of pods that run in west.
func template(namespace, name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	pod := newPod(namespace, name)
	return &metav1.LabelSelector{MatchLabels: pod.Labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels},
		Spec: pod.Spec}
}

func statefulSet(t *testing.T, namespace, name string) {
	t.Helper()
	selector, pods := template(namespace, name)
	must.Create(t, bed.Home.Client().AppsV1().StatefulSets(namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: selector, Template: pods, ServiceName: name},
	})
}

func TestReplicaSetRunsInWest(t *testing.T) {
	namespace := open(t)
	selector, pods := template(namespace, "web")
	must.Create(t, bed.Home.Client().AppsV1().ReplicaSets(namespace), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(3)), Selector: selector, Template: pods},
	})
	await.Until(t, "three replicas are ready", func() bool {
		set := must.Get(t, bed.Home.Client().AppsV1().ReplicaSets(namespace), "web")
		return set.Status.ReadyReplicas == 3
	})
	require.NoError(t, bed.Home.Client().AppsV1().ReplicaSets(namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	await.Until(t, "nothing is left in west", func() bool {
		pods := must.List(t, bed.West.Client().CoreV1().Pods(namespace))
		shadows := must.List(t, bed.Agents.ShadowPods(namespace))
		return len(pods.Items)+len(shadows.Items) == 0
	})
}

func TestStatefulSetReplacesAPodThatWestLost(t *testing.T) {
	namespace := open(t)
	statefulSet(t, namespace, "db")
	first, west := runs(t, namespace, "db-0")
	must.Delete(t, bed.West.Client().CoreV1().Pods(namespace), west.Name)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "db-0", "RemotePodLost"), "removed from this cluster")
	await.Until(t, "another pod of the set runs", func() bool {
		pod, there := get(t, bed.Home, namespace, "db-0"), get(t, bed.West, namespace, "db-0")
		return pod != nil && pod.UID != first.UID && pod.Status.Phase == corev1.PodRunning && there != nil &&
			there.Labels[keys.PodUID] == string(pod.UID)
	})
}

func TestJobEndsWithItsPodInWest(t *testing.T) {
	namespace := open(t)
	_, pods := template(namespace, "once")
	pods.Spec.RestartPolicy = corev1.RestartPolicyNever
	must.Create(t, bed.Home.Client().BatchV1().Jobs(namespace), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: pods},
	})
	name := ""
	await.Until(t, "the Job has a pod", func() bool {
		pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace))
		if len(pods.Items) == 1 {
			name = pods.Items[0].Name
		}
		return name != ""
	})
	_, west := runs(t, namespace, name)
	end(t, west, corev1.PodSucceeded, "", "")
	await.Until(t, "the Job is complete", func() bool {
		job := must.Get(t, bed.Home.Client().BatchV1().Jobs(namespace), "once")
		return job.Status.Succeeded == 1
	})
	await.Always(t, "its pod there stays, for its log", func() bool { return get(t, bed.West, namespace, name) != nil })
	uid := get(t, bed.Home, namespace, name).UID
	remove(t, namespace, name, metav1.DeleteOptions{})
	gone(t, namespace, name, uid)
}

func TestEvictionThereIsSeenHere(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	end(t, west, corev1.PodFailed, "Evicted", "The node was low on memory.")
	home := phase(t, namespace, "web", corev1.PodFailed)
	assert.Equal(t, "Evicted", home.Status.Reason)
	assert.Equal(t, "The node was low on memory.", home.Status.Message)
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
}
