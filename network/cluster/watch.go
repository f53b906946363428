package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ProbeComponent is the value of the label app.kubernetes.io/component of pods that probe other clusters.
const ProbeComponent = "network-probe"

// settle is how long changes are collected before they are told.
const settle = 200 * time.Millisecond

// Watch watches the own cluster for one node. It is safe for concurrent use.
type Watch struct {
	namespace, self string
	podRanges       []netip.Prefix
	factory         informers.SharedInformerFactory
	nodes           cache.SharedIndexInformer
	links, homes    cache.SharedIndexInformer // homes is nil where there are no home clusters
	changed         atomic.Bool
	ctx             context.Context

	mu sync.Mutex
	// pods and namespaces are nil until the node is a gateway.
	pods, namespaces cache.SharedIndexInformer
	// ipv6: ranges of IPv6 are asked for.
	ipv6     bool
	next     time.Time
	last     *site.Site
	verdicts map[Key]Verdict
}

// NewWatch begins to watch, until ctx ends. Tenants says that there may be home clusters, whose links are in their tenant namespaces.
// PodRanges are those of pods where podCIDRs of nodes say nothing of them; none: they do.
func NewWatch(ctx context.Context, config *rest.Config, namespace, self string, tenants bool, podRanges []netip.Prefix) (*Watch, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	within := namespace
	if tenants {
		within = metav1.NamespaceAll
	}
	links, err := clients.NewNetworkLinks(config, within)
	if err != nil {
		return nil, err
	}
	w := &Watch{namespace: namespace, self: self, podRanges: podRanges, ctx: ctx,
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))}
	w.nodes = w.factory.Core().V1().Nodes().Informer()
	w.links = clients.NewInformer(links, &networkv1alpha1.NetworkLink{}, nil, cache.Indexers{})
	if tenants {
		remote, err := clients.NewRemoteClient(config)
		if err != nil {
			return nil, err
		}
		w.homes = clients.NewInformer(remote.HomeClusters(), &remotev1alpha1.HomeCluster{}, nil, cache.Indexers{})
		if err := controller.OnEach(w.homes, func(*remotev1alpha1.HomeCluster) { w.changed.Store(true) }); err != nil {
			return nil, err
		}
		go w.homes.RunWithContext(ctx)
	}
	if err := errors.Join(w.onNodes(),
		controller.OnEach(w.links, func(*networkv1alpha1.NetworkLink) { w.changed.Store(true) })); err != nil {
		return nil, err
	}
	go w.links.RunWithContext(ctx)
	w.factory.StartWithContext(ctx)
	return w, nil
}

// transform keeps of objects what is looked at.
func transform(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.Node:
		object.OwnerReferences, object.Finalizers = nil, nil
		object.Labels = only(object.Labels, keys.Cluster, keys.Gateway, typeLabel)
		object.Annotations = only(object.Annotations, keys.GatewayAddress)
		object.Spec = corev1.NodeSpec{PodCIDR: object.Spec.PodCIDR, PodCIDRs: object.Spec.PodCIDRs}
		status := corev1.NodeStatus{Addresses: object.Status.Addresses}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady { // without the time of its heartbeat
				status.Conditions = append(status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
			}
		}
		object.Status = status
	case *corev1.Namespace:
		object.Annotations = only(object.Annotations, keys.OffloadClusters)
	case *corev1.Pod:
		object.Annotations, object.OwnerReferences = nil, nil
		object.Spec = corev1.PodSpec{HostNetwork: object.Spec.HostNetwork, NodeName: object.Spec.NodeName}
		object.Status = corev1.PodStatus{Phase: object.Status.Phase, PodIP: object.Status.PodIP, PodIPs: object.Status.PodIPs}
	}
	return controller.DropManagedFields(obj)
}

// only are those of some labels or annotations that are there, nil if none is.
func only(all map[string]string, names ...string) (some map[string]string) {
	for _, name := range names {
		if value, ok := all[name]; ok {
			if some == nil {
				some = map[string]string{}
			}
			some[name] = value
		}
	}
	return some
}

// onNodes notes what changes of nodes. All nodes of a cluster renew their status all the time, and nothing of that is looked at.
func (w *Watch) onNodes() error {
	return controller.OnChange(w.nodes, func(was, now *corev1.Node) {
		if was == nil || now == nil || !sameNode(was, now) {
			w.changed.Store(true)
		}
	})
}

// sameNode says that two Nodes, as transform leaves them, say the same to the node that is told of them.
func sameNode(a, b *corev1.Node) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
}

// onPods notes what changes of pods that is looked at.
func (w *Watch) onPods() error {
	return controller.OnChange(w.pods, func(was, now *corev1.Pod) {
		if was == nil || now == nil || !samePod(was, now) {
			w.changed.Store(true)
		}
	})
}

