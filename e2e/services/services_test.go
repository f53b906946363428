package services

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// has waits until an import has the endpoints of a cluster.
func (w *world) has(where, name, from string, addresses ...string) {
	w.t.Helper()
	at := w.sides[where]
	await.Until(w.t, fmt.Sprintf("%s imports %s of %s with %v", where, name, from, addresses), func() bool {
		return assert.ObjectsAreEqual(addresses, at.addresses(w.t, name, from)) || len(addresses) == 0 && len(at.addresses(w.t, name, from)) == 0
	}, func() any { return at.slices(w.t, name) })
}

// gone waits until nothing of a name is left in any cluster.
func (w *world) gone(name string) {
	w.t.Helper()
	for _, at := range w.sides {
		await.Until(w.t, "nothing of "+name+" is left in "+at.Name(), func() bool { return at.clean(w.t, name) })
	}
}

// address waits until an import has the address of its Service, and returns it.
func (w *world) address(where, name string) string {
	w.t.Helper()
	at := w.sides[where]
	var found *mcs.ServiceImport
	await.Until(w.t, where+" has an address for "+name, func() bool {
		found = at.imported(w.t, name)
		return found != nil && len(found.Spec.IPs) == 1
	}, func() any { return found })
	derived := at.derived(w.t, name)
	require.NotNil(w.t, derived)
	assert.Equal(w.t, derived.Spec.ClusterIP, found.Spec.IPs[0])
	assert.Equal(w.t, derived.Spec.IPFamilies, found.Spec.IPFamilies)
	assert.Empty(w.t, derived.Spec.Selector)
	return derived.Spec.ClusterIP
}

func TestAServiceOfHomeIsImportedInTheRemoteClusters(t *testing.T) {
	w := newWorld(t)
	w.start()
	one := w.sides["home"]
	// The second pod runs in west: home knows the address by which it reaches that one itself.
	inWest := at("100.65.3.4")
	inWest.NodeName = ptr.To("west")
	notYet := at("10.244.0.9")
	notYet.Conditions.Ready = ptr.To(false)
	one.service(t, "web", nil, at("10.244.0.7"), inWest, notYet)
	one.exports(t, "web", func(export *mcs.ServiceExport) {
		export.Spec.ExportedLabels = map[string]string{"team": "shop"}
		export.Spec.ExportedAnnotations = map[string]string{"example.com/note": "on two clusters"}
	})

	w.has("home", "web", w.homeID, "10.244.0.7", "100.65.3.4")
	w.has("west", "web", w.homeID, "100.64.0.7", "10.244.3.4")
	w.has("east", "web", w.homeID, "10.244.0.7")
	for _, where := range []string{"home", "west", "east"} {
		w.address(where, "web")
		found := w.sides[where].imported(t, "web")
		assert.Equal(t, mcs.ClusterSetIP, found.Spec.Type)
		assert.Equal(t, []mcs.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, found.Spec.Ports)
		assert.Equal(t, "shop", found.Labels["team"])
		assert.Equal(t, "on two clusters", found.Annotations["example.com/note"])
		slice := w.sides[where].slices(t, "web")[w.homeID][0]
		assert.Equal(t, "mcs-web", slice.Labels[discoveryv1.LabelServiceName], "kube-proxy sends to it")
		assert.Equal(t, int32(8080), *slice.Ports[0].Port)
		if where != "east" {
			assert.Len(t, slice.Endpoints, 3-strings.Count(where, "east"), "with the one that is not ready")
		}
		await.Until(t, "the import says that it can be used", func() bool {
			status := w.sides[where].imported(t, "web").Status
			return len(status.Conditions) == 1 && status.Conditions[0].Status == metav1.ConditionTrue && len(status.Clusters) == 1 &&
				status.Clusters[0].Cluster == w.homeID && status.EndpointSliceObjects == mcs.EndpointSliceObjectsPresent
		})
	}
	one.says(t, "web", mcs.ServiceExportConditionValid, metav1.ConditionTrue, "Valid")
	one.says(t, "web", mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "NoConflicts")
	await.Until(t, "it says where", func() bool {
		// IDs of home clusters begin with h here.
		return strings.HasSuffix(one.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionTrue, "Exported"),
			"east, "+w.homeID+", west")
	})

	// What somebody changes is put back; what changes follows.
	stolen := w.sides["west"].derived(t, "web")
	stolen.Spec.Selector = map[string]string{"app": "other"}
	must.Update(t, west.Client().CoreV1().Services(stolen.Namespace), stolen)
	await.Until(t, "west's Service has no selector", func() bool { return len(w.sides["west"].derived(t, "web").Spec.Selector) == 0 })
	slice := must.Get(t, home.Client().DiscoveryV1().EndpointSlices(w.namespace), "web-1")
	slice.Endpoints = slice.Endpoints[:1]
	must.Update(t, home.Client().DiscoveryV1().EndpointSlices(w.namespace), slice)
	w.has("west", "web", w.homeID, "100.64.0.7")

	one.withdraws(t, "web")
	w.gone("web")
	_, err := home.Client().CoreV1().Services(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err, "the Service itself stays")
}

