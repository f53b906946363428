package reflect

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lodestone-storage/lodestone/e2e/patient"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/reflector"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// world is one home cluster, with an ID, a virtual node and a namespace of its
// own, and what the owner of west gave it.
type world struct {
	t                        *testing.T
	homeID, node             string
	namespace, away          string // at home and in west
	network                  v1alpha1.PodNetwork
	homeConfig, remoteConfig *rest.Config
	clock                    *clocktesting.FakeClock
	requests                 *remoteapi.NamespaceRequests
}

// newWorld prepares a world; nothing runs in it yet.
func newWorld(t *testing.T, network v1alpha1.PodNetwork) *world {
	t.Helper()
	testbed.Require(t)
	w := &world{t: t, homeID: "h" + rand.String(7), network: network, clock: newClock(t)}
	w.node = "west-" + w.homeID
	w.namespace = testbed.Namespace(t, home)
	w.away = w.namespace + "-" + w.homeID
	_, err := home.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, home.Client().CoreV1().Nodes().Delete(context.Background(), w.node, metav1.DeleteOptions{}))
		w.releasePods()
	})

	tenant := keys.TenantPrefix + w.homeID
	w.makeInWest(tenant, nil)
	_, err = west.Client().CoreV1().ServiceAccounts(tenant).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.bind(tenant, "lodestone-home-tenant")
	w.makeInWest(w.away, map[string]string{keys.HomeID: w.homeID})
	w.bind(w.away, "lodestone-home")

	w.remoteConfig, err = west.ServiceAccountConfig(t.Context(), tenant, keys.HomeAccount)
	require.NoError(t, err)
	w.homeConfig = home.UserConfig(virtualNodes(t))
	all, err := remoteapi.NewClient(west.AdminConfig())
	require.NoError(t, err)
	w.requests = all.NamespaceRequests(tenant)
	return w
}

func (w *world) makeInWest(name string, labels map[string]string) {
	w.t.Helper()
	_, err := west.Client().CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		assert.NoError(w.t, west.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func (w *world) bind(namespace, role string) {
	w.t.Helper()
	_, err := west.Client().RbacV1().RoleBindings(namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: keys.TenantPrefix + w.homeID, Name: keys.HomeAccount}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// open says that the namespace in west can be used, as the remote agent does.
func (w *world) open() {
	w.t.Helper()
	request, err := w.requests.Create(w.t.Context(), &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: w.away}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: w.namespace},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.setReady(request, metav1.ConditionTrue)
}

func (w *world) setReady(request *remotev1alpha1.NamespaceRequest, status metav1.ConditionStatus) {
	w.t.Helper()
	request.Status.Conditions = []metav1.Condition{{Type: remotev1alpha1.Ready, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}}
	_, err := w.requests.UpdateStatus(w.t.Context(), request, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// start runs a reflector until the test ends or the function that it returns is
// called. wrap, if not nil, is put around what goes to west.
func (w *world) start(wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := kubernetes.NewForConfig(w.homeConfig)
	require.NoError(w.t, err)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	factory := informers.NewSharedInformerFactory(client, 0)
	all, err := reflector.New(reflector.Config{
		Client: client, Factory: factory, Clock: w.clock,
		Recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "lodestone-virtualnode"}),
	})
	require.NoError(w.t, err)
	factory.Start(ctx.Done())

	config := patient.Config(w.remoteConfig)
	if wrap != nil {
		config.Wrap(wrap)
	}
	remote, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	requests, err := remoteapi.NewClient(config)
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() {
		done <- all.Run(ctx, &session.Session{
			Cluster: "west", Node: w.node, HomeID: w.homeID, Strategy: v1alpha1.Suffixed, Network: w.network,
			Config: config, Client: remote, Remote: requests,
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, <-done)
		factory.Shutdown()
		broadcaster.Shutdown()
	})
	w.t.Cleanup(stop)
	return stop
}

// newClock returns a clock that goes as fast as any, and can be moved forward.
func newClock(t *testing.T) *clocktesting.FakeClock {
	t.Helper()
	const tick = 10 * time.Millisecond
	fake := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go wait.UntilWithContext(ctx, func(context.Context) { fake.Step(tick) }, tick)
	return fake
}
