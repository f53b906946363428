// Package healing makes shadows anew that somebody deleted, alone or with their
// namespace, each bound to the real volume that it had. It reads the API server,
// lets package policy choose the next step, and takes it.
package healing

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/queue"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// lookAgain is when a volume that is being healed is looked at again if nothing is
// heard of it: claims of others are not watched.
const lookAgain = 10 * time.Second

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Sources  *sources.Sources
	Recorder record.EventRecorder
	Metrics  *Metrics
}

// Controller heals.
type Controller struct {
	Config
	// queue holds names of real volumes.
	queue *queue.Queue[string]
	told  *told
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: queue.New[string]("healing", 50*time.Millisecond, 15*time.Second), told: newTold(config.Metrics.unhealed)}
}

// Watch has changes heeded from now on.
func (c *Controller) Watch() error {
	return errors.Join(
		sources.On(c.Sources.Healing, func(_, v *corev1.PersistentVolume) { c.queue.Add(v.Name) }),
		sources.On(c.Sources.Claims, func(_, claim *corev1.PersistentVolumeClaim) {
			c.poke(claim)
			if claim.DeletionTimestamp != nil {
				// It may have kept the others of its namespace from being healed.
				c.pokeNamespace(claim.Namespace)
			}
		}),
		sources.On(c.Sources.Namespaces, func(_, n *corev1.Namespace) { c.pokeNamespace(n.Name) }),
		sources.On(c.Sources.Requests, func(_, r *remotev1alpha1.NamespaceRequest) { c.pokeNamespace(r.Name) }),
		sources.On(c.Sources.Homes, func(was, home *remotev1alpha1.HomeCluster) {
			if was != nil && was.Generation == home.Generation {
				return
			}
			for _, claim := range sources.All[corev1.PersistentVolumeClaim](c.Sources.Claims) {
				if claim.Labels[keys.HomeID] == home.Name {
					c.poke(claim)
				}
			}
		}),
	)
}

// poke has the volume of a claim looked at if there may be something to heal.
func (c *Controller) poke(claim *corev1.PersistentVolumeClaim) {
	volume := claim.Spec.VolumeName
	if volume != "" && (claim.DeletionTimestamp != nil || sources.Get[corev1.PersistentVolume](c.Sources.Healing, volume) != nil) {
		c.queue.Add(volume)
	}
}

func (c *Controller) pokeNamespace(name string) {
	for _, claim := range sources.In[corev1.PersistentVolumeClaim](c.Sources.Claims, name) {
		c.poke(claim)
	}
	for _, volume := range sources.All[corev1.PersistentVolume](c.Sources.Healing) {
		if volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == name {
			c.queue.Add(volume.Name)
		}
	}
}

// Run heals until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 4, c.sync) }

// sync takes the next step for a real volume. What it decides on was read just
// now, and each write fails where that has changed since.
func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	h, err := c.observe(ctx, name)
	if err != nil || h.Volume == nil {
		return 0, err
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", klog.KObj(h.Volume)))
	step := policy.Heal(h)
	if step.Cure != policy.Rest && step.Cure != policy.Abide {
		klog.FromContext(ctx).V(2).Info("Healing a volume", "step", step.Cure)
		err := c.take(ctx, h, step.Cure)
		c.Metrics.step(step.Cure, err)
		if err != nil {
			return 0, c.refused(h, err)
		}
	}
	c.tell(h, step.Tell)
	if step.Cure == policy.Rest && step.Tell == nil {
		return 0, nil
	}
	return lookAgain, nil
}

// observe asks the API server for the volume and the claim that it names.
func (c *Controller) observe(ctx context.Context, name string) (policy.Healing, error) {
	var h policy.Healing
	volume, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.told.forget(name)
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("get volume %s: %w", name, err)
	}
	record, unreadable := policy.ReadRecord(volume)
	if unreadable != nil {
		return policy.Healing{Volume: volume, Unreadable: unreadable}, nil //nolint:nilerr // it is told: to try again would not help
	}
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return policy.Healing{Volume: volume, Record: record}, nil
	}
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		claim = nil
	} else if err != nil {
		return h, fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, name, err)
	}
	h = policy.Healing{Volume: volume, Record: record, Claim: claim, Namespace: sources.Get[corev1.Namespace](c.Sources.Namespaces, ref.Namespace)}
	home := ""
	switch {
	case record != nil:
		home = record.Labels[keys.HomeID]
	case claim != nil:
		home = claim.Labels[keys.HomeID]
	}
	h.Refusal = c.mend(home, ref.Namespace, h.Namespace, claim == nil || claim.UID != ref.UID)
	return h, nil
}

// mend says why a home cluster's shadow in a namespace is not to be made anew;
// gone says that no claim holds its volume.
func (c *Controller) mend(home, name string, namespace *corev1.Namespace, gone bool) *policy.Refusal {
	count, stuck := 0, ""
	for _, n := range sources.All[corev1.Namespace](c.Sources.Namespaces) {
		if n.Labels[keys.HomeID] == home {
			count++
		}
	}
	if namespace != nil && namespace.DeletionTimestamp != nil {
		for _, claim := range sources.In[corev1.PersistentVolumeClaim](c.Sources.Claims, name) {
			if policy.Stuck(claim) {
				stuck = claim.Name
			}
		}
	}
	return policy.Mend(policy.Mending{
		Home:      sources.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, home),
		Request:   sources.Get[remotev1alpha1.NamespaceRequest](c.Sources.Requests, policy.Tenant(home)+"/"+name),
		Namespace: namespace, Count: count, Stuck: stuck, Gone: gone,
	})
}
