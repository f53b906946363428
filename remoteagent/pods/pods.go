// Package pods makes and keeps the pods that ShadowPods ask for. It observes,
// lets package policy choose the next step, and takes it.
package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/queue"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

const (
	// maxSteps bounds the steps of one look at a ShadowPod.
	maxSteps = 12
	// waiting is how long to wait at most for time to change a decision.
	waiting = time.Second
)

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Remote   *remoteapi.Client
	Sources  *sources.Sources
	Recorder record.EventRecorder
	Metrics  *Metrics
	// Presence tells whether a home cluster is connected, and after what time
	// that changes if nothing is heard.
	Presence func(id string) (policy.Presence, time.Duration)
	// SettleTime is how long a request whose outcome is unknown may still take
	// effect.
	SettleTime time.Duration
	Workers    int
}

// Controller makes and keeps pods.
type Controller struct {
	Config
	queue  *queue.Queue[types.NamespacedName]
	unsure *unsure
	pauses *pauses
	ledger *ledger
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	return &Controller{
		Config: config,
		queue:  queue.New[types.NamespacedName]("shadowpods", 100*time.Millisecond, 30*time.Second),
		unsure: newUnsure(config.SettleTime),
		pauses: newPauses(),
		ledger: newLedger(config.Sources),
	}
}

// Watch has changes heeded from now on.
func (c *Controller) Watch() error {
	return errors.Join(
		sources.On(c.Sources.Shadows, func(_, s *remotev1alpha1.ShadowPod) { c.queue.Add(keyOf(s)) }),
		sources.On(c.Sources.Pods, func(_, pod *corev1.Pod) {
			key := keyOf(pod)
			if sources.Get[remotev1alpha1.ShadowPod](c.Sources.Shadows, key.String()) != nil {
				c.queue.Add(key)
			}
			// One that is gone or has ended makes room in the offer.
			if home := pod.Labels[keys.HomeID]; home != "" && (policy.Ended(pod) || pod.DeletionTimestamp != nil) {
				c.pokeOverOffer(home)
			}
		}),
		sources.On(c.Sources.Namespaces, func(_, n *corev1.Namespace) { c.pokePending(n.Name) }),
		// A quota that changed, or that has room again.
		sources.On(c.Sources.Quotas, func(_, q *corev1.ResourceQuota) { c.pokePending(q.Namespace) }),
		sources.On(c.Sources.Homes, func(was, home *remotev1alpha1.HomeCluster) {
			if was == nil || was.Generation != home.Generation {
				c.pokeHome(home.Name)
			}
		}),
	)
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (c *Controller) pokePending(namespace string) {
	for _, s := range sources.In[remotev1alpha1.ShadowPod](c.Sources.Shadows, namespace) {
		c.poke(s)
	}
}

// poke has a ShadowPod tried now that waits for its pod to be allowed.
func (c *Controller) poke(s *remotev1alpha1.ShadowPod) {
	if s.Status.Phase == "" || s.Status.Phase == remotev1alpha1.ShadowPodPending {
		c.pauses.end(keyOf(s))
		c.queue.Add(keyOf(s))
	}
}

func (c *Controller) pokeOverOffer(id string) {
	for _, s := range sources.All[remotev1alpha1.ShadowPod](c.Sources.Shadows) {
		if s.Spec.Home.Cluster == id && s.Status.Reason == policy.ReasonOverOffer {
			c.poke(s)
		}
	}
}

// pokeHome has all ShadowPods of a home cluster looked at: what it is allowed
// has changed, or it leaves.
func (c *Controller) pokeHome(id string) {
	for _, s := range sources.All[remotev1alpha1.ShadowPod](c.Sources.Shadows) {
		if s.Spec.Home.Cluster == id {
			c.poke(s)
			c.queue.Add(keyOf(s))
		}
	}
}

// Run works on ShadowPods until ctx ends. What a former leader asked for may
// still take effect for a while from now.
func (c *Controller) Run(ctx context.Context) {
	c.unsure.begin()
	c.queue.Run(ctx, c.Workers, c.sync)
}

// sync takes steps for one ShadowPod until there is none to take.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	shadow := sources.Get[remotev1alpha1.ShadowPod](c.Sources.Shadows, key.String())
	if shadow == nil {
		c.unsure.forget(key)
		c.pauses.forget(key)
		c.ledger.forget(key)
		return 0, nil
	}
	look := &look{shadow: shadow.DeepCopy(), pod: sources.Get[corev1.Pod](c.Sources.Pods, key.String())}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", klog.KRef(key.Namespace, key.Name), "cluster", shadow.Spec.Home.Cluster))
	for range maxSteps {
		o, again := c.observe(look)
		step := policy.Next(o)
		switch step.Verb {
		case policy.Idle:
			return 0, nil
		case policy.Wait:
			return max(min(again, waiting), 20*time.Millisecond), nil
		default:
		}
		err := c.take(ctx, look, o, step)
		c.Metrics.step(step.Verb, err)
		if err != nil || look.gone {
			return 0, err
		}
	}
	return 0, fmt.Errorf("decide on ShadowPod %s: no end after %d steps", key, maxSteps)
}

// look is what is known of a ShadowPod during one call of sync.
type look struct {
	shadow *remotev1alpha1.ShadowPod
	// current: shadow was read or written by this call, not seen in a cache.
	current bool
	// asOf is a time before the request that did so was sent.
	asOf time.Time
	pod  *corev1.Pod
	// live: pod was read or written by this call.
	live bool
	// gone: there is nothing more to do until something happens.
	gone bool
}

// observe returns what the next step depends on, and after what time that
// changes by itself.
func (c *Controller) observe(l *look) (policy.Observation, time.Duration) {
	id := l.shadow.Spec.Home.Cluster
	presence, again := c.Presence(id)
	settled, left := c.unsure.settled(keyOf(l.shadow))
	if !settled {
		again = left
	}
	paused, pause := c.pauses.left(keyOf(l.shadow))
	if paused {
		again = pause
	}
	home := sources.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, id)
	refusal := policy.Permit(l.shadow, sources.Get[corev1.Namespace](c.Sources.Namespaces, l.shadow.Namespace), home)
	if refusal == nil && policy.Begins(l.shadow) && l.pod == nil {
		refusal = c.ledger.admit(home, l.shadow)
	}
	return policy.Observation{
		Shadow: l.shadow, Pod: l.pod, Live: l.live, Home: presence, Settled: settled, Paused: paused, Refusal: refusal,
		Leaving: home == nil || home.DeletionTimestamp != nil,
	}, again
}

// refresh reads a ShadowPod that was only seen in a cache. It reports whether it
// is still the same one, asks for what was decided on, is not being deleted and
// has our finalizer: then it stays until this call is over.
func (c *Controller) refresh(ctx context.Context, l *look) (bool, error) {
	if l.current {
		return true, nil
	}
	asked := time.Now()
	now, err := c.Remote.ShadowPods(l.shadow.Namespace).Get(ctx, l.shadow.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.gone = true
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get ShadowPod: %w", err)
	}
	same := now.UID == l.shadow.UID && now.Generation == l.shadow.Generation && now.DeletionTimestamp == nil && now.Status == l.shadow.Status && hasFinalizer(now, keys.ShadowPodFinalizer)
	l.shadow, l.current, l.asOf = now, true, asked
	return same, nil
}
