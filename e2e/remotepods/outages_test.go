package remotepods

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// claimIn returns a claim of west, nil if there is none.
func claimIn(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return must.Find(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), name)
}

// runsAgain waits until another pod than before runs on both sides.
func runsAgain(t *testing.T, namespace, name string, before types.UID) *corev1.Pod {
	t.Helper()
	var home *corev1.Pod
	await.Until(t, "another pod "+name+" runs", func() bool {
		home = get(t, bed.Home, namespace, name)
		there := get(t, bed.West, namespace, name)
		return home != nil && home.UID != before && home.DeletionTimestamp == nil && home.Status.Phase == corev1.PodRunning &&
			there != nil && there.Labels[keys.PodUID] == string(home.UID)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return home
}

// TestPodsRunAgainWhenWestDeletedWhatTheyNeed has the administrator of west delete
// the claim of a running pod, and then its whole namespace. Nobody does anything
// about it.
func TestPodsRunAgainWhenWestDeletedWhatTheyNeed(t *testing.T) {
	namespace := open(t)
	core := bed.Home.Client().CoreV1()
	must.Create(t, core.PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.Class))
	must.Create(t, core.ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data: map[string]string{"color": "blue"}})
	selector, pods := template(namespace, "db")
	pods.Spec.Volumes = slices.Concat(fabric.NewPod(namespace, "db", "data").Spec.Volumes,
		[]corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}})
	must.Create(t, bed.Home.Client().AppsV1().StatefulSets(namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: selector, Template: pods, ServiceName: "db"},
	})
	home, _ := runs(t, namespace, "db-0")
	shadow := claimIn(t, namespace, "data")
	volume := shadow.Spec.VolumeName
	require.NotEmpty(t, volume)
	whole := func() {
		t.Helper()
		now := claimIn(t, namespace, "data")
		await.Until(t, "the claim is whole", func() bool {
			now = claimIn(t, namespace, "data")
			return now != nil && now.UID != shadow.UID && now.DeletionTimestamp == nil && now.Status.Phase == corev1.ClaimBound
		})
		assert.Equal(t, volume, now.Spec.VolumeName, "it has the same real volume")
		real := must.Get(t, bed.West.Client().CoreV1().PersistentVolumes(), volume)
		assert.True(t, bed.WestStorage.Exists(real.Spec.CSI.VolumeHandle))
		claim := must.Get(t, core.PersistentVolumeClaims(namespace), "data")
		await.Until(t, "home names the new claim", func() bool {
			virtual := must.Get(t, core.PersistentVolumes(), claim.Spec.VolumeName)
			return virtual.Annotations[keys.Backing] == "west/"+namespace+"/data/"+string(now.UID)
		})
		shadow = now
	}

	must.Delete(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealing"), "its data is safe")
	remove(t, namespace, "db-0", metav1.DeleteOptions{})
	home = runsAgain(t, namespace, "db-0", home.UID)
	whole()

	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	runsAgain(t, namespace, "db-0", home.UID)
	whole()
	settings := must.Get(t, bed.West.Client().CoreV1().ConfigMaps(namespace), "settings")
	assert.Equal(t, "blue", settings.Data["color"])
}

// cut cuts the way to west until mend is called or the test ends.
func cut(t *testing.T) (mend func()) {
	t.Helper()
	way.cut()
	mend = func() {
		way.mend()
		require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	}
	t.Cleanup(way.mend)
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionFalse))
	return mend
}

func TestForcedDeletionDuringAPartitionMakesNoSecondPod(t *testing.T) {
	namespace := open(t)
	statefulSet(t, namespace, "db")
	home, west := runs(t, namespace, "db-0")
	mend := cut(t)

	remove(t, namespace, "db-0", forced())
	await.Always(t, "the set gets no second pod while the first runs", func() bool {
		pod := get(t, bed.Home, namespace, "db-0")
		return pod != nil && pod.UID == home.UID && get(t, bed.West, namespace, "db-0").UID == west.UID
	})
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "db-0", "EndFailed"), "kubectl lodestone release pod")

	mend()
	await.Until(t, "the next pod of the set runs", func() bool {
		pod, there := get(t, bed.Home, namespace, "db-0"), get(t, bed.West, namespace, "db-0")
		return pod != nil && pod.UID != home.UID && pod.Status.Phase == corev1.PodRunning && there != nil &&
			there.Labels[keys.PodUID] == string(pod.UID)
	})
}