func TestAServiceOfWestIsImportedAtHomeAndItsAddressesAreChecked(t *testing.T) {
	w := newWorld(t)
	w.start()
	there := w.sides["west"]
	// 10.96.0.1 is a Service, 192.0.2.1 a host, and 100.64.0.1 a pod of home as west reaches it.
	there.service(t, "web", nil, at("10.244.0.7"), at("10.96.0.1"), at("192.0.2.1"), at("100.64.0.1"))
	there.exports(t, "web")
	w.has("home", "web", "west", "100.65.0.7")
	w.has("west", "web", "west", "10.244.0.7")
	w.address("home", "web")
	await.Until(t, "east imports it, whose pods do not reach those of west", func() bool { return w.sides["east"].imported(t, "web") != nil })
	w.has("east", "web", "west")
	w.joinsThroughHome("east", "west")
	w.has("east", "web", "west", "100.65.0.7")
	w.joinsThroughHome("east")
	w.has("east", "web", "west")
	assert.Contains(t, there.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionFalse, "Failed"), "3 endpoints are left out")
	there.withdraws(t, "web")
	w.gone("web")
}

func TestRoutedRemoteClustersReachEachOther(t *testing.T) {
	testbed.NotInShort(t)
	w := newWorld(t)
	w.tune = func(s *session.Session) {
		s.Network, s.Translations, s.HomeTranslations = v1alpha1.Routed, nil, nil
	}
	w.start()
	there := w.sides["west"]
	there.service(t, "web", nil, at("10.244.0.7"))
	there.exports(t, "web")
	w.has("home", "web", "west", "10.244.0.7")
	w.has("east", "web", "west", "10.244.0.7")
}

func TestExportsOfTwoClustersAreOneImport(t *testing.T) {
	w := newWorld(t)
	w.start()
	one, other := w.sides["home"], w.sides["west"]
	one.service(t, "web", func(service *corev1.Service) {
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}, at("10.244.0.7"))
	one.exports(t, "web")
	w.has("west", "web", w.homeID, "100.64.0.7")
	time.Sleep(1100 * time.Millisecond) // creation times have seconds
	other.service(t, "web", func(service *corev1.Service) {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 9000}, corev1.ServicePort{Name: "clash", Port: 80,
			Protocol: corev1.ProtocolUDP})
	}, at("10.244.0.8"))
	other.exports(t, "web")

	w.has("home", "web", "west", "100.65.0.8")
	w.has("west", "web", "west", "10.244.0.8")
	for _, at := range []*side{one, other, w.sides["east"]} {
		await.Until(t, at.Name()+" has the ports of both", func() bool {
			found := at.imported(t, "web")
			return found != nil && len(found.Spec.Ports) == 3 && found.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
		})
		await.Until(t, "its Service has them, too", func() bool {
			derived := at.derived(t, "web")
			return derived != nil && len(derived.Spec.Ports) == 3 && derived.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
		})
	}
	for _, at := range []*side{one, other} {
		message := at.says(t, "web", mcs.ServiceExportConditionConflict, metav1.ConditionTrue, "PortConflict,SessionAffinityConflict")
		assert.Contains(t, message, "that of "+w.homeID+" counts")
	}
	// Without the older one the younger counts.
	one.withdraws(t, "web")
	other.says(t, "web", mcs.ServiceExportConditionConflict, metav1.ConditionFalse, "NoConflicts")
	await.Until(t, "home imports what west exports", func() bool {
		found := one.imported(t, "web")
		return found != nil && found.Spec.SessionAffinity == corev1.ServiceAffinityNone && len(found.Status.Clusters) == 1
	})
	w.has("home", "web", w.homeID)
	w.has("home", "web", "west", "100.65.0.8")
}

