// Package tenancy reconciles HomeClusters: it creates the tenant namespace, the identity and the
// rights of a home cluster (tenancy.go, read it first), and removes all of it in the end
// (remove.go). heartbeat.go decides which home clusters are connected, lease.go
// which of those that ask for a lease hold it.
package tenancy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/remoteagent/apply"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// Config is what the Controller needs.
type Config struct {
	Client  kubernetes.Interface
	Remote  *clients.RemoteClient
	Sources *sources.Sources
	// Presence returns whether a home cluster is connected, and after what time that changes
	// without a heartbeat.
	Presence func(id string) (policy.Presence, time.Duration)
	// Lease returns the lease that a home cluster asks for, and whether it is held.
	Lease func(id string) (podlease.Ask, podlease.State)
	// DeleteIfEmpty deletes a namespace if it contains nothing of a home cluster.
	DeleteIfEmpty func(ctx context.Context, namespace *corev1.Namespace) error
	// Confined returns why home clusters must get no rights now, nil if they are confined.
	Confined func(ctx context.Context) (*policy.Refusal, error)
	// Forget removes what is remembered of a home cluster.
	Forget func(id string)
}

// Controller reconciles HomeClusters.
type Controller struct {
	Config
	queue *controller.Queue[string]
}

// New returns a Controller. It does nothing before Watch and Run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: controller.NewQueue[string](controller.QueueConfig{
		Name: "homeclusters", FirstRetry: 200 * time.Millisecond, LastRetry: 30 * time.Second, Timeout: sources.SyncTimeout,
	})}
}

// Watch adds the handlers that queue HomeClusters.
func (c *Controller) Watch() error {
	return errors.Join(
		controller.OnEach(c.Sources.Homes, func(home *remotev1alpha1.HomeCluster) { c.queue.Add(home.Name) }),
		controller.OnEach(c.Sources.Namespaces, func(n *corev1.Namespace) {
			for _, id := range []string{n.Labels[keys.Tenant], n.Labels[keys.HomeID], strings.TrimPrefix(n.Name, keys.TenantPrefix)} {
				c.Requeue(id)
			}
		}),
		c.Sources.OnMade(func(object metav1.Object) { c.Requeue(object.GetLabels()[keys.HomeID]) }),
	)
}

// Requeue queues a home cluster, if there is one of that ID.
func (c *Controller) Requeue(id string) {
	if id != "" && controller.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, id) != nil {
		c.queue.Add(id)
	}
}

// Run reconciles HomeClusters until ctx ends.
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
	unconfined, err := c.Confined(ctx)
	if err != nil {
		return 0, err
	}
	refusal, err := c.provide(ctx, home, unconfined)
	if err != nil {
		return 0, err
	}
	ready := metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Served",
		Message: "The home cluster can ask for namespaces and pods."}
	if refusal != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	}
	presence, again := c.Presence(id)
	conditions := []metav1.Condition{ready, confinedCondition(unconfined)}
	look := lookAgain
	if unconfined != nil {
		look = reconfineAfter
	}
	if again == 0 || again > look {
		again = look
	}
	// An agent that has just started knows no more than the one before it.
	if presence != policy.Unknown || meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Connected) == nil {
		conditions = append(conditions, connectedCondition(presence))
	}
	ask, lease := c.Lease(id)
	return again, c.write(ctx, home, promise(home, ask, lease), conditions...)
}

// lookAgain is when a home cluster is reconciled again without an event, reconfineAfter when one is
// that is not confined: the policy that confines them is not watched.
const lookAgain, reconfineAfter = time.Minute, 5 * time.Second

// provide creates what a home cluster needs to send requests. A refusal says why it gets nothing.
// Unconfined says why home clusters must get no rights, nil if they may. One that has all its rights
// already keeps them then, and is served as before: its pods must not end because the policy is
// another for a moment, as during an update.
func (c *Controller) provide(ctx context.Context, home *remotev1alpha1.HomeCluster, unconfined *policy.Refusal) (*policy.Refusal, error) {
	subject, refusal := policy.Identity(home)
	if refusal != nil {
		return refusal, c.revoke(ctx, home.Name)
	}
	refusal, err := c.ensureNamespace(ctx, home)
	if err != nil || refusal != nil {
		return refusal, err
	}
	if unconfined != nil {
		if served, err := c.served(ctx, home.Name, subject); served || err != nil {
			return nil, err
		}
		return unconfined, nil
	}
	if err := c.ensureIdentity(ctx, home); err != nil {
		return nil, err
	}
	mark, tenant := policy.HomeLabels(home.Name), policy.TenantNamespace(home.Name)
	// The agent creates the Lease, so that home needs no right to create one.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: keys.HeartbeatLease, Labels: mark}}
	if err := apply.Object(ctx, c.Client.CoordinationV1().Leases(tenant), lease, nil); err != nil {
		return nil, err
	}
	rbac := c.Client.RbacV1()
	if err := apply.RoleBinding(ctx, rbac.RoleBindings(tenant), policy.TenantRole, policy.TenantRole, mark, subject); err != nil {
		return nil, err
	}
	own := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: policy.OwnRole(home.Name), Labels: mark},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{remotev1alpha1.GroupVersion.Group}, Resources: []string{"homeclusters"},
			ResourceNames: []string{home.Name}, Verbs: []string{"get", "list", "watch"},
		}},
	}
	err = apply.Object(ctx, rbac.ClusterRoles(), own, func(have *rbacv1.ClusterRole) bool {
		changed := apply.Labels(have, mark, nil)
		if !reflect.DeepEqual(have.Rules, own.Rules) || have.AggregationRule != nil {
			have.Rules, have.AggregationRule, changed = own.Rules, nil, true
		}
		return changed
	})
	if err != nil {
		return nil, err
	}
	if err := apply.ClusterRoleBinding(ctx, rbac.ClusterRoleBindings(), own.Name, own.Name, mark, subject); err != nil {
		return nil, err
	}
	return nil, apply.ClusterRoleBinding(ctx, rbac.ClusterRoleBindings(), policy.ReaderBinding(home.Name), policy.ReaderRole, mark, subject)
}

