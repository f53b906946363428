// Package namespaces reconciles NamespaceRequests: it creates the namespaces that home clusters ask
// for, with quotas, limits and rights as the owner of this cluster allows (provide.go), and takes
// them back (release.go). Read namespaces.go first; policy.Grant decides who may have which
// namespace.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	Remote   *clients.RemoteClient
	Sources  *sources.Sources
	Recorder record.EventRecorder
	// Confined returns why home clusters must get no rights now, nil if they are confined.
	Confined func(ctx context.Context) (*policy.Refusal, error)
	// Healing reports whether a shadow that is to be created again belongs in a namespace.
	Healing func(namespace string) bool
}

// Controller reconciles NamespaceRequests.
type Controller struct {
	Config
	queue *controller.Queue[types.NamespacedName]
	// classes are those of Sources.ClassesForHomes when requests were last queued for their sake.
	classes atomic.Pointer[string]
}

// New returns a Controller. It does nothing before Watch and Run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: controller.NewQueue[types.NamespacedName](controller.QueueConfig{
		Name: "namespacerequests", FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, Timeout: sources.SyncTimeout,
	})}
}

// Watch adds the handlers that queue requests.
func (c *Controller) Watch() error {
	return errors.Join(
		controller.OnEach(c.Sources.Requests, func(r *remotev1alpha1.NamespaceRequest) { c.queue.Add(keyOf(r)) }),
		c.Sources.OnHome(func(home *remotev1alpha1.HomeCluster) { c.requeueHome(home.Name) }),
		controller.OnEach(c.Sources.Namespaces, func(n *corev1.Namespace) {
			c.requeueNamespace(n.Name)
			// A namespace that is deleted makes room for another.
			if home := n.Labels[keys.HomeID]; home != "" && n.DeletionTimestamp != nil {
				c.requeueHome(home)
			}
			c.requeueHome(n.Labels[keys.Tenant])
		}),
		c.Sources.OnMade(func(object metav1.Object) { c.requeueNamespace(object.GetNamespace()) }),
		c.Sources.OnClasses(c.classesChanged),
		controller.OnChange(c.Sources.Quotas, func(was, now *corev1.ResourceQuota) {
			// The status of a quota changes with every pod.
			if was == nil || now == nil || was.Generation != now.Generation || !sameResources(was.Spec.Hard, now.Spec.Hard) {
				c.requeueNamespace(controller.Either(was, now).Namespace)
			}
		}),
	)
}

func (c *Controller) requeueHome(id string) {
	if id == "" {
		return
	}
	for _, r := range controller.In[remotev1alpha1.NamespaceRequest](c.Sources.Requests, policy.TenantNamespace(id)) {
		c.queue.Add(keyOf(r))
	}
}

// requeueNamespace queues the requests for a namespace: more than one home may ask for it.
func (c *Controller) requeueNamespace(namespace string) {
	for _, home := range controller.All[remotev1alpha1.HomeCluster](c.Sources.Homes) {
		key := types.NamespacedName{Namespace: policy.TenantNamespace(home.Name), Name: namespace}
		if controller.Get[remotev1alpha1.NamespaceRequest](c.Sources.Requests, key.String()) != nil {
			c.queue.Add(key)
		}
	}
}

// classesChanged queues all requests if claims may be of other storage classes than before.
func (c *Controller) classesChanged() {
	now := strings.Join(c.Sources.ClassesForHomes(), ",")
	if was := c.classes.Swap(&now); was != nil && *was == now {
		return
	}
	for _, home := range controller.All[remotev1alpha1.HomeCluster](c.Sources.Homes) {
		c.requeueHome(home.Name)
	}
}

