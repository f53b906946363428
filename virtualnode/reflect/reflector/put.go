package reflector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// objects is what is asked of a typed client.
type objects[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// copier writes copies of one kind that can be read back.
type copier[T metav1.Object] struct {
	kind   kind
	client objects[T]
	homeID string
	merge  func(have, want T) (T, copies.Change)
}

// put makes a copy or brings it in step. have is the copy as last seen, if there
// is one. An object that is not ours is left alone: that is a refusal.
func (c copier[T]) put(ctx context.Context, have T, exists bool, want T) error {
	if !exists {
		_, err := c.client.Create(ctx, want, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return c.sort("create", want, err)
		}
		if have, err = c.client.Get(ctx, want.GetName(), metav1.GetOptions{}); err != nil {
			return c.sort("get", want, err)
		}
	}
	if !copies.Ours(have, c.homeID) {
		return errForeign
	}
	if have.GetDeletionTimestamp() != nil {
		return nil // its end is an event
	}
	next, change := c.merge(have, want)
	switch change {
	case copies.None:
		return nil
	case copies.Update:
		klog.FromContext(ctx).V(4).Info("Updating copy")
		_, err := c.client.Update(ctx, next, metav1.UpdateOptions{})
		return c.sort("update", want, err)
	case copies.Replace:
		if err := c.remove(ctx, have, true); err != nil {
			return err
		}
		_, err := c.client.Create(ctx, want, metav1.CreateOptions{})
		return c.sort("create", want, err)
	}
	return nil
}

// remove deletes a copy as last seen, and nothing that is not, or no longer, ours.
func (c copier[T]) remove(ctx context.Context, have T, exists bool) error {
	if !exists || !copies.Ours(have, c.homeID) || have.GetDeletionTimestamp() != nil {
		return nil
	}
	klog.FromContext(ctx).V(4).Info("Removing copy")
	err := c.client.Delete(ctx, have.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(have.GetUID()), ResourceVersion: ptr.To(have.GetResourceVersion())},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.sort("delete", have, err)
}

func (c copier[T]) sort(verb string, object T, err error) error {
	if err == nil {
		return nil
	}
	return sortError(fmt.Errorf("%s copy of %s %s/%s: %w", verb, c.kind, object.GetNamespace(), object.GetName(), err))
}
