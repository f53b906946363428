// Package services tests, on three real control planes, that Services which one cluster exports can be used in the others, by the
// Multi-Cluster Services API: with the rights that the components of deploy/ give, and the policies that confine the program.
package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/retryingwatch"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/services"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// home, west and east are shared by the tests of this package, which run one after the other; each is a home cluster of its own for the
// two. The nodes west and east of home are ready unless a test says otherwise.
var (
	home, west, east *testbed.Cluster
	remotes          *clients.RemoteClusters
	down             = map[string]*atomic.Bool{"west": {}, "east": {}}
)

// definitions are those of the module whose types the program has.
var definitions = []string{string(crd.ServiceExportCRD), string(crd.ServiceImportCRD)}

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"}, testbed.Config{Name: "east"})
		if err != nil {
			return err
		}
		home, west, east = clusters[0], clusters[1], clusters[2]
		return errors.Join(prepareHome(ctx), prepareRemote(ctx, west), prepareRemote(ctx, east))
	})
}

// apply applies a text, or the files of deploy/ that are named.
func apply(ctx context.Context, cluster *testbed.Cluster, text string, files ...string) error {
	args := []string{"apply"}
	for _, file := range files {
		args = append(args, "-f", filepath.Join(fabric.Root(), "deploy", file))
	}
	if text != "" {
		args = append(args, "-f", "-")
	}
	if _, err := cluster.Kubectl(ctx, text, args...); err != nil {
		return fmt.Errorf("prepare %s: %w", cluster.Name(), err)
	}
	return nil
}

// define applies the custom resource definitions of the API.
func define(ctx context.Context, cluster *testbed.Cluster) error {
	for _, definition := range definitions {
		if err := apply(ctx, cluster, definition); err != nil {
			return err
		}
	}
	_, err := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/serviceexports.multicluster.x-k8s.io",
		"crd/serviceimports.multicluster.x-k8s.io")
	return err
}

func prepareHome(ctx context.Context) error {
	err := errors.Join(define(ctx, home),
		apply(ctx, home, "", "base/crds/lodestone.dev_remoteclusters.yaml", "base/namespaces.yaml"),
		apply(ctx, home, "", "components/virtual-node/workload/serviceaccount.yaml", "components/virtual-node/workload/clusterrole.yaml",
			"components/services/rights.yaml", "components/services/limits.yaml", "components/services/users.yaml"))
	if err != nil {
		return err
	}
	if _, err := home.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev",
		"--timeout=30s"); err != nil {
		return err
	}
	if remotes, err = clients.NewRemoteClusters(home.AdminConfig()); err != nil {
		return err
	}
	for name := range down {
		if _, err := remotes.Create(ctx, &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RemoteClusterSpec{
			KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: name},
			Namespaces:          v1alpha1.NamespaceMapping{Strategy: v1alpha1.Suffixed}, PodNetwork: v1alpha1.Fabric,
			PodCIDRs: []string{"10.244.0.0/16"},
		}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make RemoteCluster %s: %w", name, err)
		}
		if _, err := home.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{keys.Cluster: name}}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", name, err)
		}
		go beat(ctx, name)
	}
	return nil
}

// beat says of a node all the time whether it is ready, as the program that registers it does.
func beat(ctx context.Context, name string) {
	for ctx.Err() == nil {
		is := corev1.ConditionTrue
		if down[name].Load() {
			is = corev1.ConditionUnknown
		}
		node, err := home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is, LastHeartbeatTime: metav1.Now()}}
			_, _ = home.Client().CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// prepareRemote does what the owner of a remote cluster does, with the component.
func prepareRemote(ctx context.Context, cluster *testbed.Cluster) error {
	folder, err := os.MkdirTemp("", "services-")
	if err != nil {
		return fmt.Errorf("make a folder for manifests: %w", err)
	}
	defer os.RemoveAll(folder)
	deploy, err := filepath.Rel(folder, filepath.Join(fabric.Root(), "deploy"))
	if err != nil {
		return fmt.Errorf("find deploy/: %w", err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s/remote/home]\ncomponents: "+
		"[%s/components/services-remote]\n", deploy, deploy)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	if err := errors.Join(define(ctx, cluster), apply(ctx, cluster, "", "remote/namespace.yaml", "remote/crds")); err != nil {
		return err
	}
	_, roles := cluster.Kubectl(ctx, "", "apply", "-k", folder)
	_, ready := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/namespacerequests.remote.lodestone.dev", "--timeout=30s")
	return errors.Join(roles, ready)
}

