// Package pods creates, updates and deletes the pods that ShadowPods ask for. For each ShadowPod
// its Controller observes, lets policy.Next choose the next step, and takes it. Read pods.go first;
// attempts.go remembers requests whose outcome is unknown, ledger.go keeps the pods of a home
// cluster within its offer.
package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

const (
	// maxSteps limits the steps of one call of sync.
	maxSteps = 12
	// maxWait is the longest time that sync waits for a decision that depends on the time.
	maxWait = time.Second
)

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Remote   *clients.RemoteClient
	Sources  *sources.Sources
	Recorder record.EventRecorder
	Metrics  *Metrics
	// Presence returns whether a home cluster is connected, and after what time that changes
	// without a heartbeat.
	Presence func(id string) (policy.Presence, time.Duration)
	// Lease returns whether a home cluster holds the lease that it asks for.
	Lease func(id string) (podlease.Ask, podlease.State)
	// SettleTime is how long a request whose outcome is unknown may still take effect.
	SettleTime time.Duration
	Workers    int
}

// Metrics count the outcomes of pods.
type Metrics struct {
	steps        *prometheus.CounterVec
	lost, remade prometheus.Counter
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		steps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_steps_total",
			Help: "Steps taken for ShadowPods, by step and result.",
		}, []string{"step", "result"}),
		lost: factory.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_pods_lost_total",
			Help: "Pods that disappeared and were not made again.",
		}),
		remade: factory.NewCounter(prometheus.CounterOpts{
			Name: "lodestone_remote_agent_pods_remade_total",
			Help: "Pods that disappeared while their home cluster was away and were made again.",
		}),
	}
}

// Controller reconciles ShadowPods.
type Controller struct {
	Config
	queue    *controller.Queue[types.NamespacedName]
	attempts *attempts
	ledger   *ledger
	// counted says whether the ledger has counted all pods that there were at the call of Watch.
	counted cache.InformerSynced
}

// New returns a Controller. It does nothing before Watch and Run.
func New(config Config) *Controller {
	return &Controller{
		Config: config,
		queue: controller.NewQueue[types.NamespacedName](controller.QueueConfig{
			Name: "shadowpods", FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, Timeout: sources.SyncTimeout,
		}),
		attempts: newAttempts(config.SettleTime),
		ledger:   newLedger(),
	}
}

// Watch adds the handlers that queue ShadowPods.
func (c *Controller) Watch() error {
	pods, err := c.Sources.Pods.AddEventHandler(controller.Handler(c.podChanged))
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	c.counted = pods.HasSynced
	return errors.Join(
		controller.OnChange(c.Sources.Shadows, func(was, now *sources.Shadow) {
			if was != nil && now != nil && was.Generation != now.Generation {
				c.attempts.endPause(now.Key())
			}
			c.queue.Add(controller.Either(was, now).Key())
		}),
		controller.OnEach(c.Sources.Namespaces, func(n *corev1.Namespace) { c.requeuePending(n.Name) }),
		// The quota was changed, or has room again.
		controller.OnEach(c.Sources.Quotas, func(q *corev1.ResourceQuota) { c.requeuePending(q.Namespace) }),
		c.Sources.OnHome(func(home *remotev1alpha1.HomeCluster) { c.RequeueHome(home.Name) }),
	)
}

// podChanged queues those whom the change of a pod concerns, once it is counted.
func (c *Controller) podChanged(was, now *sources.Pod) {
	c.ledger.podChanged(was, now)
	pod := controller.Either(was, now)
	key := pod.Key()
	if controller.Get[sources.Shadow](c.Sources.Shadows, key.String()) != nil {
		c.queue.Add(key)
	}
	// A pod that is deleted or has ended makes room in the offer.
	if pod.Home != "" && (pod.Ended || pod.Ending) {
		c.retryOverOffer(pod.Home)
	}
}

// retry queues a ShadowPod whose pod was not created yet, and ends the pause after a refusal.
func (c *Controller) retry(s *sources.Shadow) {
	c.attempts.endPause(s.Key())
	c.queue.Add(s.Key())
}

func (c *Controller) requeuePending(namespace string) {
	for s := range c.Sources.WaitingIn(namespace) {
		c.retry(s)
	}
}

func (c *Controller) retryOverOffer(id string) {
	for s := range c.Sources.ShadowsOf(id) {
		if s.OverOffer {
			c.retry(s)
		}
	}
}

