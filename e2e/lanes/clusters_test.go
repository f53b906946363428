package lanes

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/cluster"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// clusters are home and west, with nodes and pods of a Lab.
type clusters struct {
	*netlab.Lab
	// namespace is one of home that is open to west, where it has pods, too.
	namespace string
	// client is a pod at home, server one in west, both of that namespace.
	client, server *netlab.Pod
	// start starts the agents of nodes, by the names of these.
	start map[string]func()
}

// joined makes the clusters, with probes, and waits until NetworkReady is True, and pods reach each other.
func joined(t *testing.T) *clusters {
	t.Helper()
	testbed.Require(t)
	netlab.Need(t)
	lab, err := netlab.New(t.Context(), netlab.Settings{Strict: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(lab.Logs())
		}
		lab.Close()
	})
	c := &clusters{Lab: lab, namespace: open(t), start: map[string]func(){}}
	install(t)
	c.attend(t, bed.Home, lab.Home)
	c.attend(t, bed.West, lab.West, "--tenants")
	for _, n := range lab.Nodes() {
		c.start[n.Name]()
	}
	set(t, map[string]any{"podNetwork": "Fabric", "podCIDRs": []string{"10.2.0.0/16"}})
	t.Cleanup(func() {
		set(t, map[string]any{"podNetwork": "Isolated", "podCIDRs": nil})
		await.Until(t, "the networks are parted", func() bool { return networkReady(t) == nil })
	})
	becomes(t, metav1.ConditionTrue, "Probed")

	must.Create(t, bed.Home.Client().CoreV1().Pods(c.namespace), fabric.InWest(fabric.NewPod(c.namespace, "web")))
	bed.AwaitRunning(t, c.namespace, "web") // so west has the namespace
	c.client, c.server = lab.Home.Nodes[0].Pods[1], lab.West.Nodes[0].Pods[1]
	made(t, bed.Home, c.namespace, "client", lab.Home.Nodes[0], c.client, nil)
	made(t, bed.West, c.namespace, "server", lab.West.Nodes[0], c.server, nil)
	serving, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	require.NoError(t, c.server.Serve(serving))
	require.NoError(t, netlab.Hear(c.client.Namespace, c.server, await.Long), "the pods reach each other")
	return c
}

// install brings what of deploy/ the network program needs, without its pods.
func install(t *testing.T) {
	t.Helper()
	program := filepath.Join(fabric.Root(), "deploy", "network", "program")
	for _, on := range []*testbed.Cluster{bed.Home, bed.West} {
		must.Kubectl(t, on, "", "apply", "-k", filepath.Join(program, "crds"))
		must.Kubectl(t, on, "", "wait", "--for=condition=Established", "crd/networklinks.network.lodestone.dev", "--timeout=60s")
		for _, file := range []string{"namespace.yaml", "agent-rights.yaml", "probe-rights.yaml", "status-rights.yaml"} {
			must.Kubectl(t, on, "", "apply", "-f", filepath.Join(program, file))
		}
	}
	components := filepath.Join(fabric.Root(), "deploy", "components")
	must.Kubectl(t, bed.Home, "", "apply", "-f", filepath.Join(components, "network", "virtualnode.yaml"))
	must.Kubectl(t, bed.West, "", "apply", "-f", filepath.Join(components, "network-remote", "rights.yaml"))
}

// attend gives a cluster the nodes of the Lab, with two pods that probe, which run from here on, and gets the agents ready to start.
func (c *clusters) attend(t *testing.T, of *testbed.Cluster, in *netlab.Cluster, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	server, err := url.Parse(of.AdminConfig().Host)
	require.NoError(t, err)
	for i, n := range in.Nodes {
		made := must.Create(t, of.Client().CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: corev1.NodeSpec{PodCIDR: n.Range.String(), PodCIDRs: []string{n.Range.String()}, Unschedulable: true},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Address.String()}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		t.Cleanup(func() {
			_ = of.Client().CoreV1().Nodes().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
		})
		if n.Gateway {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{keys.Gateway: keys.GatewayEnabled}}})
			require.NoError(t, err)
			must.Patch(t, of.Client().CoreV1().Nodes(), n.Name, types.MergePatchType, patch)
		}
		require.NoError(t, n.Forward(ctx, server.Host, server.Host))
		agent := identity(t, of, "agent-"+n.Name, n, nil, "lodestone-network", "")
		c.start[n.Name] = func() { require.NoError(t, c.StartForCluster(n, agent, args...)) }
		if i == 0 || i == 1 {
			p := n.Pods[0]
			require.NoError(t, p.Forward(ctx, server.Host, server.Host))
			name := "probe-" + n.Name
			path, err := n.WriteFile("probe.kubeconfig", identity(t, of, name, n, p, "lodestone-network-probe", cluster.ProbeComponent))
			require.NoError(t, err)
			probe, err := c.RunInPod(p, append([]string{"probe", "--pod=" + name, "--node=" + n.Name, "--address=" + p.Address.String(),
				"--namespace=" + keys.NetworkNamespace, "--kubeconfig=" + path, "--http-address="}, args...)...)
			require.NoError(t, err)
			t.Cleanup(func() {
				probe.Kill()
				if t.Failed() {
					t.Log(probe.Log())
				}
			})
		}
	}
}