// world is a home cluster with an ID and a namespace of its own, which west and east have, too.
type world struct {
	t         *testing.T
	homeID    string
	namespace string // at home
	// tune changes what is known of a remote cluster, before start.
	tune  func(*session.Session)
	sides map[string]*side
}

// side is a cluster of a world.
type side struct {
	*testbed.Cluster
	api       *clients.MultiClusterServices // with all rights
	namespace string
	account   *rest.Config // what the program is there
	requests  *clients.NamespaceRequests
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testbed.Require(t)
	w := &world{t: t, homeID: "h" + rand.String(7), sides: map[string]*side{}}
	w.namespace = testbed.Namespace(t, home)
	w.label(keys.OffloadEnabled)
	account, err := home.ServiceAccountConfig(t.Context(), "lodestone-system", "lodestone-virtualnode")
	require.NoError(t, err)
	w.sides["home"] = &side{Cluster: home, namespace: w.namespace, account: account}
	for _, cluster := range []*testbed.Cluster{west, east} {
		tenant := keys.TenantPrefix + w.homeID
		at := &side{Cluster: cluster, namespace: w.namespace + "-" + w.homeID}
		w.sides[cluster.Name()] = at
		at.make(t, tenant, nil)
		must.Create(t, at.Client().CoreV1().ServiceAccounts(tenant),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}})
		at.bind(t, tenant, "lodestone-home-tenant", tenant)
		at.make(t, at.namespace, map[string]string{keys.HomeID: w.homeID})
		at.bind(t, at.namespace, "lodestone-home", tenant)
		at.account, err = cluster.ServiceAccountConfig(t.Context(), tenant, keys.HomeAccount)
		require.NoError(t, err)
		all, err := clients.NewRemoteClient(cluster.AdminConfig())
		require.NoError(t, err)
		at.requests = all.NamespaceRequests(tenant)
		request := must.Create(t, at.requests, &remotev1alpha1.NamespaceRequest{
			ObjectMeta: metav1.ObjectMeta{Name: at.namespace}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: w.namespace},
		})
		request.Status.Conditions = []metav1.Condition{{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Test",
			LastTransitionTime: metav1.Now()}}
		must.UpdateStatus(t, at.requests, request)
	}
	for _, at := range w.sides {
		at.api, err = clients.NewMultiClusterServices(at.AdminConfig())
		require.NoError(t, err)
	}
	return w
}