// RequeueHome queues all ShadowPods of a home cluster: what the owner allows it has changed, it
// is being removed, or its lease has lapsed or is held again.
func (c *Controller) RequeueHome(id string) {
	for s := range c.Sources.ShadowsOf(id) {
		if s.Waits {
			c.retry(s)
		}
		c.queue.Add(s.Key())
	}
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Run reconciles ShadowPods until ctx ends. Requests of an earlier leader may still take effect for
// a while.
func (c *Controller) Run(ctx context.Context) {
	c.attempts.lead()
	if !cache.WaitForCacheSync(ctx.Done(), c.counted) {
		return
	}
	c.queue.Run(ctx, c.Workers, c.sync)
}

// sync takes steps for one ShadowPod until none is left.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	shadow := controller.Get[remotev1alpha1.ShadowPod](c.Sources.Shadows, key.String())
	if shadow == nil {
		c.attempts.forget(key)
		c.ledger.forget(key)
		return 0, nil
	}
	s := &state{shadow: shadow.DeepCopy(), pod: controller.Get[corev1.Pod](c.Sources.Pods, key.String())}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", klog.KRef(key.Namespace, key.Name), "cluster",
		shadow.Spec.Home.Cluster))
	for range maxSteps {
		o, again := c.observe(s)
		step := policy.Next(o)
		switch step.Verb {
		case policy.Idle:
			return 0, nil
		case policy.Wait:
			if again == 0 {
				again = maxWait // For a lease, of which there will be an event.
			}
			return max(min(again, maxWait), 20*time.Millisecond), nil
		default:
		}
		err := c.act(ctx, s, o, step)
		c.Metrics.step(step.Verb, err)
		if err != nil || s.gone {
			return 0, err
		}
	}
	return 0, fmt.Errorf("decide on ShadowPod %s: no end after %d steps", key, maxSteps)
}

// state is what one call of sync knows of a ShadowPod.
type state struct {
	shadow *remotev1alpha1.ShadowPod
	// current says that this call has read or written shadow, so that it is not from a cache.
	current bool
	// asOf is a time before the request that read or wrote shadow was sent.
	asOf time.Time
	pod  *corev1.Pod
	// live says that this call has read or written pod.
	live bool
	// gone says that there is nothing more to do until an event comes.
	gone bool
}

// observe returns what the next step depends on, and after what time that changes without an event.
func (c *Controller) observe(s *state) (policy.Observation, time.Duration) {
	id := s.shadow.Spec.Home.Cluster
	presence, again := c.Presence(id)
	_, lease := c.Lease(id)
	settled, left := c.attempts.settled(keyOf(s.shadow))
	if !settled {
		again = left
	}
	paused, pause := c.attempts.paused(keyOf(s.shadow))
	if paused {
		again = pause
	}
	home := controller.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, id)
	refusal := policy.Permit(s.shadow, controller.Get[corev1.Namespace](c.Sources.Namespaces, s.shadow.Namespace), home)
	if refusal == nil && policy.Begins(s.shadow) && s.pod == nil {
		refusal = c.ledger.admit(home, s.shadow)
	}
	return policy.Observation{
		Shadow: s.shadow, Pod: s.pod, Live: s.live, Home: presence, Lease: lease, Settled: settled, Paused: paused, Refusal: refusal,
		Leaving: home == nil || home.DeletionTimestamp != nil,
	}, again
}

// act takes one step, and updates s to what it has read or written.
func (c *Controller) act(ctx context.Context, s *state, o policy.Observation, step policy.Step) error {
	klog.FromContext(ctx).V(4).Info("Taking a step", "step", step.Verb)
	switch step.Verb {
	case policy.Look:
		return c.readPod(ctx, s)
	case policy.Hold:
		return c.addFinalizer(ctx, s)
	case policy.Note:
		return c.writeStatus(ctx, s, step.Status)
	case policy.Make:
		return c.create(ctx, s)
	case policy.Count:
		return c.patch(ctx, s, map[string]any{
			"metadata": map[string]any{"uid": s.pod.UID, "resourceVersion": s.pod.ResourceVersion,
				"finalizers": without(s.pod.Finalizers, keys.UnrecordedFinalizer)},
		}, types.MergePatchType)
	case policy.Carry:
		return c.patch(ctx, s, policy.Patch(o.Shadow, o.Pod), types.StrategicMergePatchType)
	case policy.Change:
		return c.adjust(ctx, s)
	case policy.Delete:
		return c.delete(ctx, s, step.Grace)
	case policy.Release:
		return c.release(ctx, s)
	default:
		return fmt.Errorf("no such step: %s", step.Verb)
	}
}

func (c *Controller) readPod(ctx context.Context, s *state) error {
	pod, err := c.Client.CoreV1().Pods(s.shadow.Namespace).Get(ctx, s.shadow.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get pod: %w", err)
	}
	s.pod, s.live = pod, true
	if err != nil {
		s.pod = nil
	}
	return nil
}

