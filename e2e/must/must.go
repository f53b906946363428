// Package must has tests read and write the objects of clusters where nothing may go wrong: a test fails at once with the error of the
// API server or of kubectl. It may also be used while a test cleans up. Tests of errors call the clients themselves.
package must

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lasting returns the context of a test without its end, which comes before what is cleaned up.
func lasting(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

// Create creates an object, and returns it as it is then.
func Create[T any](t testing.TB, client interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}, object T) T {
	t.Helper()
	made, err := client.Create(lasting(t), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// Get returns the object of a name.
func Get[T any](t testing.TB, client interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}, name string) T {
	t.Helper()
	found, err := client.Get(lasting(t), name, metav1.GetOptions{})
	require.NoError(t, err)
	return found
}

// Find returns the object of a name, nil if there is none.
func Find[T any](t testing.TB, client interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}, name string) (found T) {
	t.Helper()
	object, err := client.Get(lasting(t), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return found
	}
	require.NoError(t, err)
	return object
}

// List returns a list of objects: of all, or of those that options choose.
func List[T any](t testing.TB, client interface {
	List(ctx context.Context, options metav1.ListOptions) (T, error)
}, options ...metav1.ListOptions) T {
	t.Helper()
	found, err := client.List(lasting(t), append(options, metav1.ListOptions{})[0])
	require.NoError(t, err)
	return found
}

// Update updates an object, and returns it as it is then.
func Update[T any](t testing.TB, client interface {
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}, object T) T {
	t.Helper()
	updated, err := client.Update(lasting(t), object, metav1.UpdateOptions{})
	require.NoError(t, err)
	return updated
}

// UpdateStatus updates the status of an object, and returns the object as it is then.
func UpdateStatus[T any](t testing.TB, client interface {
	UpdateStatus(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}, object T) T {
	t.Helper()
	updated, err := client.UpdateStatus(lasting(t), object, metav1.UpdateOptions{})
	require.NoError(t, err)
	return updated
}

// Patch patches the object of a name, and returns it as it is then.
func Patch[T any](t testing.TB, client interface {
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}, name string, kind types.PatchType, patch []byte) T {
	t.Helper()
	patched, err := client.Patch(lasting(t), name, kind, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	return patched
}

// Delete deletes the object of a name.
func Delete(t testing.TB, client interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}, name string) {
	t.Helper()
	require.NoError(t, client.Delete(lasting(t), name, metav1.DeleteOptions{}))
}

// Kubectl runs kubectl with all rights on a cluster, with stdin as its standard input, and returns its standard output.
func Kubectl(t testing.TB, cluster interface {
	Kubectl(ctx context.Context, stdin string, args ...string) (string, error)
}, stdin string, args ...string) string {
	t.Helper()
	output, err := cluster.Kubectl(lasting(t), stdin, args...)
	require.NoError(t, err)
	return output
}
