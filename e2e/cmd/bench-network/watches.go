package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/network/cluster"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const programNamespace = "lodestone-network"

// watcher is what one node knows of its cluster.
type watcher struct {
	received atomic.Int64 // bytes
	// knows says whether it knows so many nodes, and that the last of them has an address.
	knows func(nodes int, last netip.Addr) bool
}

// large is a real API server with many Nodes.
type large struct {
	config *rest.Config
	client kubernetes.Interface
	nodes  int
}

// watching is what a cluster of many nodes costs those who watch it: that all nodes join at once, and that one of them changes. The
// yardstick are informers of Nodes, as many, of client-go alone.
func (b *bench) watching(ctx context.Context) (results []measure.Result, err error) {
	if b.nodes == 0 || b.watches == 0 {
		return nil, nil
	}
	l, err := newLarge(ctx, b.nodes)
	if err != nil {
		return nil, err
	}
	var seen [2]costs
	for i, start := range []func(context.Context, int) (*watcher, error){l.informer, l.watch} {
		if seen[i], err = l.costs(ctx, b.watches, b.rounds, start); err != nil {
			return nil, err
		}
	}
	plain, ours := seen[0], seen[1]
	return []measure.Result{
		measure.Figure("network-watch-informers-join", plain.join.Seconds(), "s"),
		measure.Figure("network-watch-join", ours.join.Seconds(), "s"),
		measure.AtMost("network-watch-join-to-informers", ours.join.Seconds()/plain.join.Seconds(), 1.5, "x"),
		measure.Figure("network-watch-join-bytes", ours.joinBytes/1e6, "MB"),
		measure.AtMost("network-watch-join-bytes-to-informers", ours.joinBytes/plain.joinBytes, 1.1, "x"),
		measure.Figure("network-watch-change", milliseconds(ours.change), "ms"),
		measure.Figure("network-watch-informers-change", milliseconds(plain.change), "ms"),
		measure.Figure("network-watch-change-bytes", ours.changeBytes/1e3, "kB"),
		measure.AtMost("network-watch-change-bytes-to-informers", ours.changeBytes/plain.changeBytes, 1.1, "x"),
	}, nil
}

// costs are what is seen of watchers: until all of them know all nodes, and until all know of a change of one; and what one of them
// received for that.
type costs struct {
	join, change           time.Duration
	joinBytes, changeBytes float64
}

func newLarge(ctx context.Context, nodes int) (*large, error) {
	// Nobody plays the nodes, and nothing is to be seen but what is done here.
	clusters, err := testbed.Start(ctx, testbed.Config{Name: "home", NodeGracePeriod: 10 * time.Hour,
		ControllerManagerArgs: []string{"--controllers=*,-ttl-controller,-node-lifecycle-controller,-taint-eviction-controller"}})
	if err != nil {
		return nil, err
	}
	home := clusters[0]
	resources := filepath.Join(fabric.Root(), "deploy", "network", "program", "crds")
	if _, err := home.Kubectl(ctx, "", "apply", "-k", resources); err != nil {
		return nil, err
	}
	if _, err := home.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/networklinks.network.lodestone.dev"); err != nil {
		return nil, err
	}
	if err := home.MakeNamespace(ctx, programNamespace); err != nil {
		return nil, err
	}
	l := &large{config: home.AdminConfig(), nodes: nodes}
	l.config.QPS = -1
	if l.client, err = kubernetes.NewForConfig(l.config); err != nil {
		return nil, err
	}
	links, err := clients.NewNetworkLinks(l.config, programNamespace)
	if err != nil {
		return nil, err
	}
	told := siteOf(gateways).Remotes[0]
	there := networkv1alpha1.Gateway{Name: told.Gateways[0].Name, Address: told.Gateways[0].Address,
		Keys: []string{lane.Key{1}.String()}, MTU: 1500}
	_, err = links.Create(ctx, &networkv1alpha1.NetworkLink{ObjectMeta: metav1.ObjectMeta{Name: told.Name},
		Spec: networkv1alpha1.NetworkLinkSpec{PodCIDRs: []string{told.Ranges[0].String()}, Gateways: []networkv1alpha1.Gateway{there}}},
		metav1.CreateOptions{})
	return l, err
}

// counted is a config whose connections count what comes.
func (l *large) counted(received *atomic.Int64) *rest.Config {
	config := rest.CopyConfig(l.config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &countedConn{conn, received}, err
	}
	return config
}

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// informer is one of Nodes alone.
func (l *large) informer(ctx context.Context, _ int) (*watcher, error) {
	w := &watcher{}
	client, err := kubernetes.NewForConfig(l.counted(&w.received))
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	store := factory.Core().V1().Nodes().Informer().GetStore()
	factory.StartWithContext(ctx)
	w.knows = func(nodes int, last netip.Addr) bool {
		found, ok, _ := store.GetByKey(nameOf(l.nodes - 1))
		return len(store.ListKeys()) == nodes && (nodes == 0 || ok && found.(*corev1.Node).Status.Addresses[0].Address == last.String())
	}
	if !cache.WaitForCacheSync(ctx.Done(), factory.Core().V1().Nodes().Informer().HasSynced) {
		return nil, ctx.Err()
	}
	return w, nil
}