func (c *Controller) addFinalizer(ctx context.Context, s *state) error {
	held := s.shadow.DeepCopy()
	held.Finalizers = append(held.Finalizers, keys.ShadowPodFinalizer)
	asked := time.Now()
	now, err := c.Remote.ShadowPods(held.Namespace).Update(ctx, held, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("put finalizer on ShadowPod: %w", err)
	}
	s.shadow, s.current, s.asOf = now, true, asked
	return nil
}

// refresh reads a ShadowPod that is known only from a cache. It reports whether that is still the
// same object, has the generation that was decided on, is not being deleted and has our finalizer:
// then it exists at least until this call is over.
func (c *Controller) refresh(ctx context.Context, s *state) (bool, error) {
	if s.current {
		return true, nil
	}
	asked := time.Now()
	now, err := c.Remote.ShadowPods(s.shadow.Namespace).Get(ctx, s.shadow.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.gone = true
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get ShadowPod: %w", err)
	}
	same := now.UID == s.shadow.UID && now.Generation == s.shadow.Generation && now.DeletionTimestamp == nil &&
		now.Status == s.shadow.Status && slices.Contains(now.Finalizers, keys.ShadowPodFinalizer)
	s.shadow, s.current, s.asOf = now, true, asked
	return same, nil
}

// create creates the pod of a ShadowPod whose status says that a pod may exist.
func (c *Controller) create(ctx context.Context, s *state) error {
	same, err := c.refresh(ctx, s)
	if err != nil || !same {
		return err
	}
	home := controller.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, s.shadow.Spec.Home.Cluster)
	if home == nil {
		return nil // the next decision writes that down
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout-elapsed(s.asOf))
	defer cancel()
	wanted := policy.NewPod(s.shadow, home)
	if len(home.Spec.Offer) > 0 {
		if ok, err := c.checkOffer(ctx, s, home, wanted); err != nil || !ok {
			return err
		}
	}
	if elapsed(s.asOf) >= makeTimeout {
		// This process or its machine was paused for a while: another process may lead by now and
		// may have given up the ShadowPod.
		return fmt.Errorf("make pod: what was known of the ShadowPod is too old: %w", context.DeadlineExceeded)
	}
	pod, err := c.Client.CoreV1().Pods(s.shadow.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Made a pod")
		s.pod, s.live = pod, true
		c.attempts.made(keyOf(s.shadow))
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.readPod(ctx, s)
	case refused(err):
		return c.refuse(ctx, s, refusalOf(err))
	default:
		c.attempts.outcomeUnknown(keyOf(s.shadow))
		return fmt.Errorf("make pod: %w", err)
	}
}

// checkOffer asks the API server by dry run what it would make of a pod, and reports whether that
// is within the offer. If not, it writes the refusal into the status. No pod is created.
func (c *Controller) checkOffer(ctx context.Context, s *state, home *remotev1alpha1.HomeCluster, wanted *corev1.Pod) (bool, error) {
	pod, err := c.Client.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		if refusal := c.ledger.admitActual(home, pod); refusal != nil {
			return false, c.refuse(ctx, s, *refusal)
		}
		return true, nil
	case apierrors.IsAlreadyExists(err):
		return false, c.readPod(ctx, s)
	case refused(err):
		return false, c.refuse(ctx, s, refusalOf(err))
	default:
		return false, fmt.Errorf("ask what would be made of pod: %w", err)
	}
}

// refuse writes into the status why no pod was created; the creation is tried again after a pause.
func (c *Controller) refuse(ctx context.Context, s *state, refusal policy.Refusal) error {
	c.attempts.refused(keyOf(s.shadow))
	c.ledger.forget(keyOf(s.shadow))
	return c.writeStatus(ctx, s, policy.Refused(s.shadow, refusal).Status)
}

func refusalOf(err error) policy.Refusal {
	return policy.Refusal{Reason: string(apierrors.ReasonForError(err)), Message: "This cluster refused the pod: " + err.Error() + "."}
}

// refused reports whether an error proves that the request had and will have no effect.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// elapsed returns the time since a moment, by the clock that shows more: the monotonic clock stops
// while a machine is suspended, and the wall clock may be set.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