func TestAHeadlessServiceKeepsTheNamesOfItsPods(t *testing.T) {
	w := newWorld(t)
	w.start()
	headless := func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone }
	named := func(endpoint discoveryv1.Endpoint, name string) discoveryv1.Endpoint {
		endpoint.Hostname = &name
		return endpoint
	}
	for _, where := range []string{"home", "west"} {
		w.sides[where].service(t, "db", headless, named(at("10.244.0.7"), "db-0"))
		w.sides[where].exports(t, "db")
	}
	w.has("home", "db", w.homeID, "10.244.0.7")
	w.has("home", "db", "west", "100.65.0.7")
	for _, where := range []string{"home", "west"} {
		at := w.sides[where]
		found := at.imported(t, "db")
		assert.Equal(t, mcs.Headless, found.Spec.Type)
		assert.Empty(t, found.Spec.IPs)
		await.Until(t, "its Service is headless", func() bool {
			derived := at.derived(t, "db")
			return derived != nil && derived.Spec.ClusterIP == corev1.ClusterIPNone
		})
		await.Until(t, "the import has the one family of its cluster", func() bool {
			return assert.ObjectsAreEqual([]corev1.IPFamily{corev1.IPv4Protocol}, at.imported(t, "db").Spec.IPFamilies)
		}, func() any { return at.imported(t, "db").Spec })
		for _, from := range []string{w.homeID, "west"} {
			await.Until(t, "pods have the names that they have there", func() bool {
				slices := at.slices(t, "db")[from]
				return len(slices) == 1 && *slices[0].Endpoints[0].Hostname == "db-0"
			})
		}
		await.Until(t, "DNS tells those of the two clusters from each other", func() bool {
			list := must.List(t, at.Client().DiscoveryV1().EndpointSlices(at.namespace), metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=mcs-db"})
			names := map[string]bool{}
			for _, slice := range list.Items {
				names[*slice.Endpoints[0].Hostname] = true
			}
			return len(names) == 2 && names["db-0--west"] && names["db-0--"+w.homeID]
		})
	}
}

func TestWhatCannotBeExportedSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.start()
	one := w.sides["home"]
	invalid := func(name, reason, says string) {
		t.Helper()
		assert.Contains(t, one.says(t, name, mcs.ServiceExportConditionValid, metav1.ConditionFalse, reason), says)
		one.says(t, name, mcs.ServiceExportConditionReady, metav1.ConditionFalse, "Pending")
	}
	one.exports(t, "none")
	invalid("none", "NoService", "there is no Service none")
	name := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "name"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}
	must.Create(t, home.Client().CoreV1().Services(w.namespace), name)
	one.exports(t, "name")
	invalid("name", "InvalidServiceType", "ExternalName")
	one.exports(t, strings.Repeat("x", 60))
	invalid(strings.Repeat("x", 60), "InvalidName", "at most 59")
	one.service(t, "labels", nil, at("10.244.0.7"))
	one.exports(t, "labels", func(export *mcs.ServiceExport) {
		export.Spec.ExportedLabels = map[string]string{"lodestone.dev/offload": "enabled"}
	})
	invalid("labels", "InvalidLabels", "lodestone.dev")
	for _, at := range w.sides {
		list := must.List(t, at.api.Imports(at.namespace))
		assert.Empty(t, list.Items, "of none of these comes an import in %s", at.Name())
	}
	// What was missing can come.
	one.service(t, "none", nil, at("10.244.0.7"))
	w.has("west", "none", w.homeID, "100.64.0.7")
	must.Delete(t, home.Client().CoreV1().Services(w.namespace), "none")
	w.gone("none")
}

