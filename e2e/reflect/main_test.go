// Package reflect tests, on real control planes, that what the pods of a virtual
// node need follows them to the remote cluster, and nothing else.
package reflect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/retryingwatch"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/reflector"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// The clusters are shared by the tests of this package; each test is a home
// cluster of its own for west.
var home, west *testbed.Cluster

func TestMain(m *testing.M) {
	testbed.Parallel(4)
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
		if err != nil {
			return err
		}
		home, west = clusters[0], clusters[1]
		remote := filepath.Join("..", "..", "deploy", "remote")
		_, namespace := west.Kubectl(ctx, "", "apply", "-f", filepath.Join(remote, "namespace.yaml"))
		_, roles := west.Kubectl(ctx, "", "apply", "-k", filepath.Join(remote, "home"))
		_, objects := west.Kubectl(ctx, "", "apply", "-f", filepath.Join(remote, "crds"))
		_, ready := west.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/namespacerequests.remote.lodestone.dev", "--timeout=30s")
		_, remotes := home.Kubectl(ctx, "", "apply", "-f",
			filepath.Join("..", "..", "deploy", "base", "crds", "lodestone.dev_remoteclusters.yaml"))
		_, served := home.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=30s")
		if err := errors.Join(namespace, roles, objects, ready, remotes, served); err != nil {
			return fmt.Errorf("prepare home and west: %w", err)
		}
		return nil
	})
}

// world is one home cluster, with an ID, a virtual node and a namespace of its
// own, and what the owner of west gave it.
type world struct {
	t                        *testing.T
	homeID, node             string
	namespace, away          string // at home and in west
	network                  v1alpha1.PodNetwork
	homeConfig, remoteConfig *rest.Config
	clock                    *clocktesting.FakeClock
	requests                 *clients.NamespaceRequests
	// remotes are home's RemoteClusters, nil where the test needs none.
	remotes *clients.RemoteClusters
	// homePods are by which addresses pods in west reach others.
	homePods remotecluster.Translations
}

// running prepares a world whose namespace in west can be used, and runs what reflects in it.
func running(t *testing.T, network v1alpha1.PodNetwork) *world {
	t.Helper()
	w := newWorld(t, network)
	w.open()
	w.start(nil)
	return w
}

// newWorld prepares a world, of a test that runs beside others; nothing runs in it yet.
func newWorld(t *testing.T, network v1alpha1.PodNetwork) *world {
	t.Helper()
	t.Parallel()
	testbed.Require(t)
	w := &world{t: t, homeID: "h" + rand.String(7), network: network, clock: newClock(t)}
	w.node = "west-" + w.homeID
	w.namespace = testbed.Namespace(t, home)
	w.away = w.namespace + "-" + w.homeID
	_, err := home.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, home.Client().CoreV1().Nodes().Delete(context.Background(), w.node, metav1.DeleteOptions{}))
		w.releasePods()
	})

	tenant := keys.TenantPrefix + w.homeID
	w.makeInWest(tenant, nil)
	must.Create(t, west.Client().CoreV1().ServiceAccounts(tenant),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}})
	w.bind(tenant, "lodestone-home-tenant")
	w.makeInWest(w.away, map[string]string{keys.HomeID: w.homeID})
	w.bind(w.away, "lodestone-home")

	w.remoteConfig, err = west.ServiceAccountConfig(t.Context(), tenant, keys.HomeAccount)
	require.NoError(t, err)
	w.homeConfig = home.UserConfig(virtualNodes(t))
	all, err := clients.NewRemoteClient(west.AdminConfig())
	require.NoError(t, err)
	w.requests = all.NamespaceRequests(tenant)
	return w
}

func (w *world) makeInWest(name string, labels map[string]string) {
	w.t.Helper()
	must.Create(w.t, west.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	w.t.Cleanup(func() {
		assert.NoError(w.t, west.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func (w *world) bind(namespace, role string) {
	w.t.Helper()
	must.Create(w.t, west.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: keys.TenantPrefix + w.homeID, Name: keys.HomeAccount}},
	})
}

// open says that the namespace in west can be used, as the remote agent does.
func (w *world) open() {
	w.t.Helper()
	request := must.Create(w.t, w.requests, &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: w.away}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: w.namespace},
	})
	w.setReady(request, metav1.ConditionTrue)
}

