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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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

// acting is the state of a home cluster that acts in a remote one.
var acting = epochState{acts: true, status: metav1.ConditionTrue, reason: "InForce", message: "acts"}

func TestConditions(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, test := range map[string]struct {
		verdict                      verdict
		ready, reachable, authorized metav1.ConditionStatus
		reason, says                 string
		usable                       bool
	}{
		"all is well": {verdict: verdict{checked: true},
			ready: yes, reachable: yes, authorized: yes, reason: "Ready", says: "can be made", usable: true},
		"there is no usable kubeconfig": {verdict: verdict{unconfigured: "no Secret"},
			ready: no, reachable: unknown, authorized: no, reason: "BadKubeconfig", says: "no Secret"},
		"it was not asked yet": {verdict: verdict{},
			ready: no, reachable: unknown, authorized: unknown, reason: "Checking", says: "being asked"},
		"it does not answer": {verdict: verdict{checked: true, finding: finding{unreachable: "refused"}},
			ready: no, reachable: no, authorized: unknown, reason: "NotReachable", says: "refused"},
		"rights are missing": {verdict: verdict{checked: true, finding: finding{unauthorized: "may not list"}},
			ready: no, reachable: yes, authorized: no, reason: "NotAuthorized", says: "may not list"},
		"it is the home cluster": {verdict: verdict{checked: true, unwantedReason: "PointsHome", unwanted: "itself"},
			ready: no, reachable: yes, authorized: yes, reason: "PointsHome", says: "itself"},
		"a copy of home may act there": {verdict: verdict{checked: true, leaving: "held",
			epoch: epochState{status: no, reason: "RemoteAhead", message: "later mark"}},
			ready: no, reachable: yes, authorized: yes, reason: "HomeNotInForce", says: "later mark"},
		"it is being deleted: its volumes are still served": {verdict: verdict{checked: true, leaving: "held"},
			ready: no, reachable: yes, authorized: yes, reason: "Leaving", says: "held", usable: true},
		"its caches fill": {verdict: verdict{checked: true, unsynced: true},
			ready: no, reachable: yes, authorized: yes, reason: "Syncing", says: "being read"},
		"it is being deleted and its caches fill": {verdict: verdict{checked: true, unsynced: true, leaving: "held"},
			ready: no, reachable: yes, authorized: yes, reason: "Leaving", says: "held"},
		"the first obstacle is told": {
			verdict: verdict{checked: true, finding: finding{unreachable: "refused"}, unwanted: "itself", unwantedReason: "PointsHome",
				leaving: "held", unsynced: true},
			ready: no, reachable: no, authorized: unknown, reason: "NotReachable", says: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.verdict.epoch.status == "" {
				test.verdict.epoch = acting
			}
			conditions := test.verdict.conditions(7)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.Ready: test.ready, v1alpha1.Reachable: test.reachable, v1alpha1.Authorized: test.authorized,
				v1alpha1.HomeInForce: test.verdict.epoch.status,
			} {
				got := meta.FindStatusCondition(conditions, kind)
				require.NotNil(t, got, kind)
				assert.Equal(t, want, got.Status, kind)
				assert.NotEmpty(t, got.Reason, kind)
				assert.NotEmpty(t, got.Message, kind)
				assert.Equal(t, int64(7), got.ObservedGeneration, kind)
			}
			ready := meta.FindStatusCondition(conditions, v1alpha1.Ready)
			assert.Equal(t, test.reason, ready.Reason)
			assert.Contains(t, ready.Message, test.says)
			usable, _, _ := test.verdict.usable()
			assert.Equal(t, test.usable, usable)
		})
	}
}

func remote(name, uid string, minute int) *v1alpha1.RemoteCluster {
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))},
		Status:     v1alpha1.RemoteClusterStatus{ClusterUID: uid},
	}
}

// made returns a RemoteCluster without status that peer made for a cluster.
func made(uid string) *v1alpha1.RemoteCluster {
	object := remote("west", "", 1)
	object.Annotations = map[string]string{keys.ClusterUID: uid}
	return object
}

func TestUnwanted(t *testing.T) {
	for name, test := range map[string]struct {
		self    *v1alpha1.RemoteCluster
		others  []*v1alpha1.RemoteCluster
		leadsTo string
		volumes int
		carried []string
		want    string
		says    string
	}{
		"a cluster of its own":                 {self: remote("west", "", 1), leadsTo: "uid-west"},
		"a cluster seen before":                {self: remote("west", "uid-west", 1), leadsTo: "uid-west", volumes: 3},
		"a cluster that did not say who it is": {self: remote("west", "uid-west", 1), volumes: 3},
		"the home cluster": {self: remote("west", "", 1), leadsTo: "uid-home", want: "PointsHome",
			says: "home cluster"},
		"the home cluster, though it holds volumes": {self: remote("west", "uid-west", 1), leadsTo: "uid-home", volumes: 3, want: "PointsHome",
			says: "home cluster"},
		"another cluster while it holds volumes": {self: remote("west", "uid-west", 1), leadsTo: "uid-east", volumes: 3,
			want: "OtherCluster", says: "3 volumes"},
		"made anew, and another cluster than its volumes carry": {self: remote("west", "", 1), leadsTo: "uid-east", volumes: 3,
			carried: []string{"uid-west"}, want: "OtherCluster", says: "3 volumes"},
		"made anew, and the cluster that its volumes carry": {self: remote("west", "", 1), leadsTo: "uid-west", volumes: 3,
			carried: []string{"uid-west"}},
		"another cluster than peer made it for": {self: made("uid-west"), leadsTo: "uid-east", want: "OtherCluster", says: "peer"},
		"the cluster that peer made it for":     {self: made("uid-west"), leadsTo: "uid-west"},
		"another cluster once it holds none":    {self: remote("west", "uid-west", 1), leadsTo: "uid-east"},
		"an older object stands for it": {self: remote("west", "", 2),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 1)}, leadsTo: "uid-x", want: "Duplicate", says: `"east"`},
		"a younger object stands for it too": {self: remote("west", "", 1),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 2)}, leadsTo: "uid-x"},
		"of two made in one second the first by name": {self: remote("west", "", 1),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 1)}, leadsTo: "uid-x", want: "Duplicate", says: `"east"`},
		"… and only that one": {self: remote("east", "", 1), others: []*v1alpha1.RemoteCluster{remote("west", "uid-x", 1)},
			leadsTo: "uid-x"},
		"an older object for another cluster": {self: remote("west", "", 2), others: []*v1alpha1.RemoteCluster{remote("east", "uid-y", 1)},
			leadsTo: "uid-x"},
		"an older object that leads nowhere yet": {self: remote("west", "", 2), others: []*v1alpha1.RemoteCluster{remote("east", "", 1)},
			leadsTo: "uid-x"},
		"itself in the list": {self: remote("west", "uid-x", 2), others: []*v1alpha1.RemoteCluster{remote("west", "uid-x", 1)}, leadsTo: "uid-x"},
	} {
		t.Run(name, func(t *testing.T) {
			reason, message := unwanted(test.self, test.leadsTo, "uid-home", test.others, holdings{count: test.volumes, uids: test.carried})
			assert.Equal(t, test.want, reason)
			assert.Contains(t, message, test.says)
			assert.Equal(t, test.want == "", message == "", "a reason has a sentence")
		})
	}
}