func (c *Controller) writeStatus(ctx context.Context, s *state, status remotev1alpha1.ShadowPodStatus) error {
	noted := s.shadow.DeepCopy()
	noted.Status = status
	asked := time.Now()
	now, err := c.Remote.ShadowPods(noted.Namespace).UpdateStatus(ctx, noted, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		s.gone = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of ShadowPod: %w", err)
	}
	before := s.shadow.Status
	s.shadow, s.current, s.asOf = now, true, asked
	if now.Status.Phase == remotev1alpha1.ShadowPodCreating {
		c.attempts.begin(keyOf(now))
		// No other request is under way, and the API server accepts no second pod of this name.
		s.live = true
	}
	c.recordEvent(now, before)
	return nil
}

// recordEvent records an event that the owner of this cluster may want to know of.
func (c *Controller) recordEvent(shadow *remotev1alpha1.ShadowPod, before remotev1alpha1.ShadowPodStatus) {
	now := shadow.Status
	switch {
	case now.Phase == remotev1alpha1.ShadowPodLost && before.Phase != now.Phase:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
		c.Metrics.lost.Inc()
	case now.Restarts > before.Restarts:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
		c.Metrics.remade.Inc()
	case now.Phase == remotev1alpha1.ShadowPodPending && now.Message != "" && now.Message != before.Message:
		c.Recorder.Event(shadow, corev1.EventTypeWarning, now.Reason, now.Message)
	}
}

// patch changes the pod if it is still the same object.
func (c *Controller) patch(ctx context.Context, s *state, change map[string]any, kind types.PatchType) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	pod, err := c.Client.CoreV1().Pods(s.pod.Namespace).Patch(ctx, s.pod.Name, kind, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.gone = true
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		// A template that cannot be applied must not block the other steps.
		klog.FromContext(ctx).Info("The pod could not be changed", "err", err)
		c.Recorder.Eventf(s.shadow, corev1.EventTypeWarning, "NotCarried", "A change could not be carried to the pod: %v.", err)
		s.gone = true
		return nil
	case err != nil:
		return fmt.Errorf("patch pod: %w", err)
	}
	s.pod, s.live = pod, true
	return nil
}

// adjust changes the pod through a subresource. If this cluster refuses that, the status says so, and it
// is tried again after a pause, or when home changes the template.
func (c *Controller) adjust(ctx context.Context, s *state) error {
	change := policy.Adjust(s.shadow, s.pod)
	if change == nil {
		return nil
	}
	if change.Subresource == policy.Resize {
		home := controller.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, s.shadow.Spec.Home.Cluster)
		if refusal := c.ledger.admitGrowth(home, change.Pod); refusal != nil {
			return c.notCarried(ctx, s, refusal.Message)
		}
	}
	body, err := json.Marshal(change.Patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	pod, err := c.Client.CoreV1().Pods(s.pod.Namespace).Patch(ctx, s.pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{},
		change.Subresource)
	switch {
	case refused(err):
		// Not found is a pod that is gone, of which an event tells, or a cluster without that subresource.
		c.ledger.forgetGrowth(keyOf(s.shadow))
		return c.notCarried(ctx, s, "This cluster refused a change of the pod: "+err.Error()+".")
	case err != nil:
		return fmt.Errorf("change %s of pod: %w", change.Subresource, err)
	}
	s.pod, s.live = pod, true
	c.attempts.made(keyOf(s.shadow))
	return nil
}

// notCarried writes down that a change of the template could not be applied to the pod.
func (c *Controller) notCarried(ctx context.Context, s *state, message string) error {
	c.attempts.refused(keyOf(s.shadow))
	status := s.shadow.Status
	status.Reason, status.Message = remotev1alpha1.ReasonNotCarried, message
	if status == s.shadow.Status {
		return nil
	}
	c.Recorder.Event(s.shadow, corev1.EventTypeWarning, remotev1alpha1.ReasonNotCarried, message)
	return c.writeStatus(ctx, s, status)
}

func (c *Controller) delete(ctx context.Context, s *state, grace int64) error {
	err := c.Client.CoreV1().Pods(s.pod.Namespace).Delete(ctx, s.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &s.pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	return c.readPod(ctx, s)
}

// release removes the finalizer from a ShadowPod whose pod was just read to be gone.
func (c *Controller) release(ctx context.Context, s *state) error {
	released := s.shadow.DeepCopy()
	released.Finalizers = without(released.Finalizers, keys.ShadowPodFinalizer)
	_, err := c.Remote.ShadowPods(released.Namespace).Update(ctx, released, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take finalizer off ShadowPod: %w", err)
	}
	c.attempts.forget(keyOf(s.shadow))
	s.gone = true
	return nil
}

func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
}

func (m *Metrics) step(verb policy.Verb, err error) {
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(string(verb), result).Inc()
}

// makeTimeout limits the request that creates a pod. It is part of the time in which a request with
// an unknown outcome may still take effect.
const makeTimeout = 10 * time.Second
