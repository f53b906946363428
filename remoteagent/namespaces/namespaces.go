// Package namespaces serves NamespaceRequests: it makes the namespaces that home
// clusters ask for, keeps them within what the owner of this cluster allows, and
// takes back what it gave.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/queue"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	Remote   *remoteapi.Client
	Sources  *sources.Sources
	Recorder record.EventRecorder
	// Healing reports whether a claim of a namespace is to be made anew there.
	Healing func(namespace string) bool
}

// Controller serves NamespaceRequests.
type Controller struct {
	Config
	queue *queue.Queue[types.NamespacedName]
}

// New returns a Controller that does nothing until it is run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: queue.New[types.NamespacedName]("namespacerequests", 100*time.Millisecond, 30*time.Second)}
}

// Watch has changes heeded from now on.
func (c *Controller) Watch() error {
	errs := []error{
		sources.On(c.Sources.Requests, func(_, r *remotev1alpha1.NamespaceRequest) { c.queue.Add(keyOf(r)) }),
		sources.On(c.Sources.Homes, func(was, home *remotev1alpha1.HomeCluster) {
			if was == nil || was.Generation != home.Generation {
				c.pokeHome(home.Name)
			}
		}),
		sources.On(c.Sources.Namespaces, func(_, n *corev1.Namespace) {
			c.pokeNamed(n.Name)
			// One that is gone makes room for another.
			if home := n.Labels[keys.HomeID]; home != "" && n.DeletionTimestamp != nil {
				c.pokeHome(home)
			}
			c.pokeHome(n.Labels[keys.Tenant])
		}),
	}
	for _, made := range c.Sources.Made {
		if made == c.Sources.Quotas {
			continue
		}
		errs = append(errs, sources.OnAny(made, func(object metav1.Object) { c.pokeNamed(object.GetNamespace()) }))
	}
	errs = append(errs, sources.On(c.Sources.Quotas, func(was, quota *corev1.ResourceQuota) {
		// Its status changes with every pod.
		if was == nil || was.Generation != quota.Generation || !sameHard(was, quota) {
			c.pokeNamed(quota.Namespace)
		}
	}))
	return errors.Join(errs...)
}

func sameHard(a, b *corev1.ResourceQuota) bool {
	return sameResources(a.Spec.Hard, b.Spec.Hard)
}

func keyOf(r *remotev1alpha1.NamespaceRequest) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

func (c *Controller) pokeHome(id string) {
	if id == "" {
		return
	}
	for _, r := range sources.In[remotev1alpha1.NamespaceRequest](c.Sources.Requests, policy.Tenant(id)) {
		c.queue.Add(keyOf(r))
	}
}

// pokeNamed has the requests for a namespace looked at: more than one home may
// ask for it.
func (c *Controller) pokeNamed(namespace string) {
	for _, home := range sources.All[remotev1alpha1.HomeCluster](c.Sources.Homes) {
		key := types.NamespacedName{Namespace: policy.Tenant(home.Name), Name: namespace}
		if sources.Get[remotev1alpha1.NamespaceRequest](c.Sources.Requests, key.String()) != nil {
			c.queue.Add(key)
		}
	}
}

// Run serves requests until ctx ends: one after the other, so that two cannot
// both be the last that a home cluster may have.
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
		// It speaks for nobody.
		return 0, c.report(ctx, request, unserved())
	}
	home, err := c.home(ctx, id)
	if err != nil {
		return 0, err
	}
	if request.DeletionTimestamp != nil {
		return 0, c.release(ctx, id, request)
	}
	if home == nil {
		return 0, errors.Join(c.takeRights(ctx, id, request.Name), c.report(ctx, request, unserved()))
	}
	if !slices.Contains(request.Finalizers, keys.NamespaceFinalizer) {
		request.Finalizers = append(request.Finalizers, keys.NamespaceFinalizer)
		if request, err = c.Remote.NamespaceRequests(key.Namespace).Update(ctx, request, metav1.UpdateOptions{}); err != nil {
			return 0, fmt.Errorf("put finalizer on NamespaceRequest %s: %w", key, err)
		}
	}
	refusal, err := c.provide(ctx, home, request)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	switch {
	case refusal == nil:
	case refusal.Reason == reasonPreparing:
		again = 50 * time.Millisecond
	case refusal.Reason == policy.ReasonTerminating:
		if again, err = c.letGo(ctx, id, request.Name); err != nil {
			return 0, err
		}
	}
	return again, c.report(ctx, request, refusal)
}

// unserved is the answer to a request in a namespace of no home cluster.
func unserved() *policy.Refusal {
	return &policy.Refusal{Reason: policy.ReasonNotAllowed, Message: "There is no HomeCluster that this namespace belongs to, or it is being removed: ask in the namespace " +
		keys.TenantPrefix + "<ID> of a home cluster that is served."}
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
	tenant, err := c.Client.CoreV1().Namespaces().Get(ctx, policy.Tenant(id), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", policy.Tenant(id), err)
	}
	if home.DeletionTimestamp != nil || policy.OwnTenant(tenant, home) != nil {
		return nil, nil
	}
	return home, nil
}

// report writes the condition Ready, and nothing if it is as it was.
func (c *Controller) report(ctx context.Context, request *remotev1alpha1.NamespaceRequest, refusal *policy.Refusal) error {
	condition := metav1.Condition{
		Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Given", ObservedGeneration: request.Generation,
		Message: "The namespace can be used.",
	}
	if refusal != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	}
	if !meta.SetStatusCondition(&request.Status.Conditions, condition) {
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
