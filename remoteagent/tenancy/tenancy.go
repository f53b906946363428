// Package tenancy serves HomeClusters: it makes for each what it needs to ask for
// more, keeps that as it should be, and takes all of it back at the end.
package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/queue"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// Config is what the Controller needs.
type Config struct {
	Client  kubernetes.Interface
	Remote  *remoteapi.Client
	Sources *sources.Sources
	// Presence tells whether a home cluster is connected, and after what time
	// that changes if nothing is heard.
	Presence func(id string) (policy.Presence, time.Duration)
	// DropNamespace deletes a namespace if nothing of a home cluster is in it.
	DropNamespace func(ctx context.Context, namespace *corev1.Namespace) error
	// Forget drops what is remembered of a home cluster.
	Forget func(id string)
}

// Controller serves HomeClusters.
type Controller struct {
	Config
	queue *queue.Queue[string]
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: queue.New[string]("homeclusters", 200*time.Millisecond, 30*time.Second)}
}

// Watch has changes heeded from now on.
func (c *Controller) Watch() error {
	if err := sources.On(c.Sources.Homes, func(_, home *remotev1alpha1.HomeCluster) { c.queue.Add(home.Name) }); err != nil {
		return err
	}
	err := sources.On(c.Sources.Namespaces, func(_, n *corev1.Namespace) {
		for _, id := range []string{n.Labels[keys.Tenant], n.Labels[keys.HomeID], strings.TrimPrefix(n.Name, keys.TenantPrefix)} {
			c.Poke(id)
		}
	})
	if err != nil {
		return err
	}
	for _, made := range c.Sources.Made {
		// The status of a quota changes with every pod.
		if made == c.Sources.Quotas {
			continue
		}
		if err := sources.OnAny(made, func(object metav1.Object) { c.Poke(object.GetLabels()[keys.HomeID]) }); err != nil {
			return err
		}
	}
	return nil
}

// Poke has a home cluster looked at soon, if there is one of that ID.
func (c *Controller) Poke(id string) {
	if id != "" && sources.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, id) != nil {
		c.queue.Add(id)
	}
}

// Run serves HomeClusters until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 2, c.sync) }

func (c *Controller) sync(ctx context.Context, id string) (time.Duration, error) {
	home, err := c.Remote.HomeClusters().Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.Forget(id)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get HomeCluster %s: %w", id, err)
	}
	if home.DeletionTimestamp != nil {
		return c.remove(ctx, home)
	}
	if !slices.Contains(home.Finalizers, keys.HomeClusterFinalizer) {
		home.Finalizers = append(home.Finalizers, keys.HomeClusterFinalizer)
		if home, err = c.Remote.HomeClusters().Update(ctx, home, metav1.UpdateOptions{}); err != nil {
			return 0, fmt.Errorf("put finalizer on HomeCluster %s: %w", id, err)
		}
	}
	refusal, err := c.provide(ctx, home)
	if err != nil {
		return 0, err
	}
	ready := metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Served", Message: "The home cluster can ask for namespaces and pods."}
	if refusal != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	}
	presence, again := c.Presence(id)
	conditions := []metav1.Condition{ready}
	// An agent that has just started knows no better than the one before.
	if presence != policy.Unknown || meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Connected) == nil {
		conditions = append(conditions, connected(presence))
	}
	return again, c.report(ctx, home, conditions...)
}

func connected(presence policy.Presence) metav1.Condition {
	condition := metav1.Condition{Type: remotev1alpha1.Connected}
	switch presence {
	case policy.Connected:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, "Heard", "The home cluster renews its heartbeat."
	case policy.Away:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Silent", "The home cluster does not renew its heartbeat: its pods are kept up from here."
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "Listening", "The remote agent has just started and listens for the home cluster's heartbeat."
	}
	return condition
}

// report writes conditions, and nothing if they are as they were.
func (c *Controller) report(ctx context.Context, home *remotev1alpha1.HomeCluster, conditions ...metav1.Condition) error {
	changed := false
	for _, condition := range conditions {
		condition.ObservedGeneration = home.Generation
		changed = meta.SetStatusCondition(&home.Status.Conditions, condition) || changed
	}
	if !changed {
		return nil
	}
	if _, err := c.Remote.HomeClusters().UpdateStatus(ctx, home, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of HomeCluster %s: %w", home.Name, err)
	}
	return nil
}
