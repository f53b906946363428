package remotepods

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// installNetwork installs of the network fabric what the virtual node program needs: the test writes what gateways would.
func installNetwork(t *testing.T) (home, west *clients.NetworkLinks) {
	t.Helper()
	tree := filepath.Join("..", "..", "deploy")
	for _, cluster := range []*testbed.Cluster{bed.Home, bed.West} {
		must.Kubectl(t, cluster, "", "apply", "-k", filepath.Join(tree, "network", "program", "crds"))
		must.Kubectl(t, cluster, "", "wait", "--for=condition=Established", "crd/networklinks.network.lodestone.dev", "--timeout=30s")
	}
	for _, file := range []string{filepath.Join("network", "program", "namespace.yaml"),
		filepath.Join("components", "network", "virtualnode.yaml")} {
		must.Kubectl(t, bed.Home, "", "apply", "-f", filepath.Join(tree, file))
	}
	home, err := clients.NewNetworkLinks(bed.Home.AdminConfig(), keys.NetworkNamespace)
	require.NoError(t, err)
	west, err = clients.NewNetworkLinks(bed.West.AdminConfig(), keys.TenantPrefix+homeID)
	require.NoError(t, err)
	return home, west
}

// TestRemoteClustersAreToldOfEachOtherAndPodsFindEachOther has the network programs of home and west say what they let in, and looks at
// what west is told, and at the endpoints that pods in west find. East is a RemoteCluster that nobody reaches.
func TestRemoteClustersAreToldOfEachOtherAndPodsFindEachOther(t *testing.T) {
	testbed.NotInShort(t)
	namespace := open(t)
	home, west := installNetwork(t)
	set := func(name string, spec map[string]any) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": spec})
		require.NoError(t, err)
		must.Patch(t, bed.Remotes, name, types.MergePatchType, patch)
	}
	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: "nobody"},
			PodNetwork: v1alpha1.Fabric, PodTransit: v1alpha1.TransitEnabled, PodCIDRs: []string{"10.3.0.0/16"}}})
	t.Cleanup(func() { assert.NoError(t, bed.Remotes.Delete(context.Background(), "east", metav1.DeleteOptions{})) })
	must.Create(t, bed.Home.Client().CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stands-for-east",
		Labels: map[string]string{keys.Cluster: "east"}}, Spec: corev1.NodeSpec{ProviderID: "lodestone://east"}})
	t.Cleanup(func() {
		assert.NoError(t, bed.Home.Client().CoreV1().Nodes().Delete(context.Background(), "stands-for-east", metav1.DeleteOptions{}))
	})

	// The nodes of west give pods addresses from 10.128.0.0/9.
	set("west", map[string]any{"podNetwork": "Fabric", "podCIDRs": []string{"10.128.0.0/9"}})
	defer func() {
		assert.NoError(t, network(t, v1alpha1.Isolated))
		await.Until(t, "nothing is left of the link", func() bool {
			list := must.List(t, west)
			return len(list.Items) == 0
		})
	}()
	link := func(of *clients.NetworkLinks, name string) *networkv1alpha1.NetworkLink {
		found, err := of.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return &networkv1alpha1.NetworkLink{}
		}
		return found
	}
	says := func(of *clients.NetworkLinks, name string, status networkv1alpha1.TransitStatus) {
		t.Helper()
		await.Until(t, "what a gateway says is written", func() bool {
			l := link(of, name)
			l.Status.Transit = []networkv1alpha1.TransitStatus{status}
			_, err := of.UpdateStatus(t.Context(), l, metav1.UpdateOptions{})
			return err == nil
		})
	}
	refusal := func(want string) {
		t.Helper()
		await.Until(t, "home is told: "+want, func() bool {
			passing := link(home, "west").Spec.Transit
			return len(passing) == 1 && passing[0].Cluster == "east" && passing[0].Refused == want
		}, func() any { return link(home, "west").Spec })
	}
	await.Until(t, "west is told of home", func() bool { return link(west, keys.Home).UID != "" })
	assert.Empty(t, link(west, keys.Home).Spec.Transit, "nobody has asked for it in west's RemoteCluster")
	set("west", map[string]any{"podTransit": "Enabled"})
	await.Until(t, "west is told of east", func() bool {
		told := link(west, keys.Home).Spec.Transit
		return len(told) == 1 && told[0].Cluster == "east" && slices.Equal(told[0].PodCIDRs, []string{"10.3.0.0/16"})
	})
	refusal("it has said nothing yet of cluster east")

	// The endpoints that pods in west find.
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	must.Create(t, bed.Home.Client().CoreV1().Services(namespace), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone,
			Ports: []corev1.ServicePort{{Name: "db", Port: 5432, TargetPort: intstr.FromInt32(5432)}}}})
	must.Create(t, bed.Home.Client().DiscoveryV1().EndpointSlices(namespace), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db",
			discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.1"}, NodeName: ptr.To("home-1"), Hostname: ptr.To("db-0")},
			{Addresses: []string{"10.3.0.1"}, NodeName: ptr.To("stands-for-east"), Hostname: ptr.To("db-1")}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("db"), Port: ptr.To(int32(5432)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	})
	found := func(what string, want ...string) {
		t.Helper()
		var addresses []string
		await.Until(t, what, func() bool {
			list := must.List(t, bed.West.Client().DiscoveryV1().EndpointSlices(namespace), metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=db," + discoveryv1.LabelManagedBy + "=" + keys.Driver})
			addresses = nil
			for _, slice := range list.Items {
				for _, endpoint := range slice.Endpoints {
					addresses = append(addresses, endpoint.Addresses...)
				}
			}
			slices.Sort(addresses)
			return slices.Equal(want, addresses)
		}, func() any { return addresses })
	}
	found("pods in west find what is at home", "10.1.0.1")

	says(west, keys.Home, networkv1alpha1.TransitStatus{Cluster: "east", Accepted: true, PodCIDRs: []string{"10.3.0.0/16"}})
	refusal("")
	says(home, "west", networkv1alpha1.TransitStatus{Cluster: "east", Accepted: true})
	transit := func(want ...string) {
		t.Helper()
		await.Until(t, "the RemoteCluster says which others are reached: "+strings.Join(want, " "), func() bool {
			remote := must.Get(t, bed.Remotes, "west")
			return slices.Equal(want, remote.Status.Transit)
		})
	}
	transit("east")
	found("they find what is in east", "10.1.0.1", "10.3.0.1")

	// East's gateways are passed on once both ask for direct lanes, and what west says of these comes home.
	made := must.Create(t, home, &networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec: networkv1alpha1.NetworkLinkSpec{
			Gateways: []networkv1alpha1.Gateway{{Name: "e1", Address: "192.0.2.30:7473", Keys: []string{"k", "l"}}},
			Transit:  []networkv1alpha1.Transit{{Cluster: "west", Direct: &networkv1alpha1.DirectLanes{Lanes: 1, Up: 1}}}}})
	t.Cleanup(func() { assert.NoError(t, home.Delete(context.Background(), "east", metav1.DeleteOptions{})) })
	meta.SetStatusCondition(&made.Status.Conditions, metav1.Condition{Type: networkv1alpha1.Accepted, Status: metav1.ConditionTrue,
		Reason: "Accepted"})
	_, err := home.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	lanes := func(what string, holds func(there, here networkv1alpha1.Transit) bool) {
		t.Helper()
		await.Until(t, what, func() bool {
			there, here := link(west, keys.Home).Spec.Transit, link(home, "west").Spec.Transit
			return len(there) == 1 && len(here) == 1 && holds(there[0], here[0])
		}, func() any { return []any{link(west, keys.Home).Spec, link(home, "west").Spec} })
	}
	set("west", map[string]any{"podTransit": "Direct"})
	lanes("one of the two asks for nothing", func(there, here networkv1alpha1.Transit) bool {
		return there.Gateways == nil && here.Direct == nil
	})
	set("east", map[string]any{"podTransit": "Direct"})
	lanes("west is told of east's gateways, which dial", func(there, here networkv1alpha1.Transit) bool {
		return len(there.Gateways) == 1 && there.Gateways[0].Address == "" && slices.Equal(there.Gateways[0].Keys, []string{"k", "l"}) &&
			there.Direct == nil && here.Gateways == nil && here.Direct != nil &&
			here.Direct.Message == "it has said nothing yet of lanes to cluster east"
	})
	await.Until(t, "a gateway of west says that its lane is up", func() bool {
		l := link(west, keys.Home)
		l.Status.Transit[0].Direct = true
		l.Status.Gateways = []networkv1alpha1.GatewayStatus{{Gateway: networkv1alpha1.Gateway{Name: "w1", Keys: []string{"m"}},
			Direct: []networkv1alpha1.DirectStatus{{Cluster: "east", DirectLanes: networkv1alpha1.DirectLanes{Lanes: 1, Up: 1}}}}}
		_, err := west.UpdateStatus(t.Context(), l, metav1.UpdateOptions{})
		return err == nil
	})
	lanes("home hears that it is up", func(_, here networkv1alpha1.Transit) bool { return here.Direct != nil && here.Direct.Up == 1 })
	await.Until(t, "the RemoteCluster says which others are reached directly", func() bool {
		return slices.Equal(must.Get(t, bed.Remotes, "west").Status.DirectTransit, []string{"east"})
	})
	set("east", map[string]any{"podTransit": "Enabled"})
	lanes("nothing is told of gateways any more", func(there, here networkv1alpha1.Transit) bool {
		return there.Gateways == nil && here.Direct == nil
	})
	await.Until(t, "nor does the RemoteCluster say so", func() bool {
		return len(must.Get(t, bed.Remotes, "west").Status.DirectTransit) == 0
	})

	says(west, keys.Home, networkv1alpha1.TransitStatus{Cluster: "east", Message: "the owner has not allowed it"})
	refusal("the owner has not allowed it")
	says(home, "west", networkv1alpha1.TransitStatus{Cluster: "east", Message: "cluster west: the owner has not allowed it"})
	transit()
	found("once west refuses, they find it no more", "10.1.0.1")

	set("east", map[string]any{"podTransit": "Disabled"})
	await.Until(t, "west is told no more of east", func() bool {
		return len(link(west, keys.Home).Spec.Transit) == 0 && len(link(home, "west").Spec.Transit) == 0
	})
	remote := must.Get(t, bed.Remotes, "west")
	assert.NotNil(t, meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady))
}
