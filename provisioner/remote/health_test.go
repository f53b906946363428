package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// looks returns the times of all probes, in intervals and while asking triggers more; the
// clock is synctest's, so the speed of the machine does not matter.
func looks(t *testing.T, lasts, interval time.Duration, asking func(context.Context, signals)) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	s, begin := newSignals(), time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		asking(ctx, s)
	}()
	var at []time.Duration
	s.repeat(ctx, func() (time.Duration, bool) {
		at = append(at, time.Since(begin))
		return interval, true
	})
	<-ended
	return at
}

func TestAClusterThatNudgesWithoutEndIsLookedAtEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, 10*time.Minute, time.Hour, func(ctx context.Context, s signals) {
			for ctx.Err() == nil {
				s.CheckSoon()
				time.Sleep(time.Millisecond)
			}
		})
		assert.LessOrEqual(t, len(at), 6+int(10*time.Minute/mostPause))
		assert.Greater(t, len(at), int(10*time.Minute/mostPause), "but never left alone")
	})
}

func TestAClusterThatNudgesNowAndThenIsLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, time.Minute, time.Hour, func(_ context.Context, s signals) {
			time.Sleep(10 * time.Second)
			s.CheckSoon()
			time.Sleep(10 * time.Second)
			s.CheckSoon()
			time.Sleep(leastPause / 2)
			s.CheckSoon()
		})
		assert.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 20*time.Second + leastPause}, at)
	})
}

func TestAClusterThatNudgesNoMoreIsHeardAtOnceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, 2*time.Minute, 3*time.Second, func(_ context.Context, s signals) {
			for range 600 {
				s.CheckSoon()
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(2*mostPause + 1234*time.Millisecond)
			s.CheckSoon()
		})
		assert.Contains(t, at, 91234*time.Millisecond)
	})
}

func TestAPokeOfHomeWaitsForNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := looks(t, time.Minute, time.Hour, func(_ context.Context, s signals) {
			for range 100 { // by now its pause is long
				s.CheckSoon()
				time.Sleep(100 * time.Millisecond)
			}
			s.CheckNow()
		})
		assert.Contains(t, at, 10*time.Second)
	})
}

func TestALookThatAsksForTheNextOneSoonGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		newSignals().repeat(t.Context(), func() (time.Duration, bool) {
			looks++
			return 50 * time.Millisecond, looks < 5
		})
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
	})
}

func TestFailedSortsErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "namespaces"}
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/version", Err: err} }
	for name, test := range map[string]struct {
		err          error
		unauthorized string
		unreachable  string
	}{
		"credentials that are not accepted": {err: apierrors.NewUnauthorized("no"), unauthorized: "renew them"},
		"a missing right is named": {err: apierrors.NewForbidden(resource, "kube-system", errors.New("no")),
			unauthorized: "may not look"},
		"nobody listens": {
			err:         request(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "x"}}),
			unreachable: "does not answer"},
		"the cause is told without the address": {
			err:         request(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
			unreachable: "connection refused"},
		"no answer in time": {err: request(context.DeadlineExceeded), unreachable: "no answer within 5s"},
		"an answer that is none of an API server": {err: fmt.Errorf("decode: %w", errors.New("invalid character '<'")),
			unreachable: "invalid character"},
		"an API server that is in trouble": {err: apierrors.NewInternalError(errors.New("etcd")), unreachable: "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			found := failed(test.err, "look")
			assert.Equal(t, test.unauthorized == "", found.unauthorized == "")
			assert.Contains(t, found.unauthorized, test.unauthorized)
			assert.Equal(t, test.unreachable == "", found.unreachable == "")
			assert.Contains(t, found.unreachable, test.unreachable)
			assert.NotContains(t, found.unreachable, "10.0.0.1")
		})
	}
}

// TestAClusterThatToldTooMuchIsNotListenedToWhateverItAnswers probes a cluster that fails
// each request while its watches have filled the caches.
func TestAClusterThatToldTooMuchIsNotListenedToWhateverItAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	data := kubeconfigWith(t, "token")
	remote := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "w"}}
	remote.Spec.KubeconfigSecretRef.Namespace, remote.Spec.KubeconfigSecretRef.Name = "lodestone", "west"
	secrets := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Secrets().Informer()
	require.NoError(t,
		secrets.GetStore().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone", Name: "west"},
			Data: map[string][]byte{keyOf(remote): data}}))
	events := record.NewFakeRecorder(5)
	r := &Clusters{namespace: "lodestone", secrets: secrets, homeID: "here", recorder: events, interval: time.Minute}
	told := connected(t)
	told.client = client
	large := map[string]string{"x": strings.Repeat("x", maxObject-1000)}
	for i := range maxBytes/maxObject + 10 {
		require.NoError(t,
			told.volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: large}}))
	}
	c := &Cluster{id: "west", clusters: r, recorded: map[string]bool{}, uid: "w", connection: told, fingerprint: fingerprintOf(data) +
		string(remote.Spec.Namespaces.Strategy)}
	for range 2 {
		c.probe(t.Context(), remote)
		_, reason, _ := c.verdict.usable()
		assert.Equal(t, "TooMuch", reason)
		assert.Nil(t, c.current(), "nothing of it is held any more")
	}
	assert.Contains(t, <-events.Events, "TooMuch")
	assert.Empty(t, events.Events, "it is said once")
}

// TestAServerThatGoesBackInTime simulates a restore from a backup: the list of volumes has
// a lower resource version than before.
func TestAServerThatGoesBackInTime(t *testing.T) {
	version := "0"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, version)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	c := connect(t.Context(), "west", fake.NewClientset(), "here", nil, nil, func() {})
	c.client = client
	for _, row := range []struct {
		version string
		rewound bool
	}{{"100", false}, {"100", false}, {"250", false}, {"249", true}, {"90", true}, {"nonsense", false}, {"", false}, {"1000", false},
		{"999", true}} {
		version = row.version
		rewound, err := c.rewound(t.Context())
		require.NoError(t, err)
		assert.Equal(t, row.rewound, rewound, row.version)
	}
}
