// Package keep keeps objects as they should be, by live reads: what it finds is
// never older than the call.
package keep

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Client is what is needed of the typed client of a kind.
type Client[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Object makes want if there is no object of its name, and otherwise has change
// bring the existing one in line, which reports whether it had to. Change may be
// nil: the object then only has to exist. Object is idempotent; a conflict is
// returned as such.
func Object[T metav1.Object](ctx context.Context, client Client[T], want T, change func(have T) bool) error {
	have, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if _, err := client.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make %T %s: %w", want, want.GetName(), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %T %s: %w", want, want.GetName(), err)
	}
	if change == nil || !change(have) {
		return nil
	}
	if _, err := client.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update %T %s: %w", want, want.GetName(), err)
	}
	return nil
}

// Gone deletes an object if it is labelled as made for the home cluster. It is
// idempotent.
func Gone[T metav1.Object](ctx context.Context, client Client[T], name, homeID string) error {
	have, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if have.GetLabels()[keys.HomeID] != homeID {
		return nil
	}
	err = client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(have.GetUID())}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %T %s: %w", have, name, err)
	}
	return nil
}

// Entries sets entries of a map of labels or annotations of an object, deletes
// those that are wanted empty, and reports whether it had to.
func Entries(have map[string]string, want map[string]string) (map[string]string, bool) {
	changed := false
	for key, value := range want {
		was, ok := have[key]
		if value == "" {
			if ok {
				delete(have, key)
				changed = true
			}
			continue
		}
		if !ok || was != value {
			if have == nil {
				have = map[string]string{}
			}
			have[key] = value
			changed = true
		}
	}
	return have, changed
}

// Labels brings labels and annotations of an object in line.
func Labels(have metav1.Object, labels, annotations map[string]string) bool {
	l, changedLabels := Entries(have.GetLabels(), labels)
	a, changedAnnotations := Entries(have.GetAnnotations(), annotations)
	have.SetLabels(l)
	have.SetAnnotations(a)
	return changedLabels || changedAnnotations
}
