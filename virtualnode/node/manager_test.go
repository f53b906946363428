package node

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

const long, often = 30 * time.Second, 10 * time.Millisecond

// west is the API server of a remote cluster.
type west struct {
	*httptest.Server
	broken atomic.Bool  // it answers nothing but errors
	beats  atomic.Int32 // how often the heartbeat was renewed
	absent atomic.Bool  // it has no HomeCluster
	mark   atomic.Pointer[homeepoch.Mark]
}

func newWest(t *testing.T) *west {
	t.Helper()
	w := &west{}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (s *west) serve(w http.ResponseWriter, r *http.Request) {
	home := homeCluster(metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue})
	home.TypeMeta = metav1.TypeMeta{APIVersion: "remote.lodestone.dev/v1alpha1", Kind: "HomeCluster"}
	w.Header().Set("Content-Type", "application/json")
	answer := func(object any) { _ = json.NewEncoder(w).Encode(object) }
	switch path := r.URL.Path; {
	case s.broken.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case path == "/readyz":
		_, _ = w.Write([]byte("ok"))
	case path == "/version":
		answer(map[string]string{"gitVersion": "v1.35.0"})
	case strings.HasSuffix(path, "/namespaces/kube-system"):
		answer(corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "west-uid"}})
	case strings.HasSuffix(path, "/leases/home"):
		if r.Method == http.MethodPut {
			s.beats.Add(1)
		}
		lease := coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: "home"}}
		if mark := s.mark.Load(); mark != nil {
			text, _ := mark.Encode()
			lease.Annotations = map[string]string{keys.HomeEpoch: text}
		}
		answer(lease)
	case s.absent.Load():
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404,
			Reason: metav1.StatusReasonNotFound})
	case strings.HasSuffix(path, "/homeclusters/h1"):
		answer(home)
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done()
	default:
		answer(remotev1alpha1.HomeClusterList{TypeMeta: metav1.TypeMeta{APIVersion: "remote.lodestone.dev/v1alpha1", Kind: "HomeClusterList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []remotev1alpha1.HomeCluster{*home}})
	}
}

// managed is a Manager of node west.
type managed struct {
	*Manager
	home     *fake.Clientset
	session  *session.Session
	unwanted atomic.Pointer[string]
	record   atomic.Pointer[homeepoch.Record]
	admitted atomic.Int32
}

func newManaged(t *testing.T, s *west) *managed {
	t.Helper()
	m := &managed{home: fake.NewClientset()}
	factory := informers.NewSharedInformerFactory(m.home, 0)
	nodes := factory.Core().V1().Nodes().Informer()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	m.Manager = NewManager("west", Config{Home: m.home, Nodes: nodes, Address: "10.0.0.7", Port: 10350,
		Probe: 20 * time.Millisecond, Heartbeat: 20 * time.Millisecond, Changed: func() {},
		Unwanted: func(string) (string, string) {
			if sentence := m.unwanted.Load(); sentence != nil {
				return Duplicate, *sentence
			}
			return "", ""
		},
		Record: func(context.Context) (*homeepoch.Record, string) { return m.record.Load(), "w" }})
	var err error
	m.session, err = session.Open(&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}},
		&rest.Config{Host: s.URL,
			TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}}, "h1")
	require.NoError(t, err)
	return m
}

// run runs the manager until the returned function is called, which returns its
// error.
func (m *managed) run(t *testing.T) (ended chan error, stop func()) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop = context.WithCancel(ctx)
	ended = make(chan error, 1)
	go func() { ended <- m.Run(ctx, m.session, func() { m.admitted.Add(1) }) }()
	t.Cleanup(stop)
	return ended, stop
}

func (m *managed) ready() corev1.ConditionStatus {
	node, err := m.home.CoreV1().Nodes().Get(context.Background(), "west", metav1.GetOptions{})
	if err != nil {
		return "absent"
	}
	return find(node.Status.Conditions, corev1.NodeReady).Status
}

func finished(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(long):
		require.Fail(t, "the session does not end")
		return nil
	}
}

func TestAnOutageEndsInANewSession(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	ended, _ := m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
	require.Eventually(t, func() bool { return m.admitted.Load() == 1 && remote.beats.Load() > 1 }, long, often)

	remote.broken.Store(true)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionFalse }, long, often)
	remote.broken.Store(false)
	require.ErrorIs(t, finished(t, ended), ErrReturned)

	ended, stop := m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue && m.admitted.Load() == 2 }, long, often)
	stop()
	assert.NoError(t, finished(t, ended))
}

func TestAClusterThatIsSilentFromTheStartIsUsedWhenItAnswers(t *testing.T) {
	remote := newWest(t)
	remote.broken.Store(true)
	m := newManaged(t, remote)
	m.run(t)
	require.Eventually(t, func() bool { state, known := m.State(); return known && state.Reason == "RemoteSilent" }, long, often)
	assert.EqualValues(t, "absent", m.ready())
	assert.Zero(t, m.admitted.Load())
	remote.broken.Store(false)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue && m.admitted.Load() == 1 }, long, often)
}

func TestAHomeClusterThatComesLaterIsFound(t *testing.T) {
	remote := newWest(t)
	remote.absent.Store(true)
	m := newManaged(t, remote)
	m.run(t)
	require.Eventually(t, func() bool { state, known := m.State(); return known && state.Reason == "NoHomeCluster" }, long, often)
	assert.EqualValues(t, "absent", m.ready())
	remote.absent.Store(false)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
}