func keyOf(r *remotev1alpha1.NamespaceRequest) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// Run reconciles requests until ctx ends: one at a time, so that two of them cannot both get the
// last namespace that a home cluster may have.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 1, c.sync) }

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	request, err := c.Remote.NamespaceRequests(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get NamespaceRequest %s: %w", key, err)
	}
	id, isTenant := strings.CutPrefix(key.Namespace, keys.TenantPrefix)
	if !isTenant {
		// The request is not in the namespace of a home cluster.
		return 0, c.report(ctx, request, notServed(), false)
	}
	home, err := c.home(ctx, id)
	if err != nil {
		return 0, err
	}
	if request.DeletionTimestamp != nil {
		return 0, c.release(ctx, id, request)
	}
	if home == nil {
		return 0, errors.Join(c.revokeRights(ctx, id, request.Name), c.report(ctx, request, notServed(), false))
	}
	if !slices.Contains(request.Finalizers, keys.NamespaceFinalizer) {
		request.Finalizers = append(request.Finalizers, keys.NamespaceFinalizer)
		if request, err = c.Remote.NamespaceRequests(key.Namespace).Update(ctx, request, metav1.UpdateOptions{}); err != nil {
			return 0, fmt.Errorf("put finalizer on NamespaceRequest %s: %w", key, err)
		}
	}
	recorded := request.Status.HomeNamespaceUID
	refusal, err := c.provide(ctx, home, request)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	switch {
	case refusal == nil:
		_, again = policy.VersionsKept(home, time.Now())
	case refusal.Reason == remotev1alpha1.ReasonAnotherNamespace:
		// Not all that may be left in it is watched here.
		again = emptyAfter
	case refusal.Reason == reasonPreparing:
		again = 50 * time.Millisecond
	case refusal.Reason == policy.ReasonNotConfined:
		again = reconfineAfter
	case refusal.Reason == policy.ReasonTerminating:
		if again, err = c.releaseRights(ctx, id, request.Name); err != nil {
			return 0, err
		}
	}
	return again, c.report(ctx, request, refusal, recorded != request.Status.HomeNamespaceUID)
}

// home returns the HomeCluster of an ID if it may have namespaces, else nil.
func (c *Controller) home(ctx context.Context, id string) (*remotev1alpha1.HomeCluster, error) {
	if id == "" {
		return nil, nil
	}
	home, err := c.Remote.HomeClusters().Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get HomeCluster %s: %w", id, err)
	}
	tenant, err := c.Client.CoreV1().Namespaces().Get(ctx, policy.TenantNamespace(id), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", policy.TenantNamespace(id), err)
	}
	if home.DeletionTimestamp != nil || policy.CheckTenantNamespace(tenant, home) != nil {
		return nil, nil
	}
	return home, nil
}

// notServed is the answer to a request in a namespace of no home cluster.
func notServed() *policy.Refusal {
	return &policy.Refusal{Reason: policy.ReasonNotAllowed, Message: "There is no HomeCluster that this namespace belongs to, or it is " +
		"being removed: ask in the namespace " +
		keys.TenantPrefix + "<ID> of a home cluster that is served."}
}

// report writes the condition Ready if it, or another field of the status, has changed.
func (c *Controller) report(ctx context.Context, request *remotev1alpha1.NamespaceRequest, refusal *policy.Refusal, changed bool) error {
	condition := metav1.Condition{
		Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Given", ObservedGeneration: request.Generation,
		Message: "The namespace can be used.",
	}
	if refusal != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	}
	changed = changed || request.Status.ObservedGeneration != request.Generation
	request.Status.ObservedGeneration = request.Generation
	if !meta.SetStatusCondition(&request.Status.Conditions, condition) && !changed {
		return nil
	}
	if _, err := c.Remote.NamespaceRequests(request.Namespace).UpdateStatus(ctx, request, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of NamespaceRequest %s: %w", keyOf(request), err)
	}
	if refusal != nil && refusal.Reason != reasonPreparing {
		c.Recorder.Event(request, corev1.EventTypeWarning, refusal.Reason, refusal.Message)
	}
	return nil
}