// watch is what the program does on one of the nodes that are no gateways.
func (l *large) watch(ctx context.Context, i int) (*watcher, error) {
	w := &watcher{}
	watch, err := cluster.NewWatch(ctx, l.counted(&w.received), programNamespace, nameOf(gateways+i), false, nil)
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[site.Site]
	last.Store(&site.Site{})
	go func() {
		clock := time.NewTicker(25 * time.Millisecond) // as often as an agent looks
		defer clock.Stop()
		for ctx.Err() == nil {
			if s, changed, err := watch.Told(); err == nil && changed {
				last.Store(s)
			}
			<-clock.C
		}
	}()
	w.knows = func(nodes int, address netip.Addr) bool {
		s := last.Load()
		found := s.Node(nameOf(l.nodes - 1))
		return len(s.Nodes) == nodes && (nodes == 0 || len(s.Remotes) == 1 && found != nil && found.Address == address)
	}
	return w, nil
}

func (l *large) costs(ctx context.Context, watches, rounds int, start func(context.Context, int) (*watcher, error)) (c costs, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([]*watcher, watches)
	for i := range all {
		if all[i], err = start(ctx, i); err != nil {
			return c, err
		}
	}
	one := &all[0].received
	before, err := quiet(ctx, one)
	if err != nil {
		return c, err
	}
	began := time.Now()
	if err := l.create(ctx); err != nil {
		return c, err
	}
	address := addressOf(l.nodes - 1)
	if err := await(ctx, all, l.nodes, address); err != nil {
		return c, err
	}
	c.join = time.Since(began)
	after, err := quiet(ctx, one)
	if err != nil {
		return c, err
	}
	c.joinBytes = float64(after - before)
	var changes []time.Duration
	var bytes []float64
	for i := range rounds {
		node, err := l.client.CoreV1().Nodes().Get(ctx, nameOf(l.nodes-1), metav1.GetOptions{})
		if err != nil {
			return c, err
		}
		address = addressOf(l.nodes + i)
		node.Status.Addresses[0].Address = address.String()
		before := one.Load()
		began := time.Now()
		if _, err := l.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return c, err
		}
		if err := await(ctx, all, l.nodes, address); err != nil {
			return c, err
		}
		changes = append(changes, time.Since(began))
		after, err := quiet(ctx, one)
		if err != nil {
			return c, err
		}
		bytes = append(bytes, float64(after-before))
	}
	c.change, c.changeBytes = measure.Median(changes), median(bytes)
	return c, l.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// create makes all nodes.
func (l *large) create(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range l.nodes {
		group.Go(func() error {
			_, err := l.client.CoreV1().Nodes().Create(ctx, nodeObject(i), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// await waits until all watchers know of so many nodes.
func await(ctx context.Context, all []*watcher, nodes int, last netip.Addr) error {
	for began := time.Now(); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if !slices.ContainsFunc(all, func(w *watcher) bool { return !w.knows(nodes, last) }) {
			return nil
		}
		if time.Since(began) > 3*time.Minute {
			return errors.New("not all watches know all nodes")
		}
	}
	return ctx.Err()
}

// quiet waits until a watcher receives nothing for a while, and returns how much it has received then.
func quiet(ctx context.Context, received *atomic.Int64) (int64, error) {
	const silence = time.Second
	for last, since := received.Load(), time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if now := received.Load(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) > silence {
			return last, nil
		}
	}
	return 0, ctx.Err()
}

// nodeObject is a node with what kubelets say: of most bytes 50 images.
func nodeObject(i int) *corev1.Node {
	now := metav1.Now()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(i), Labels: map[string]string{corev1.LabelHostname: nameOf(i), corev1.LabelOSStable: "linux",
			corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "zone-1", corev1.LabelInstanceTypeStable: "large"}},
		Spec: corev1.NodeSpec{PodCIDR: podsOf(i).String(), PodCIDRs: []string{podsOf(i).String()}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addressOf(i).String()},
				{Type: corev1.NodeHostName, Address: nameOf(i)}},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
				corev1.ResourcePods: resource.MustParse("110")},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.18.0", OSImage: "Debian GNU/Linux 13", ContainerRuntimeVersion: "containerd://2.2.0",
				KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	if i < gateways {
		n.Labels[keys.Gateway] = keys.GatewayEnabled
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		corev1.NodeReady} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
			Reason: "KubeletIsWell", Message: "kubelet says that all is well"}
		if kind == corev1.NodeReady {
			c.Status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	for image := range 50 {
		name := fmt.Sprintf("registry.example.com/team/application-%02d", image)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 123456789,
			Names: []string{fmt.Sprintf("%s@sha256:%064x", name, i*50+image), name + ":v1.2.3"}})
	}
	return n
}