func TestWorkEndsForAClusterThatIsAnothers(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	ended, _ := m.run(t)
	require.Eventually(t, func() bool { return m.admitted.Load() == 1 }, long, often)
	sentence := "another stands for it"
	m.unwanted.Store(&sentence)
	require.ErrorIs(t, finished(t, ended), errUnwanted)
	m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionFalse }, long, often)
	assert.EqualValues(t, 1, m.admitted.Load(), "the next session begins no work")
}

func TestARetiredNodeIsNotMadeAgain(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
	m.Retire(true)
	require.Eventually(t, func() bool {
		node, err := m.home.CoreV1().Nodes().Get(t.Context(), "west", metav1.GetOptions{})
		return err == nil && node.Spec.Unschedulable
	}, long, often)
	require.NoError(t, m.home.CoreV1().Nodes().Delete(t.Context(), "west", metav1.DeleteOptions{}))
	beats := remote.beats.Load()
	require.Eventually(t, func() bool { return remote.beats.Load() > beats+5 }, long, often)
	assert.EqualValues(t, "absent", m.ready())
	m.Retire(false)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
}

func TestWorkInARetiredClusterBeginsWithoutANode(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	m.Retire(true)
	m.run(t)
	require.Eventually(t, func() bool { return m.admitted.Load() == 1 }, long, often)
	assert.EqualValues(t, "absent", m.ready(), "the node is not made for it")
}

func TestARetiredDuplicateEndsWhatItBegan(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	ended, _ := m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
	sentence := "another stands for it"
	m.unwanted.Store(&sentence)
	require.ErrorIs(t, finished(t, ended), errUnwanted)

	m.Retire(true)
	ended, stop := m.run(t)
	require.Eventually(t, func() bool { return m.admitted.Load() == 2 }, long, often)
	beats := remote.beats.Load()
	require.Eventually(t, func() bool { return remote.beats.Load() > beats+5 }, long, often)
	require.NoError(t, m.home.CoreV1().Nodes().Delete(t.Context(), "west", metav1.DeleteOptions{}))
	stop()
	assert.NoError(t, finished(t, ended), "it was not ended for being unwanted")
}

func TestWhereWorkMayBegin(t *testing.T) {
	for name, test := range map[string]struct {
		health  Health
		retired bool
		want    bool
	}{
		"the cluster never answered":       {},
		"it never answered a retired node": {retired: true},
		"it answered":                      {health: Health{Answered: true}, want: true},
		"another stands for it":            {health: Health{Answered: true, Unwanted: "no", UnwantedReason: Duplicate}},
		"another stands for it, and it leaves": {health: Health{Answered: true, Unwanted: "no", UnwantedReason: Duplicate}, retired: true,
			want: true},
		"it is the home cluster, and it leaves": {health: Health{Answered: true, Unwanted: "no", UnwantedReason: "PointsHome"}, retired: true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, usable(test.health, test.retired)) })
	}
}

func TestACopyOfHomeDoesNothingInARemoteCluster(t *testing.T) {
	west := newWest(t)
	m := newManaged(t, west)
	west.mark.Store(&homeepoch.Mark{Epoch: 1, Renewal: 9, Nonce: "of the original"})
	m.record.Store(&homeepoch.Record{RemoteCluster: "w", Doubt: &homeepoch.Doubt{ID: "d"}})
	m.run(t)
	require.Eventually(t, func() bool {
		state, known := m.State()
		return known && state.Reason == NotInForce
	}, time.Minute, time.Millisecond)
	_, err := m.session.Client.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{}, metav1.CreateOptions{})
	require.ErrorIs(t, err, clients.ErrGateClosed)
	assert.Zero(t, west.beats.Load(), "nor does it renew the heartbeat")
	assert.Zero(t, m.admitted.Load())

	// It is confirmed, and the provisioner has taken over, but does not act yet.
	taken := homeepoch.Mark{Epoch: 2, Nonce: "taken"}
	m.record.Store(&homeepoch.Record{RemoteCluster: "w", Held: *west.mark.Load(), Next: taken})
	west.mark.Store(&taken)
	assert.Never(t, func() bool {
		state, _ := m.State()
		return state.Reason != NotInForce
	}, 300*time.Millisecond, time.Millisecond, "the node is NotReady until it does")
	assert.Zero(t, west.beats.Load())

	// The provisioner renews the mark.
	own := []homeepoch.Mark{{Epoch: 2, Renewal: 1, Nonce: "a"}, {Epoch: 2, Renewal: 2, Nonce: "b"}}
	m.record.Store(&homeepoch.Record{RemoteCluster: "w", Held: own[0], Next: own[1]})
	west.mark.Store(&own[1])
	require.Eventually(t, func() bool { return west.beats.Load() > 0 }, time.Minute, time.Millisecond)
}

func TestOnlyHomeItselfRenewsAMarkThatItHasRecorded(t *testing.T) {
	a, b := homeepoch.Mark{Epoch: 1, Nonce: "a"}, homeepoch.Mark{Epoch: 1, Renewal: 1, Nonce: "b"}
	c := homeepoch.Mark{Epoch: 1, Renewal: 2, Nonce: "c"}
	now := time.Unix(1000, 0)
	var e epoch
	assert.Zero(t, e.observe(&homeepoch.Record{Held: a, Next: b}, a, now))
	assert.False(t, e.renewed, "it may have been renewed before the home cluster was copied")
	assert.Equal(t, time.Second, e.observe(&homeepoch.Record{Held: a, Next: b}, a, now.Add(time.Second)))
	assert.Zero(t, e.observe(&homeepoch.Record{Held: a, Next: b}, b, now.Add(time.Second)))
	assert.True(t, e.renewed)
	e.observe(&homeepoch.Record{Held: a, Next: b}, c, now)
	assert.False(t, e.renewed)
}
