package namespaces

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// release takes back what was given for a request, and removes the finalizer from the request. An
// empty namespace is deleted; another one stays, and is given again when it is requested again.
func (c *Controller) release(ctx context.Context, id string, request *remotev1alpha1.NamespaceRequest) error {
	if !slices.Contains(request.Finalizers, keys.NamespaceFinalizer) {
		return nil
	}
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, request.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get namespace %s: %w", request.Name, err)
	}
	if err == nil && namespace.Labels[keys.HomeID] == id && namespace.Annotations[keys.MadeFor] == id+"/"+request.Spec.HomeNamespace {
		if err := c.revokeRights(ctx, id, request.Name); err != nil {
			return err
		}
		left, err := c.DeleteIfEmpty(ctx, namespace)
		if err != nil {
			return err
		}
		if left != "" {
			c.Recorder.Eventf(request, corev1.EventTypeNormal, "Kept", "Namespace %s is kept, since it holds %s; it is given again when it is "+
				"asked for again.", request.Name, left)
		}
	}
	request.Finalizers = slices.DeleteFunc(request.Finalizers, func(f string) bool { return f == keys.NamespaceFinalizer })
	if _, err := c.Remote.NamespaceRequests(request.Namespace).Update(ctx, request, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("take finalizer off NamespaceRequest %s: %w", keyOf(request), err)
	}
	return nil
}

// DeleteIfEmpty deletes a namespace that was made for a home cluster if it contains nothing that
// anybody could miss. Otherwise it returns what it contains.
func (c *Controller) DeleteIfEmpty(ctx context.Context, namespace *corev1.Namespace) (left string, err error) {
	if namespace.DeletionTimestamp != nil {
		return "", nil
	}
	one := metav1.ListOptions{Limit: 1}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(namespace.Name).List(ctx, one)
	if err != nil {
		return "", fmt.Errorf("list claims of namespace %s: %w", namespace.Name, err)
	}
	pods, err := c.Client.CoreV1().Pods(namespace.Name).List(ctx, one)
	if err != nil {
		return "", fmt.Errorf("list pods of namespace %s: %w", namespace.Name, err)
	}
	shadows, err := c.Remote.ShadowPods(namespace.Name).List(ctx, one)
	if err != nil {
		return "", fmt.Errorf("list ShadowPods of namespace %s: %w", namespace.Name, err)
	}
	snapshots, err := c.hasSnapshots(ctx, namespace.Name)
	if err != nil {
		return "", err
	}
	switch {
	case len(claims.Items) > 0, c.Healing(namespace.Name):
		return "claims", nil
	case snapshots:
		return "volume snapshots", nil
	case len(pods.Items) > 0, len(shadows.Items) > 0:
		return "pods", nil
	}
	err = c.Client.CoreV1().Namespaces().Delete(ctx, namespace.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &namespace.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
	}
	return "", nil
}

// snapshotResource is an API that not every cluster has.
var snapshotResource = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// hasSnapshots reports whether a namespace contains snapshots of volumes: the owner of this cluster
// may have made them to keep data whose claim is deleted.
func (c *Controller) hasSnapshots(ctx context.Context, namespace string) (bool, error) {
	list, err := c.Metadata.Resource(snapshotResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list volume snapshots of namespace %s: %w", namespace, err)
	}
	return len(list.Items) > 0, nil
}