func TestWhatIsInTheWayIsLeftAlone(t *testing.T) {
	testbed.NotInShort(t)
	w := newWorld(t)
	w.start()
	one, there := w.sides["home"], w.sides["west"]
	must.Create(t, there.api.Imports(there.namespace), &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: mcs.ServiceImportSpec{Type: mcs.Headless, Ports: []mcs.ServicePort{}}})
	one.service(t, "web", nil, at("10.244.0.7"))
	one.exports(t, "web")
	w.has("east", "web", w.homeID, "10.244.0.7")
	await.Until(t, "the export says what is in the way", func() bool {
		return strings.HasPrefix(one.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionFalse, "Failed"),
			"cluster west: in namespace "+there.namespace+" a ServiceImport web is there that Lodestone did not make")
	})
	assert.Equal(t, mcs.Headless, there.imported(t, "web").Spec.Type)
	must.Delete(t, there.api.Imports(there.namespace), "web")
	w.has("west", "web", w.homeID, "100.64.0.7")
	one.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
}

func TestTheNamespaceSaysWhoTakesPart(t *testing.T) {
	w := newWorld(t)
	w.start()
	one := w.sides["home"]
	one.service(t, "web", nil, at("10.244.0.7"))
	one.exports(t, "web")
	w.has("west", "web", w.homeID, "100.64.0.7")
	w.label("no")
	w.gone("web")
	assert.Contains(t, one.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionFalse, "NotOffloaded"),
		"lodestone.dev/offload=enabled")
	w.label(keys.OffloadEnabled)
	w.has("west", "web", w.homeID, "100.64.0.7")
	w.has("home", "web", w.homeID, "10.244.0.7")
	// The namespace of home goes, and with it what the others have of it.
	must.Delete(t, home.Client().CoreV1().Namespaces(), w.namespace)
	for _, where := range []string{"west", "east"} {
		await.Until(t, "nothing is left in "+where, func() bool { return w.sides[where].clean(t, "web") })
	}
}