func (w *world) setReady(request *remotev1alpha1.NamespaceRequest, status metav1.ConditionStatus) {
	w.t.Helper()
	request.Status.Conditions = []metav1.Condition{{Type: remotev1alpha1.Ready, Status: status, Reason: "Test",
		LastTransitionTime: metav1.Now()}}
	must.UpdateStatus(w.t, w.requests, request)
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
	var remotes cache.SharedIndexInformer
	if w.remotes != nil {
		remotes = clients.NewRemoteClusterInformer(w.remotes)
		go remotes.RunWithContext(ctx)
		require.True(w.t, cache.WaitForCacheSync(ctx.Done(), remotes.HasSynced))
	}
	all, err := reflector.New(reflector.Config{
		Client: client, Factory: factory, Clock: w.clock, Remotes: remotes,
		Recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "lodestone-virtualnode"}),
	})
	require.NoError(w.t, err)
	factory.Start(ctx.Done())

	config := retryingwatch.Config(w.remoteConfig)
	if wrap != nil {
		config.Wrap(wrap)
	}
	remote, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	requests, err := clients.NewRemoteClient(config)
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() {
		done <- all.Run(ctx, &session.Session{
			Cluster: "west", Node: w.node, HomeID: w.homeID, Strategy: v1alpha1.Suffixed, Network: w.network,
			HomeTranslations: w.homePods,
			Config:           config, Client: remote, Remote: requests,
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

// virtualNodes returns a user of home with the rights that copying needs, and no
// others.
func virtualNodes(t *testing.T) string {
	t.Helper()
	const name = "virtual-nodes"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "configmaps", "services", "secrets", "nodes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	_, err := home.Client().RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	_, err = home.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return name
}

// pod makes a pod on the virtual node, accepted to run in west; change may be nil.
func (w *world) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Finalizers: []string{keys.RemotePodFinalizer}},
		Spec:       corev1.PodSpec{NodeName: w.node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if change != nil {
		change(pod)
	}
	return must.Create(w.t, home.Client().CoreV1().Pods(w.namespace), pod)
}

// endPod deletes a pod as if its copy were gone.
func (w *world) endPod(name string) {
	w.t.Helper()
	pods := home.Client().CoreV1().Pods(w.namespace)
	require.NoError(w.t, pods.Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	_, err := pods.Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
}

// releasePods takes the finalizers off what is left, so that the namespace can go.
func (w *world) releasePods() {
	pods := home.Client().CoreV1().Pods(w.namespace)
	list, err := pods.List(context.Background(), metav1.ListOptions{})
	assert.NoError(w.t, err)
	for _, pod := range list.Items {
		_, err := pods.Patch(context.Background(), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			assert.NoError(w.t, err)
		}
	}
}

func mounts(configMap, secret string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if configMap != "" {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "c-" + configMap, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
			}})
		}
		if secret != "" {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "s-" + secret, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: secret},
			}})
		}
	}
}

func (w *world) configMap(name, value string) *corev1.ConfigMap {
	w.t.Helper()
	return must.Create(w.t, home.Client().CoreV1().ConfigMaps(w.namespace), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"note": "stays"}},
		Data:       map[string]string{"key": value}, BinaryData: map[string][]byte{"raw": {0, 255}},
	})
}

// awayConfigMap returns a ConfigMap of west, nil if there is none.
func (w *world) awayConfigMap(name string) *corev1.ConfigMap {
	w.t.Helper()
	return must.Find(w.t, west.Client().CoreV1().ConfigMaps(w.away), name)
}

// told waits for an event about an object of home, and returns its message.
func (w *world) told(name, reason string) string {
	w.t.Helper()
	return await.Event(w.t, home.Client(), w.namespace, name, reason)
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	await.Until(w.t, what, done)
}

func (w *world) consistently(what string, holds func() bool) {
	w.t.Helper()
	await.Always(w.t, what, holds)
}