func (s *side) make(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	must.Create(t, s.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	t.Cleanup(func() {
		assert.NoError(t, s.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func (s *side) bind(t *testing.T, namespace, role, tenant string) {
	t.Helper()
	must.Create(t, s.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: keys.HomeAccount}},
	})
}

// label opens the home namespace to remote clusters, or closes it.
func (w *world) label(value string) {
	w.t.Helper()
	namespace := must.Get(w.t, home.Client().CoreV1().Namespaces(), w.namespace)
	namespace.Labels[keys.Offload] = value
	must.Update(w.t, home.Client().CoreV1().Namespaces(), namespace)
}

// start runs the program's part until the test ends or the function that it returns is called. Those remote clusters have sessions that
// are named; none means all.
func (w *world) start(connected ...string) (stop func()) {
	w.t.Helper()
	if len(connected) == 0 {
		connected = []string{"west", "east"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	account := retryingwatch.Config(w.sides["home"].account)
	client, err := kubernetes.NewForConfig(account)
	require.NoError(w.t, err)
	api, err := clients.NewMultiClusterServices(account)
	require.NoError(w.t, err)
	own, err := clients.NewRemoteClusters(account)
	require.NoError(w.t, err)
	objects := clients.NewRemoteClusterInformer(own)
	factory := informers.NewSharedInformerFactory(client, 0)
	set := services.New(services.Config{HomeID: w.homeID, Home: client, Services: api, Factory: factory, Objects: objects})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { objects.RunWithContext(ctx) })
	require.Eventually(w.t, objects.HasSynced, await.Long, await.Soon)
	running.Go(func() { assert.NoError(w.t, set.Run(ctx)) })
	for _, name := range connected {
		s := w.session(name)
		running.Go(func() { assert.NoError(w.t, set.Remote(ctx, s)) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
	w.t.Cleanup(stop)
	return stop
}

// joinsThroughHome says of a remote cluster, as home's gateways do, which others it reaches through home.
func (w *world) joinsThroughHome(name string, others ...string) {
	w.t.Helper()
	status, err := json.Marshal(map[string]any{"status": map[string]any{"transit": others}})
	require.NoError(w.t, err)
	_, err = remotes.Patch(w.t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	require.NoError(w.t, err)
}

// session is what the program has with a remote cluster. Pods of west have the addresses that those of home have, so they are translated;
// those of east are in 10.9.0.0/16.
func (w *world) session(name string) *session.Session {
	w.t.Helper()
	at := w.sides[name]
	config := retryingwatch.Config(at.account)
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	requests, err := clients.NewRemoteClient(config)
	require.NoError(w.t, err)
	s := &session.Session{Cluster: name, Node: name, HomeID: w.homeID, Strategy: v1alpha1.Suffixed, Network: v1alpha1.Fabric,
		Config: config, Client: client, Remote: requests}
	ranges := "10.9.0.0/16"
	if name == "west" {
		ranges = "10.244.0.0/16"
		s.Translations, err = remotecluster.ParseTranslations([]networkv1alpha1.PodTranslation{{PodCIDR: ranges, ReachedAs: "100.65.0.0/16"}})
		require.NoError(w.t, err)
		s.HomeTranslations, err = remotecluster.ParseTranslations([]networkv1alpha1.PodTranslation{{PodCIDR: ranges, ReachedAs: "100.64.0.0/16"}})
		require.NoError(w.t, err)
	}
	s.Ranges, err = remotecluster.ParsePodRanges([]string{ranges})
	require.NoError(w.t, err)
	if w.tune != nil {
		w.tune(s)
	}
	return s
}

// service makes a Service without selector, so that a test plays its endpoints, and exports it.
func (s *side) service(t *testing.T, name string, change func(*corev1.Service), endpoints ...discoveryv1.Endpoint) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	if change != nil {
		change(service)
	}
	service = must.Create(t, s.Client().CoreV1().Services(s.namespace), service)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Labels: map[string]string{
		discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
	for _, port := range service.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(port.Port + 8000)})
	}
	must.Create(t, s.Client().DiscoveryV1().EndpointSlices(s.namespace), slice)
}

func (s *side) exports(t *testing.T, name string, change ...func(*mcs.ServiceExport)) {
	t.Helper()
	export := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, one := range change {
		one(export)
	}
	must.Create(t, s.api.Exports(s.namespace), export)
}

func (s *side) withdraws(t *testing.T, name string) {
	t.Helper()
	must.Delete(t, s.api.Exports(s.namespace), name)
}

func at(address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
}

// imported returns a ServiceImport, nil if there is none.
func (s *side) imported(t *testing.T, name string) *mcs.ServiceImport {
	t.Helper()
	return must.Find(t, s.api.Imports(s.namespace), name)
}

// derived returns the Service that stands for an import, nil if there is none.
func (s *side) derived(t *testing.T, name string) *corev1.Service {
	t.Helper()
	return must.Find(t, s.Client().CoreV1().Services(s.namespace), "mcs-"+name)
}

// slices are those of an import, by the cluster they come from.
func (s *side) slices(t *testing.T, name string) map[string][]discoveryv1.EndpointSlice {
	t.Helper()
	list := must.List(t, s.Client().DiscoveryV1().EndpointSlices(s.namespace), metav1.ListOptions{
		LabelSelector: mcs.LabelServiceName + "=" + name})
	found := map[string][]discoveryv1.EndpointSlice{}
	for _, slice := range list.Items {
		found[slice.Labels[mcs.LabelSourceCluster]] = append(found[slice.Labels[mcs.LabelSourceCluster]], slice)
	}
	return found
}

// addresses are those of the ready endpoints of an import that come from a cluster.
func (s *side) addresses(t *testing.T, name, from string) []string {
	t.Helper()
	var found []string
	for _, slice := range s.slices(t, name)[from] {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				found = append(found, endpoint.Addresses...)
			}
		}
	}
	return found
}

// clean says whether nothing is left of an import.
func (s *side) clean(t *testing.T, name string) bool {
	t.Helper()
	list := must.List(t, s.Client().DiscoveryV1().EndpointSlices(s.namespace), metav1.ListOptions{LabelSelector: keys.ServiceImport})
	return s.imported(t, name) == nil && s.derived(t, name) == nil && len(list.Items) == 0
}

// says waits until a condition of an export has a reason, and returns its message.
func (s *side) says(t *testing.T, name string, condition mcs.ServiceExportConditionType, status metav1.ConditionStatus,
	reason string) string {
	t.Helper()
	var found *metav1.Condition
	await.Until(t, fmt.Sprintf("export %s in %s is %s because of %s", name, s.Name(), condition, reason), func() bool {
		export := must.Get(t, s.api.Exports(s.namespace), name)
		found = meta.FindStatusCondition(export.Status.Conditions, string(condition))
		return found != nil && found.Status == status && found.Reason == reason
	}, func() any { return found })
	return found.Message
}