func TestPodThatNeverStartedIsDeletedDuringAPartition(t *testing.T) {
	testbed.NotInShort(t)
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web") // the namespace is there
	way.heeds(func(r *http.Request) fate {
		if r.Method == http.MethodPost {
			return loses
		}
		return passes
	})
	t.Cleanup(func() { way.heeds(nil) })
	made := create(t, newPod(namespace, "never"))
	await.Until(t, "it is protected, and says what it waits for", func() bool {
		pod := get(t, bed.Home, namespace, "never")
		return len(pod.Finalizers) == 1 && pod.Status.Reason == "RemoteRequestFailed"
	})
	mend := cut(t)
	remove(t, namespace, "never", metav1.DeleteOptions{})
	await.Until(t, "it goes without a word from west", func() bool { return get(t, bed.Home, namespace, "never") == nil })
	way.heeds(nil)
	mend()
	gone(t, namespace, "never", made.UID)
}

func TestReleasedPodIsRemovedWhenWestIsBack(t *testing.T) {
	testbed.NotInShort(t)
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	mend := cut(t)
	remove(t, namespace, "web", metav1.DeleteOptions{})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
	require.NoError(t, err)
	must.Patch(t, bed.Home.Client().CoreV1().Pods(namespace), "web", types.MergePatchType, patch)
	await.Until(t, "home lets it go", func() bool { return get(t, bed.Home, namespace, "web") == nil })
	assert.NotNil(t, get(t, bed.West, namespace, "web"))
	mend()
	gone(t, namespace, "web", made.UID)
}

func TestRequestThatArrivesLateStartsNothing(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web") // the namespace is there
	way.heeds(func(r *http.Request) fate {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/shadowpods") {
			return late
		}
		return passes
	})
	t.Cleanup(func() { way.heeds(nil) })
	made := create(t, newPod(namespace, "late"))
	await.Until(t, "the request is under way", func() bool {
		way.mu.Lock()
		defer way.mu.Unlock()
		return len(way.kept) > 0
	})
	remove(t, namespace, "late", forced())
	await.Until(t, "home's pod is gone", func() bool { return get(t, bed.Home, namespace, "late") == nil })
	require.NoError(t, program.Stop())
	way.heeds(nil)
	statuses, err := way.deliver()
	require.NoError(t, err)
	assert.Contains(t, statuses, http.StatusCreated)
	require.NotNil(t, shadow(t, namespace, "late"))
	await.Always(t, "nothing runs", func() bool { return get(t, bed.West, namespace, "late") == nil })
	restart(t)
	gone(t, namespace, "late", made.UID)
}

// restart starts the virtual node program anew.
func restart(t *testing.T) {
	t.Helper()
	var err error
	program, err = startProgram()
	require.NoError(t, err)
}

func TestPodsRunOnDuringAPartition(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	await.Until(t, "it is ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	mend := cut(t)
	await.Until(t, "home counts it as not ready", func() bool { return !ready(get(t, bed.Home, namespace, "web")) })
	await.Always(t, "it runs on in west", func() bool {
		pod := get(t, bed.West, namespace, "web")
		return pod != nil && pod.UID == west.UID && !ready(get(t, bed.Home, namespace, "web"))
	})
	mend()
	await.Until(t, "home counts it as ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)
}

var errDead = errors.New("the program is dead")

// killer kills a program at one of its writes about pods: the write arrives, its
// answer does not, and neither does any later request.
type killer struct {
	mu   sync.Mutex
	left int
	died chan struct{}
}

func newKiller(after int) *killer { return &killer{left: after, died: make(chan struct{})} }

func (k *killer) dead() bool {
	select {
	case <-k.died:
		return true
	default:
		return false
	}
}

func (k *killer) fate(*http.Request) fate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead() {
		return loses
	}
	if k.left--; k.left != 0 {
		return passes
	}
	close(k.died)
	return unreplied
}

func (k *killer) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.dead() {
		close(k.died)
	}
}

