package remotepods

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

var errDead = errors.New("the program is dead")

// killer kills a program at one of its writes about pods: the write arrives, its
// answer does not, and neither does any later request.
type killer struct {
	mu   sync.Mutex
	left int
	died chan struct{}
}

func newKiller(after int) *killer { return &killer{left: after, died: make(chan struct{})} }

// dead says whether the program is dead.
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
	require.NoError(t, bed.Home.Client().CoreV1().Nodes().Delete(t.Context(), fabric.WestNode, metav1.DeleteOptions{}))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	await.Always(t, "both pods are the same", func() bool {
		pod, there := get(t, bed.Home, namespace, "web"), get(t, bed.West, namespace, "web")
		return pod != nil && pod.UID == home.UID && there != nil && there.UID == west.UID && there.DeletionTimestamp == nil
	})
	phase(t, namespace, "web", corev1.PodRunning)
}

func TestRoutedNetworksShareAddresses(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	network := func(value string) {
		_, err := bed.Remotes.Patch(t.Context(), "west", types.MergePatchType, []byte(`{"spec":{"podNetwork":"`+value+`"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	network("Routed")
	defer network("Isolated")
	await.Until(t, "home's pod has the address of the pod in west", func() bool {
		pod := get(t, bed.Home, namespace, "web")
		return pod.Status.PodIP != "" && pod.Status.PodIP == get(t, bed.West, namespace, "web").Status.PodIP && pod.Annotations[keys.RemoteIP] == ""
	})
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)
}