// identity makes a pod of the program, and returns a kubeconfig with its token, as kubelet mounts it.
func identity(t *testing.T, of *testbed.Cluster, name string, on *netlab.Node, p *netlab.Pod, account, component string) []byte {
	t.Helper()
	pod := made(t, of, keys.NetworkNamespace, name, on, p, func(pod *corev1.Pod) {
		pod.Spec.ServiceAccountName = account
		pod.Labels = map[string]string{"app.kubernetes.io/component": component}
	})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	accounts := of.Client().CoreV1().ServiceAccounts(keys.NetworkNamespace)
	token, err := accounts.CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(t, err)
	admin := of.AdminConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return content
}

// made makes the object of a pod that runs on a node, at the address of a pod of the Lab, or at that of the node.
func made(t *testing.T, of *testbed.Cluster, namespace, name string, on *netlab.Node, p *netlab.Pod, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := fabric.NewPod(namespace, name)
	pod.Spec.NodeName = on.Name
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.HostNetwork = p == nil
	if change != nil {
		change(pod)
	}
	await.Until(t, "pods can be made in "+namespace+" of "+of.Name(), func() bool { // it has its ServiceAccounts
		_, err := of.Client().CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	pod = must.Create(t, of.Client().CoreV1().Pods(namespace), pod)
	t.Cleanup(func() {
		_ = of.Client().CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	})
	address := on.Address
	if p != nil {
		address = p.Address
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address.String(), []corev1.PodIP{{IP: address.String()}}
	pod, err := of.Client().CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	return pod
}

// open makes a namespace at home that is open to remote clusters.
func open(t *testing.T) string {
	t.Helper()
	name := "lanes-" + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	must.Kubectl(t, bed.Home, "", "label", "namespace", name, keys.Offload+"="+keys.OffloadEnabled)
	return name
}

// set changes the spec of the RemoteCluster.
func set(t *testing.T, spec map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(t, err)
	_, err = bed.Remotes.Patch(context.Background(), "west", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// networkReady is the condition of the RemoteCluster, nil if there is none.
func networkReady(t *testing.T) *metav1.Condition {
	t.Helper()
	remote, err := bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	return meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady)
}

// becomes waits until that has a status, and one of some reasons.
func becomes(t *testing.T, status metav1.ConditionStatus, reasons ...string) (condition *metav1.Condition) {
	t.Helper()
	await.Until(t, "NetworkReady is "+string(status)+" for "+strings.Join(reasons, " or "), func() bool {
		condition = networkReady(t)
		return condition != nil && condition.Status == status && slices.Contains(reasons, condition.Reason)
	}, func() any { return condition })
	return condition
}

// numbers are those that the kernel gives.
var numbers = regexp.MustCompile(`link \d+|handle \d+|Ifindex: \d+`)

// states are those of the kernels of all nodes, without numbers.
func (c *clusters) states(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, n := range c.Nodes() {
		state, err := n.State()
		require.NoError(t, err)
		lines := strings.Split(numbers.ReplaceAllString(state, ""), "\n")
		slices.Sort(lines)
		all[n.Name] = strings.Join(lines, "\n")
	}
	return all
}

// settled waits until all lanes are up, and all nodes stay as they are for a moment.
func (c *clusters) settled(t *testing.T) {
	t.Helper()
	await.Until(t, "all lanes are up", func() bool {
		for _, n := range c.Nodes() {
			if up, err := n.Lanes(); n.Gateway && (err != nil || up != 2) {
				return false
			}
		}
		return true
	})
	before := c.states(t)
	await.Until(t, "all nodes stay as they are", func() bool {
		time.Sleep(2 * time.Second)
		now := c.states(t)
		same := maps.Equal(before, now)
		before = now
		return same
	})
}

// heard says whether all gateways and all probes of both clusters have written something after a moment.
func heard(t *testing.T, since time.Time) bool {
	t.Helper()
	for _, of := range []struct {
		*testbed.Cluster
		namespace, name string
	}{{bed.Home, keys.NetworkNamespace, "west"}, {bed.West, keys.TenantPrefix + homeID, keys.Home}} {
		links, err := clients.NewNetworkLinks(of.AdminConfig(), of.namespace)
		require.NoError(t, err)
		link, err := links.Get(t.Context(), of.name, metav1.GetOptions{})
		if err != nil || len(link.Status.Gateways) != 2 || len(link.Status.Probes) != 2 {
			return false
		}
		for _, g := range link.Status.Gateways {
			if !g.RenewTime.After(since) {
				return false
			}
		}
		for _, p := range link.Status.Probes {
			if !p.RenewTime.After(since) {
				return false
			}
		}
	}
	return true
}
