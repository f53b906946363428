package pods

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// there plays the API server of cluster west, with at most one ShadowPod.
type there struct {
	shadow  *shadowPod
	pods    []corev1.Pod
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
		answer(corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "west-uid"}})
	case strings.HasSuffix(path, "/shadowpods/db-0") && s.shadow != nil:
		answer(s.shadow)
	case strings.HasSuffix(path, "/shadowpods/db-0"):
		w.WriteHeader(http.StatusNotFound)
		answer(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404,
			Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "db-0"}})
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
		&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}, "h1")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]())
	t.Cleanup(queue.ShutDown)
	return &runner{
		Controller: &Controller{config: Config{Home: fake.NewClientset(home...)}}, session: s, queue: queue,
		places: newPlaces(s, placeEvents{}), memory: newMemory(), pods: newLatest[*corev1.Pod](), shadows: newShadowWrites(),
	}
}