// samePod says the same of two Pods.
func samePod(a, b *corev1.Pod) bool {
	one, hasAddress := podOf(a)
	other, stillHas := podOf(b)
	return hasAddress == stillHas && reflect.DeepEqual(one, other)
}

// Told returns what the node is told, and whether that differs from last time. It never waits.
func (w *Watch) Told() (*site.Site, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.changed.Load() || time.Now().Before(w.next) || !w.synced() {
		return nil, false, nil
	}
	w.changed.Store(false)
	w.next = time.Now().Add(settle)
	o := w.observe()
	w.ipv6 = asksForIPv6(o)
	s, verdicts := Make(o)
	if self := s.Node(w.self); self != nil && self.Gateway && w.pods == nil {
		// All other nodes need no pods.
		if err := w.watchPods(); err != nil {
			return nil, false, err
		}
		w.changed.Store(true)
		return nil, false, nil
	}
	w.verdicts = verdicts
	if w.last != nil && reflect.DeepEqual(s, w.last) {
		return nil, false, nil
	}
	w.last = s
	return s, true, nil
}

func (w *Watch) synced() bool {
	return w.nodes.HasSynced() && w.links.HasSynced() && (w.homes == nil || w.homes.HasSynced()) &&
		(w.pods == nil || w.pods.HasSynced() && w.namespaces.HasSynced())
}

func (w *Watch) watchPods() error {
	w.pods, w.namespaces = w.factory.Core().V1().Pods().Informer(), w.factory.Core().V1().Namespaces().Informer()
	err := errors.Join(w.onPods(),
		controller.OnEach(w.namespaces, func(*corev1.Namespace) { w.changed.Store(true) }))
	w.factory.StartWithContext(w.ctx)
	return err
}

// observe collects what is known. The caller holds mu.
func (w *Watch) observe() Observation {
	service, _ := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")) // it may be the name of an API server elsewhere
	o := Observation{Namespace: w.namespace, PodRanges: w.podRanges, Service: service,
		Nodes: controller.All[corev1.Node](w.nodes), Links: w.all(), Homes: map[string]*remotev1alpha1.HomeCluster{},
		Namespaces: map[string]*corev1.Namespace{}}
	slices.SortFunc(o.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	if w.homes != nil {
		for home := range controller.Each[remotev1alpha1.HomeCluster](w.homes) {
			o.Homes[home.Name] = home
		}
	}
	if w.pods == nil {
		return o
	}
	for n := range controller.Each[corev1.Namespace](w.namespaces) {
		o.Namespaces[n.Name] = n
	}
	for p := range controller.Each[corev1.Pod](w.pods) {
		if pod, ok := podOf(p); ok {
			o.Pods = append(o.Pods, pod)
		}
	}
	return o
}

func (w *Watch) all() []*networkv1alpha1.NetworkLink {
	links := controller.All[networkv1alpha1.NetworkLink](w.links)
	slices.SortFunc(links, func(a, b *networkv1alpha1.NetworkLink) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return links
}

// podOf returns what is to be known of a pod, false if it has no address of its own.
func podOf(p *corev1.Pod) (pod Pod, ok bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	pod = Pod{Namespace: p.Namespace, Node: p.Spec.NodeName, Probe: p.Labels["app.kubernetes.io/component"] == ProbeComponent,
		Created: p.CreationTimestamp.Time}
	for _, ip := range p.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil && !address.Is4In6() && address.Zone() == "" {
			pod.Addresses = append(pod.Addresses, address)
		}
	}
	return pod, len(pod.Addresses) > 0
}

// Links returns the links as last seen, which must not be changed, and what becomes of each.
func (w *Watch) Links() ([]*networkv1alpha1.NetworkLink, map[Key]Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all(), maps.Clone(w.verdicts)
}

func (w *Watch) remoteName(link *networkv1alpha1.NetworkLink) string {
	return remoteName(w.namespace, link)
}

// Node returns the node of this name as last seen, nil if there is none. It must not be changed.
func (w *Watch) Node(name string) *corev1.Node { return controller.Get[corev1.Node](w.nodes, name) }

// Gateways are the names of all nodes that are gateways.
func (w *Watch) Gateways() map[string]bool {
	w.mu.Lock()
	ipv6 := w.ipv6
	w.mu.Unlock()
	names := map[string]bool{}
	part, _ := partaking(controller.All[corev1.Node](w.nodes), len(w.podRanges) > 0, ipv6)
	for _, n := range part {
		if n.Gateway {
			names[n.Name] = true
		}
	}
	return names
}
