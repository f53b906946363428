package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// recheckAfter is when the rest of a home cluster's objects is checked again: claims are not
// watched.
const recheckAfter = 5 * time.Second

// remove takes back what a home cluster was given: first its rights, then its pods, its requests,
// its empty namespaces. Data is left to the owner of the cluster, and the HomeCluster stays until
// there is none.
func (c *Controller) remove(ctx context.Context, home *remotev1alpha1.HomeCluster) (time.Duration, error) {
	if !slices.Contains(home.Finalizers, keys.HomeClusterFinalizer) {
		return 0, nil
	}
	id := home.Name
	if err := c.revoke(ctx, id); err != nil {
		return 0, err
	}
	left, err := c.removeAll(ctx, home)
	if err != nil {
		return 0, err
	}
	if left != "" {
		return recheckAfter, c.report(ctx, home, metav1.Condition{
			Type: remotev1alpha1.Ready, Status: metav1.ConditionFalse, Reason: remotev1alpha1.Removing, Message: left,
		})
	}
	home.Finalizers = slices.DeleteFunc(home.Finalizers, func(f string) bool { return f == keys.HomeClusterFinalizer })
	if _, err := c.Remote.HomeClusters().Update(ctx, home, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("take finalizer off HomeCluster %s: %w", id, err)
	}
	return 0, nil
}

// removeAll removes what can be removed, and returns a sentence on what is left.
func (c *Controller) removeAll(ctx context.Context, home *remotev1alpha1.HomeCluster) (string, error) {
	pods, err := c.deletePods(ctx, home.Name)
	if err != nil {
		return "", err
	}
	if pods > 0 {
		return fmt.Sprintf("The home cluster has no rights any more; %d of its pods are being ended.", pods), nil
	}
	requests, err := c.deleteRequests(ctx, home.Name)
	if err != nil {
		return "", err
	}
	if requests > 0 {
		return fmt.Sprintf("The home cluster has no rights any more; %d of its namespaces are being given up.", requests), nil
	}
	kept, err := c.deleteNamespaces(ctx, home)
	if err != nil {
		return "", err
	}
	if len(kept) > 0 {
		return "The home cluster has no rights any more; its claims, volume snapshots or pods are left in namespaces " +
			strings.Join(kept, ", ") +
			": delete what is not needed, or take the label " + keys.HomeID + " off a namespace to keep it.", nil
	}
	return "", c.deleteTenantNamespace(ctx, home)
}

func (c *Controller) deletePods(ctx context.Context, id string) (int, error) {
	list, err := c.Remote.ShadowPods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list ShadowPods: %w", err)
	}
	count := 0
	for _, shadow := range list.Items {
		if shadow.Spec.Home.Cluster != id {
			continue
		}
		count++
		if shadow.DeletionTimestamp != nil {
			continue
		}
		err := c.Remote.ShadowPods(shadow.Namespace).Delete(ctx, shadow.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("delete ShadowPod %s/%s: %w", shadow.Namespace, shadow.Name, err)
		}
	}
	return count, nil
}

func (c *Controller) deleteRequests(ctx context.Context, id string) (int, error) {
	requests := c.Remote.NamespaceRequests(policy.TenantNamespace(id))
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list NamespaceRequests of home cluster %s: %w", id, err)
	}
	for _, request := range list.Items {
		if request.DeletionTimestamp != nil {
			continue
		}
		err := requests.Delete(ctx, request.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &request.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("delete NamespaceRequest %s: %w", request.Name, err)
		}
	}
	return len(list.Items), nil
}

// deleteNamespaces deletes namespaces that are empty by now, and returns the others.
func (c *Controller) deleteNamespaces(ctx context.Context, home *remotev1alpha1.HomeCluster) ([]string, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + home.Name})
	if err != nil {
		return nil, fmt.Errorf("list namespaces of home cluster %s: %w", home.Name, err)
	}
	var kept []string
	for _, namespace := range list.Items {
		if !policy.MadeForHome(&namespace, home) {
			continue
		}
		if err := c.DeleteIfEmpty(ctx, &namespace); err != nil {
			return nil, err
		}
		kept = append(kept, namespace.Name)
	}
	return kept, nil
}

func (c *Controller) deleteTenantNamespace(ctx context.Context, home *remotev1alpha1.HomeCluster) error {
	namespace := controller.Get[corev1.Namespace](c.Sources.Namespaces, policy.TenantNamespace(home.Name))
	if namespace == nil || namespace.DeletionTimestamp != nil || namespace.Labels[keys.Tenant] != home.Name {
		return nil
	}
	err := c.Client.CoreV1().Namespaces().Delete(ctx, namespace.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &namespace.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
	}
	return nil
}
