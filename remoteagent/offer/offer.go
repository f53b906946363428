// Package offer writes into the status of each HomeCluster what this cluster offers to it:
// capacity, storage classes and what the nodes have in common. Controller writes it, Sum computes
// it and is pure.
package offer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// minInterval is the least time between two writes to one HomeCluster.
const minInterval = time.Second

// Controller writes offers into the status of HomeClusters.
type Controller struct {
	remote  *clients.RemoteClient
	sources *sources.Sources
	queue   *controller.Queue[string]
}

// New returns a Controller. It does nothing before Watch and Run.
func New(remote *clients.RemoteClient, from *sources.Sources) *Controller {
	return &Controller{remote: remote, sources: from, queue: controller.NewQueue[string](controller.QueueConfig{
		Name: "offers", FirstRetry: 200 * time.Millisecond, LastRetry: 30 * time.Second, Timeout: sources.SyncTimeout,
	})}
}

// Watch adds the handlers that queue HomeClusters.
func (c *Controller) Watch() error {
	return errors.Join(
		controller.OnChange(c.sources.Homes, func(was, now *remotev1alpha1.HomeCluster) {
			switch {
			case was == nil:
				c.queue.Add(now.Name)
			case now != nil && was.Generation != now.Generation:
				c.queue.AddAfter(now.Name, minInterval/10)
			}
		}),
		c.sources.OnClasses(c.requeueAll),
		controller.OnChange(c.sources.Nodes, func(was, now *corev1.Node) {
			if !sources.SameNode(was, now) {
				c.requeueAll()
			}
		}),
		controller.OnEach(c.sources.Namespaces, func(n *corev1.Namespace) {
			if n.Labels[keys.HomeID] != "" {
				c.requeueAll()
			}
		}),
		controller.OnChange(c.sources.Pods, func(was, now *sources.Pod) {
			if was == nil || now == nil || was.Node != now.Node || was.Ended != now.Ended || was.Takes != now.Takes {
				c.requeueAll()
			}
		}),
	)
}

func (c *Controller) requeueAll() {
	for _, home := range controller.All[remotev1alpha1.HomeCluster](c.sources.Homes) {
		c.queue.AddAfter(home.Name, minInterval)
	}
}

// Run publishes offers until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 1, c.sync) }

func (c *Controller) sync(ctx context.Context, id string) (time.Duration, error) {
	cached := controller.Get[remotev1alpha1.HomeCluster](c.sources.Homes, id)
	if cached == nil {
		return 0, nil
	}
	home := cached.DeepCopy()
	c.fill(home)
	if equality.Semantic.DeepEqual(cached.Status, home.Status) {
		return 0, nil
	}
	// The cache may be old: fields that do not belong to the offer are kept as they are on the API
	// server.
	now, err := c.remote.HomeClusters().Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get HomeCluster %s: %w", id, err)
	}
	before := now.Status.DeepCopy()
	c.fill(now)
	if equality.Semantic.DeepEqual(*before, now.Status) {
		return 0, nil
	}
	if _, err := c.remote.HomeClusters().UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("write offer to HomeCluster %s: %w", id, err)
	}
	return 0, nil
}

// fill writes the offer into a HomeCluster.
func (c *Controller) fill(home *remotev1alpha1.HomeCluster) {
	o := Sum(home.Name, home.Spec.Offer, controller.All[corev1.Node](c.sources.Nodes), controller.Each[sources.Pod](c.sources.Pods))
	home.Status.Capacity, home.Status.Allocatable, home.Status.Nodes, home.Status.Pods = o.Capacity, o.Allocatable, o.Nodes, o.Pods
	home.Status.StorageClasses = policy.Classes(home, c.sources.ClassesForHomes())
	home.Status.Namespaces = 0
	for _, namespace := range controller.All[corev1.Namespace](c.sources.Namespaces) {
		if namespace.Labels[keys.HomeID] == home.Name {
			home.Status.Namespaces++
		}
	}
}

// Offer is what a home cluster may use.
type Offer struct {
	// Capacity is all that is offered, Allocatable is Capacity without what others use.
	Capacity, Allocatable corev1.ResourceList
	Nodes                 remotev1alpha1.NodeSummary
	// Pods is how many pods of the home cluster are here.
	Pods int32
}

// Sum returns the offer to a home cluster. limits caps the resources that it names. pods are those
// of the whole cluster. Sum is pure.
func Sum(id string, limits corev1.ResourceList, nodes []*corev1.Node, pods iter.Seq[*sources.Pod]) Offer {
	usable := map[string]bool{}
	total := corev1.ResourceList{}
	var serving []*corev1.Node
	for _, node := range nodes {
		if !Usable(node) {
			continue
		}
		usable[node.Name] = true
		serving = append(serving, node)
		policy.AddRequests(total, node.Status.Allocatable)
	}
	times := map[sources.Requests]int64{}
	o := Offer{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, Nodes: summary(serving)}
	for pod := range pods {
		switch {
		case pod.Home == id:
			o.Pods++
		case usable[pod.Node] && !pod.Ended:
			times[pod.Takes]++
		}
	}
	others := sources.Sum(times)
	for name, quantity := range total {
		offered := quantity
		if limit, ok := limits[name]; ok && limit.Cmp(offered) < 0 {
			offered = limit
		}
		free := quantity.DeepCopy()
		free.Sub(others[name])
		if free.Sign() < 0 {
			free = *resource.NewQuantity(0, quantity.Format)
		}
		if offered.Cmp(free) < 0 {
			free = offered
		}
		o.Capacity[name], o.Allocatable[name] = offered.DeepCopy(), free.DeepCopy()
	}
	return o
}

// Usable reports whether a node can run pods of home clusters: it is ready, accepts any pod, and is
// no virtual node.
func Usable(node *corev1.Node) bool {
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	_, virtual := node.Labels[keys.Cluster]
	if virtual || node.Labels["type"] == "virtual-kubelet" || node.Labels["liqo.io/type"] == "virtual-node" {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// summary returns the labels and properties that all nodes share.
func summary(nodes []*corev1.Node) remotev1alpha1.NodeSummary {
	s := remotev1alpha1.NodeSummary{Count: int32(len(nodes))}
	common := func(key string) string {
		value := ""
		for i, node := range nodes {
			if i > 0 && node.Labels[key] != value {
				return ""
			}
			value = node.Labels[key]
		}
		return value
	}
	s.OperatingSystem, s.Architecture = common(corev1.LabelOSStable), common(corev1.LabelArchStable)
	for _, key := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone} {
		if value := common(key); value != "" {
			if s.Topology == nil {
				s.Topology = map[string]string{}
			}
			s.Topology[key] = value
		}
	}
	s.DeclaredFeatures = features(nodes)
	return s
}

// features returns the features of Kubernetes that all nodes declare, in alphabetical order.
func features(nodes []*corev1.Node) []string {
	var common []string
	for i, node := range nodes {
		if i == 0 {
			common = slices.Sorted(slices.Values(node.Status.DeclaredFeatures))
			continue
		}
		common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(node.Status.DeclaredFeatures, name) })
	}
	return common
}