// served reports whether a home cluster has all rights that provide gives.
func (c *Controller) served(ctx context.Context, id string, subject rbacv1.Subject) (bool, error) {
	rbac := c.Client.RbacV1()
	tenant, err := rbac.RoleBindings(policy.TenantNamespace(id)).Get(ctx, policy.TenantRole, metav1.GetOptions{})
	if err != nil || !binds(tenant.RoleRef, tenant.Subjects, policy.TenantRole, subject) {
		return false, other(err)
	}
	for name, role := range map[string]string{policy.OwnRole(id): policy.OwnRole(id), policy.ReaderBinding(id): policy.ReaderRole} {
		wide, err := rbac.ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !binds(wide.RoleRef, wide.Subjects, role, subject) {
			return false, other(err)
		}
	}
	return true, nil
}

func binds(ref rbacv1.RoleRef, subjects []rbacv1.Subject, role string, subject rbacv1.Subject) bool {
	return ref.Kind == "ClusterRole" && ref.Name == role && slices.Equal(subjects, []rbacv1.Subject{subject})
}

// other returns err unless it says that an object is not there.
func other(err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("read the rights of a home cluster: %w", err)
}

func (c *Controller) ensureNamespace(ctx context.Context, home *remotev1alpha1.HomeCluster) (*policy.Refusal, error) {
	var refusal *policy.Refusal
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: policy.TenantNamespace(home.Name), Labels: policy.TenantLabels(home), Annotations: policy.TenantAnnotations(home),
	}}
	err := apply.Object(ctx, c.Client.CoreV1().Namespaces(), want, func(have *corev1.Namespace) bool {
		if refusal = policy.CheckTenantNamespace(have, home); refusal != nil {
			return false
		}
		return apply.Labels(have, want.Labels, want.Annotations)
	})
	return refusal, err
}

// ensureIdentity creates the ServiceAccount, or deletes it if the home cluster has another
// identity, which invalidates its tokens.
func (c *Controller) ensureIdentity(ctx context.Context, home *remotev1alpha1.HomeCluster) error {
	accounts := c.Client.CoreV1().ServiceAccounts(policy.TenantNamespace(home.Name))
	if home.Spec.User != "" {
		return apply.Absent(ctx, accounts, keys.HomeAccount, home.Name)
	}
	want := &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Name: keys.HomeAccount, Labels: policy.HomeLabels(home.Name)},
		AutomountServiceAccountToken: ptr.To(false),
	}
	return apply.Object(ctx, accounts, want, func(have *corev1.ServiceAccount) bool {
		return apply.Labels(have, want.Labels, nil)
	})
}

// report writes conditions if they have changed.
func (c *Controller) report(ctx context.Context, home *remotev1alpha1.HomeCluster, conditions ...metav1.Condition) error {
	return c.write(ctx, home, false, conditions...)
}

// write writes the status if conditions have changed, or changed says that something else in it has.
func (c *Controller) write(ctx context.Context, home *remotev1alpha1.HomeCluster, changed bool, conditions ...metav1.Condition) error {
	changed = changed || home.Status.ObservedGeneration != home.Generation
	home.Status.ObservedGeneration = home.Generation
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

func confinedCondition(unconfined *policy.Refusal) metav1.Condition {
	if unconfined != nil {
		return metav1.Condition{Type: remotev1alpha1.Confined, Status: metav1.ConditionFalse, Reason: unconfined.Reason,
			Message: unconfined.Message}
	}
	return metav1.Condition{Type: remotev1alpha1.Confined, Status: metav1.ConditionTrue, Reason: "Enforced",
		Message: "The API server enforces what home clusters may not do."}
}

func connectedCondition(presence policy.Presence) metav1.Condition {
	condition := metav1.Condition{Type: remotev1alpha1.Connected}
	switch presence {
	case policy.Connected:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, "Heard", "The home cluster renews its heartbeat."
	case policy.Away:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Silent",
			"The home cluster does not renew its heartbeat: its pods are kept up from here."
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "Listening",
			"The remote agent has just started and listens for the home cluster's heartbeat."
	}
	return condition
}

// revoke removes all rights of a home cluster, and its identity.
func (c *Controller) revoke(ctx context.Context, id string) error {
	rbac := c.Client.RbacV1()
	bindings, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + id})
	if err != nil {
		return fmt.Errorf("list role bindings of home cluster %s: %w", id, err)
	}
	for _, b := range bindings.Items {
		if err := apply.UnprotectBinding(ctx, rbac.RoleBindings(b.Namespace), &b); err != nil {
			return err
		}
		err := rbac.RoleBindings(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete role binding %s/%s: %w", b.Namespace, b.Name, err)
		}
	}
	for _, name := range []string{policy.OwnRole(id), policy.ReaderBinding(id)} {
		if err := apply.Absent(ctx, rbac.ClusterRoleBindings(), name, id); err != nil {
			return err
		}
	}
	if err := apply.Absent(ctx, rbac.ClusterRoles(), policy.OwnRole(id), id); err != nil {
		return err
	}
	return apply.Absent(ctx, c.Client.CoreV1().ServiceAccounts(policy.TenantNamespace(id)), keys.HomeAccount, id)
}
