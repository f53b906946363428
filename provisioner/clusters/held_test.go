package clusters

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// heap returns how many bytes of the heap are in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// connected returns a connection to a cluster that has nothing.
func connected(t *testing.T) *connection {
	t.Helper()
	c := connect(t.Context(), "west", fake.NewClientset(), "here", Hooks{}, nil, func() {})
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
			watched := &shadows{SharedIndexInformer: informers.NewSharedInformerFactory(c.client, 0).Core().V1().PersistentVolumeClaims().Informer()}
			c.shadows["shop"] = watched
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
			held := c.held()
			runtime.KeepAlive(c)
			assert.Greater(t, taken, n*200, "it is there")
			assert.Greater(t, held, taken)
			assert.Less(t, held, 6*taken, "no cluster is thought to tell far more than it does")
		})
	}
}

// TestAClusterThatToldTooMuchIsNotListenedToWhateverItAnswers looks at a cluster
// that fails each question, while its watches have brought too much.
func TestAClusterThatToldTooMuchIsNotListenedToWhateverItAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	data := kubeconfigWith(t, "token")
	remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "w"}}
	remote.Spec.KubeconfigSecretRef.Namespace, remote.Spec.KubeconfigSecretRef.Name = "lodestone", "west"
	secrets := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Secrets().Informer()
	require.NoError(t, secrets.GetStore().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone", Name: "west"}, Data: map[string][]byte{keyOf(remote): data}}))
	events := record.NewFakeRecorder(5)
	r := &Registry{namespace: "lodestone", secrets: secrets, homeID: "here", recorder: events, interval: time.Minute}
	told := connected(t)
	told.client = client
	large := map[string]string{"x": strings.Repeat("x", maxObject-1000)}
	for i := range maxHeld/maxObject + 10 {
		require.NoError(t, told.volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: large}}))
	}
	c := &Cluster{id: "west", registry: r, recorded: map[string]bool{}, uid: "w", connection: told, fingerprint: fingerprintOf(data) + string(remote.Spec.Namespaces.Strategy)}
	for range 2 {
		c.look(t.Context(), remote)
		_, reason, _ := c.verdict.usable()
		assert.Equal(t, "TooMuch", reason)
		assert.Nil(t, c.current(), "nothing of it is held any more")
	}
	assert.Contains(t, <-events.Events, "TooMuch")
	assert.Empty(t, events.Events, "it is said once")
}
