package pods

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// there is the API server of cluster west, with at most one ShadowPod.
type there struct {
	shadow *shadowPod
	pods   []corev1.Pod
	// claim is the only claim there, nil for none.
	claim   *corev1.PersistentVolumeClaim
	deletes atomic.Int32
	// refusals is how often the namespace kube-system is refused before it is
	// shown.
	refusals []int
	asked    atomic.Int32
}

func (s *there) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(object any) { _ = json.NewEncoder(w).Encode(object) }
	path := r.URL.Path
	switch {
	case r.Method == http.MethodDelete:
		s.deletes.Add(1)
		answer(metav1.Status{Status: metav1.StatusSuccess})
	case strings.HasSuffix(path, "/namespaces/kube-system"):
		if n := int(s.asked.Add(1)) - 1; n < len(s.refusals) {
			w.WriteHeader(s.refusals[n])
			return
		}
		answer(corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "west-uid"}})
	case strings.HasSuffix(path, "/shadowpods/db-0") && s.shadow != nil:
		answer(s.shadow)
	case strings.HasSuffix(path, "/shadowpods/db-0"):
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404,
			Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "db-0"}})
	case strings.Contains(path, "/persistentvolumeclaims/"):
		name := path[strings.LastIndex(path, "/")+1:]
		if s.claim != nil && s.claim.Name == name {
			answer(s.claim)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404,
			Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: name}})
	default:
		answer(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.pods})
	}
}

// newRunner returns a runner of home h1 that nothing runs yet.
func newRunner(t *testing.T, remote *there, home ...runtime.Object) *runner {
	t.Helper()
	server := httptest.NewTLSServer(remote)
	t.Cleanup(server.Close)
	s, err := session.Open(&v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}},
		&rest.Config{Host: server.URL,
			TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}},
		"h1")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	s.Gate.OpenUntil(time.Now().Add(time.Hour))
	return &runner{
		Controller: &Controller{config: Config{Home: fake.NewClientset(home...)}}, session: s, queue: newQueue(),
		namespaces: newRemoteNamespaces(s), states: newStates(), events: newRemoteEvents(),
	}
}

func TestEventsAreBounded(t *testing.T) {
	r := newRunner(t, &there{})
	recorder := record.NewFakeRecorder(2)
	r.config.Recorder = recorder
	k := key{uid: "u1", namespace: "shop", name: "db-0"}
	r.tell(k, homePodOn("west", "u1"), &decide.Message{Warning: true, Reason: "RemotePodLost", Text: "a" + strings.Repeat("ä", 100_000)})
	require.Len(t, recorder.Events, 1)
	event := <-recorder.Events
	assert.LessOrEqual(t, len(event), maxEvent+len("Warning RemotePodLost "))
	assert.True(t, utf8.ValidString(event))

	ctx, cancel := context.WithCancel(t.Context())
	r.queue.Add(k)
	r.queue.Run(ctx, 1, func(context.Context, key) (time.Duration, error) {
		if r.queue.Failures(k) < 4 {
			return 0, errChanged
		}
		cancel()
		r.stepFailed(k, decide.Observation{Pod: homePodOn("west", "u1")}, decide.Step{Verb: decide.Finish},
			errors.New(strings.Repeat("x", 100_000)))
		return 0, nil
	})
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, "`kubectl lodestone release pod` gives it up", "what to do is not cut off")
	assert.LessOrEqual(t, len(r.states.problem(k)), maxEvent)
}

func TestAClusterIsKnownInTheEndWhateverItAnswersFirst(t *testing.T) {
	remote := &there{refusals: []int{http.StatusBadRequest, http.StatusGone, http.StatusUnprocessableEntity}}
	r := newRunner(t, remote)
	controller, err := New(Config{Home: fake.NewClientset(), Pods: informers.NewSharedInformerFactory(fake.NewClientset(),
		0).Core().V1().Pods().Informer()})
	require.NoError(t, err)
	r.Controller = controller
	r.identify(t.Context())
	assert.Equal(t, types.UID("west-uid"), r.cluster())
	assert.EqualValues(t, 4, remote.asked.Load())
}
