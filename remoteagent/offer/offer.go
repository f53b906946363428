package offer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/remoteagent/queue"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// pace is the least time between two offers to one home cluster.
const pace = time.Second

// Controller writes offers into the status of HomeClusters.
type Controller struct {
	remote  *remoteapi.Client
	sources *sources.Sources
	queue   *queue.Queue[string]
}

// New returns a Controller that does nothing until it is run.
func New(remote *remoteapi.Client, from *sources.Sources) *Controller {
	return &Controller{remote: remote, sources: from, queue: queue.New[string]("offers", 200*time.Millisecond, 30*time.Second)}
}

// Watch has changes heeded from now on.
func (c *Controller) Watch() error {
	return errors.Join(
		sources.On(c.sources.Homes, func(was, home *remotev1alpha1.HomeCluster) {
			switch {
			case was == nil:
				c.queue.Add(home.Name)
			case was.Generation != home.Generation:
				c.queue.AddAfter(home.Name, pace/10)
			}
		}),
		sources.On(c.sources.Nodes, func(_, _ *corev1.Node) { c.later() }),
		sources.On(c.sources.Namespaces, func(_, n *corev1.Namespace) {
			if n.Labels[keys.HomeID] != "" {
				c.later()
			}
		}),
		sources.On(c.sources.Pods, func(was, pod *corev1.Pod) {
			if was == nil || was.Spec.NodeName != pod.Spec.NodeName || was.Status.Phase != pod.Status.Phase {
				c.later()
			}
		}),
	)
}

func (c *Controller) later() {
	for _, home := range sources.All[remotev1alpha1.HomeCluster](c.sources.Homes) {
		c.queue.AddAfter(home.Name, pace)
	}
}

// Run publishes offers until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 1, c.sync) }

func (c *Controller) sync(ctx context.Context, id string) (time.Duration, error) {
	cached := sources.Get[remotev1alpha1.HomeCluster](c.sources.Homes, id)
	if cached == nil {
		return 0, nil
	}
	home := cached.DeepCopy()
	c.fill(home)
	if equality.Semantic.DeepEqual(cached.Status, home.Status) {
		return 0, nil
	}
	// The cache may be behind: what is not of the offer is kept as it is now.
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
	o := Sum(home.Name, home.Spec.Offer, sources.All[corev1.Node](c.sources.Nodes), sources.All[corev1.Pod](c.sources.Pods))
	home.Status.Capacity, home.Status.Allocatable, home.Status.Nodes, home.Status.Pods = o.Capacity, o.Allocatable, o.Nodes, o.Pods
	home.Status.Namespaces = 0
	for _, namespace := range sources.All[corev1.Namespace](c.sources.Namespaces) {
		if namespace.Labels[keys.HomeID] == home.Name {
			home.Status.Namespaces++
		}
	}
}