// mortal is the way home of a program that can be killed.
type mortal struct {
	http.RoundTripper
	killer *killer
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	what := passes
	switch {
	case m.killer.dead():
		what = loses
	case r.Method != http.MethodGet && aboutPods(r.URL.Path):
		what = m.killer.fate(r)
	}
	if what == loses {
		return nil, errDead
	}
	response, err := m.RoundTripper.RoundTrip(r)
	if what == unreplied && err == nil {
		_ = response.Body.Close()
		return nil, errDead
	}
	return response, err
}

// killable has a program go home by way of a killer.
func killable(k *killer) func(*virtualnode.Config) {
	return func(c *virtualnode.Config) {
		c.Home.Wrap(func(base http.RoundTripper) http.RoundTripper { return mortal{RoundTripper: base, killer: k} })
	}
}

func alone(c *virtualnode.Config) { c.LeaderElect = false }

func TestProgramThatDiesAtEachWriteLosesAndDoublesNothing(t *testing.T) {
	testbed.NotInShort(t)
	namespace := open(t)
	create(t, newPod(namespace, "first"))
	runs(t, namespace, "first") // the namespace is there
	require.NoError(t, program.Stop())
	defer restart(t)
	writes := 0
	for died := true; died; writes++ {
		died = live(t, namespace, writes+1)
		require.Less(t, writes, 40, "a pod's life takes fewer writes")
	}
	assert.Greater(t, writes, 8, "the program died at each of its writes")
}

// live has a pod run and end under a program that dies at a write, and under the
// next one. It reports whether the program died.
func live(t *testing.T, namespace string, after int) bool {
	t.Helper()
	k := newKiller(after)
	way.heeds(k.fate)
	defer way.heeds(nil)
	first, err := startProgram(alone, killable(k))
	require.NoError(t, err)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-k.died:
			_ = first.Stop()
			way.heeds(nil)
			if first, err = startProgram(alone); !assert.NoError(t, err) {
				return
			}
			<-done
		case <-done:
		}
		assert.NoError(t, first.Stop())
	}()
	defer func() { close(done); <-ended }()

	watching, err := bed.West.Client().CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web"})
	require.NoError(t, err)
	made := create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", made.UID)
	time.AfterFunc(500*time.Millisecond, watching.Stop)
	uids := map[types.UID]bool{}
	for event := range watching.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			uids[pod.UID] = true
		}
	}
	assert.Len(t, uids, 1, "one pod was made in west, with the program dying at write %d", after)
	return k.dead()
}

func TestLeaderThatIsCutOffFromHome(t *testing.T) {
	namespace := open(t)
	require.NoError(t, program.Stop())
	quick := func(c *virtualnode.Config) { c.LeaseDuration = 4 * time.Second }
	k := newKiller(-1)
	leader, err := startProgram(quick, killable(k))
	require.NoError(t, err)
	create(t, newPod(namespace, "web"))
	home, west := runs(t, namespace, "web")
	program, err = startProgram(quick)
	require.NoError(t, err)

	k.kill()
	remove(t, namespace, "web", metav1.DeleteOptions{})
	gone(t, namespace, "web", home.UID)
	assert.Error(t, leader.Wait(), "it lost its leadership")
	next := create(t, newPod(namespace, "web"))
	_, there := runs(t, namespace, "web")
	assert.NotEqual(t, west.UID, there.UID)
	assert.Equal(t, string(next.UID), there.Labels[keys.PodUID])
}

func TestPodOutlivesItsNodeObject(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	home, west := runs(t, namespace, "web")
	must.Delete(t, bed.Home.Client().CoreV1().Nodes(), fabric.WestNode)
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	await.Always(t, "both pods are the same", func() bool {
		pod, there := get(t, bed.Home, namespace, "web"), get(t, bed.West, namespace, "web")
		return pod != nil && pod.UID == home.UID && there != nil && there.UID == west.UID && there.DeletionTimestamp == nil
	})
	phase(t, namespace, "web", corev1.PodRunning)
}