func TestARemoteClusterThatIsAwayKeepsWhatItHas(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	one, there := w.sides["home"], w.sides["west"]
	there.service(t, "web", nil, at("10.244.0.7"))
	there.exports(t, "web")
	one.service(t, "shop", nil, at("10.244.0.9"))
	one.exports(t, "shop")
	w.has("home", "web", "west", "100.65.0.7")
	w.has("west", "shop", w.homeID, "100.64.0.9")
	w.address("west", "shop")
	before := w.address("home", "web")

	require.NoError(t, west.PauseAPIServer())
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			down["west"].Store(false)
			require.NoError(t, west.ResumeAPIServer())
		}
	}
	defer resume()
	down["west"].Store(true)
	w.has("home", "web", "west") // none is ready, as with pods of a node that does not answer
	assert.Len(t, one.slices(t, "web")["west"][0].Endpoints, 1)
	// The program starts anew, and knows nothing of west.
	stop()
	stop = w.start()
	one.withdraws(t, "shop")
	await.Until(t, "east has nothing of it any more", func() bool { return w.sides["east"].imported(t, "shop") == nil })
	await.Always(t, "what west exports is still imported at home", func() bool {
		found := one.imported(t, "web")
		return found != nil && len(found.Spec.IPs) == 1 && found.Spec.IPs[0] == before && len(one.slices(t, "web")["west"]) == 1
	})
	resume()
	w.has("home", "web", "west", "100.65.0.7")
	await.Until(t, "west has heard of what was withdrawn", func() bool {
		return there.imported(t, "shop") == nil && there.derived(t, "shop") == nil
	})
	assert.NotNil(t, there.imported(t, "web"))
	stop()
	// It is no longer peered: home has nothing of it any more.
	w.start("east")
	await.Always(t, "it is peered still", func() bool { return one.imported(t, "web") != nil })
	network := func(network v1alpha1.PodNetwork) {
		_, err := home.Kubectl(context.Background(), "", "patch", "remotecluster", "west", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"podNetwork":%q}}`, network))
		assert.NoError(t, err)
	}
	network(v1alpha1.Isolated)
	defer network(v1alpha1.Fabric)
	await.Until(t, "home imports nothing of it", func() bool { return one.clean(t, "web") })
}

func TestAClusterWithoutTheAPIHasNoPartInIt(t *testing.T) {
	testbed.NotInShort(t)
	w := newWorld(t)
	there := w.sides["east"]
	must.Delete(t, there.Client().RbacV1().RoleBindings(there.namespace), "lodestone-home")
	w.start()
	one := w.sides["home"]
	one.service(t, "web", nil, at("10.244.0.7"))
	one.exports(t, "web")
	w.has("west", "web", w.homeID, "100.64.0.7")
	await.Until(t, "the export says so", func() bool {
		return strings.Contains(one.says(t, "web", mcs.ServiceExportConditionReady, metav1.ConditionTrue, "Exported"),
			"; not in cluster east: home may not use the Multi-Cluster Services API there: apply deploy/components/services-remote")
	})
}

// Whatever the program is told, it cannot go beyond what both clusters let it do.
func TestTheProgramIsConfined(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	forbidden := func(err error, says string) {
		t.Helper()
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, says)
	}
	ours := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.ServiceImport: "web", keys.HomeID: w.homeID,
			discoveryv1.LabelManagedBy: keys.Driver}}
	}
	service := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		made := &corev1.Service{ObjectMeta: ours(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if change != nil {
			change(&made.Spec)
		}
		return made
	}
	program, err := kubernetes.NewForConfig(w.sides["home"].account)
	require.NoError(t, err)
	create := func(namespace string, made *corev1.Service) error {
		_, err := program.CoreV1().Services(namespace).Create(ctx, made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	await.Until(t, "the policy is in force", func() bool { return create("default", service("mcs-web", nil)) != nil })
	require.NoError(t, create(w.namespace, service("mcs-web", nil)))
	forbidden(create("default", service("mcs-web", nil)), "only in namespaces with the label lodestone.dev/offload=enabled")
	forbidden(create(w.namespace, service("other", nil)), "has its name after mcs-")
	forbidden(create(w.namespace, service("mcs-web", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"10.96.0.1"} })),
		"no external IPs")
	forbidden(create(w.namespace, service("mcs-web", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"a": "b"} })), "no selector")
	unlabelled := service("mcs-web", nil)
	unlabelled.Labels = nil
	forbidden(create(w.namespace, unlabelled), "label lodestone.dev/service-import")
	w.sides["home"].service(t, "web", nil, at("10.244.0.7"))
	forbidden(program.CoreV1().Services(w.namespace).Delete(ctx, "web", metav1.DeleteOptions{}), "label lodestone.dev/service-import")
	stolen := &discoveryv1.EndpointSlice{ObjectMeta: ours("web-2"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{at("10.0.0.1")}}
	stolen.Labels[discoveryv1.LabelServiceName] = "web"
	_, err = program.DiscoveryV1().EndpointSlices(w.namespace).Create(ctx, stolen, metav1.CreateOptions{})
	forbidden(err, "belongs to no Service but the one")

	// In a remote cluster: nowhere else, and of an export nothing but its status.
	there := w.sides["west"]
	api, err := clients.NewMultiClusterServices(there.account)
	require.NoError(t, err)
	imported := &mcs.ServiceImport{ObjectMeta: ours("web"), Spec: mcs.ServiceImportSpec{Type: mcs.Headless, Ports: []mcs.ServicePort{}}}
	_, err = api.Imports("default").Create(ctx, imported, metav1.CreateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	unmarked := imported.DeepCopy()
	unmarked.Labels = nil
	_, err = api.Imports(there.namespace).Create(ctx, unmarked, metav1.CreateOptions{})
	forbidden(err, "must have the label lodestone.dev/home")
	there.exports(t, "web")
	export := must.Get(t, there.api.Exports(there.namespace), "web")
	_, err = api.Exports(there.namespace).Update(ctx, export, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	changed := export.DeepCopy()
	changed.Finalizers = []string{"example.com/stays"}
	_, err = api.Exports(there.namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err == nil {
		after := must.Get(t, there.api.Exports(there.namespace), "web")
		assert.Empty(t, after.Finalizers)
	}
}
