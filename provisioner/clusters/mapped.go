package clusters

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/mapped"
)

// keep starts to keep the namespaces of a connection; it ends with that.
func (c *Cluster) keep(connection *connection, config *rest.Config, strategy v1alpha1.NamespaceStrategy) error {
	remote, err := remoteapi.NewClient(config)
	if err != nil {
		return err
	}
	r := c.registry
	connection.remote, connection.config = remote, config
	connection.keeper = mapped.New(mapped.Config{
		Cluster: c.id, HomeID: r.homeID, Strategy: strategy,
		Home: r.mapping.Namespaces, Remote: remote,
		Leaving: func() bool {
			object := r.Object(c.id)
			return object == nil || object.DeletionTimestamp != nil
		},
		Used: func(namespace, home string) bool { return r.mapping.Used(c.id, namespace, home) },
		Recorded: func() []string {
			if object := r.Object(c.id); object != nil {
				return object.Status.Namespaces
			}
			return nil
		},
		Forget: func(ctx context.Context, namespace string) error {
			connection.unwatch(namespace)
			return c.forgetNamespace(ctx, namespace)
		},
		Unpublished: connection.unpublishedIn,
		HomePod:     r.homePod,
		Changed: func(namespace, home string, state mapped.State) {
			if state.Given {
				connection.watchAgain(namespace)
			}
			r.hooks.Mapped(c.id, home, state.Given)
			if c.leaving() {
				c.Nudge()
			}
		},
	})
	r.running.Go(func() { connection.keeper.Run(connection.ctx) })
	return nil
}

// homePod asks the home cluster for the UID of a pod, empty if there is none of that
// name.
func (r *Registry) homePod(ctx context.Context, namespace, name string) (types.UID, error) {
	if namespace == "" || name == "" {
		// What a remote cluster says may be anything; no pod is called so.
		return "", nil
	}
	pod, err := r.home.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod.UID, nil
}

// mapped returns what is known of a namespace, and watches it if backing claims
// may be there; seen says whether all of them are known.
func (c *connection) mapped(namespace string) (state decide.Mapped, seen bool) {
	known := c.keeper.State(namespace)
	state = decide.Mapped{Asked: known.Asked, Given: known.Given, Reason: known.Reason, Message: known.Message, Since: known.Since}
	if state.Asked && !state.Given && !c.watches(namespace) {
		// It may not be read yet: the next attempt would be half a minute away.
		return state, false
	}
	return state, c.watch(namespace).HasSynced()
}

func (c *connection) watches(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shadows[namespace] != nil
}

// unwatch ends the watch of a namespace.
func (c *connection) unwatch(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if watched := c.shadows[namespace]; watched != nil {
		watched.stop()
		delete(c.shadows, namespace)
	}
}

// unpublishedPage is how many backing claims unpublishedIn looks at together. It is
// no other list's: those would be taken for one.
const unpublishedPage = 250

// unpublishedIn asks the API server how many backing claims without data are in
// a namespace, within a time of its own. They are read in pages, as there may be any
// number of them.
func (c *connection) unpublishedIn(ctx context.Context, namespace string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	n := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, options)
	})
	pages.PageSize, pages.PageBufferSize = unpublishedPage, 1
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: c.selector()}, func(obj runtime.Object) error {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && backing.Unpublished(claim) {
			n++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// forgetNamespace takes a namespace off the RemoteCluster's status, in which no
// backing claim is left and none will be made. It is idempotent.
func (c *Cluster) forgetNamespace(ctx context.Context, namespace string) error {
	c.mu.Lock()
	delete(c.recorded, namespace)
	c.mu.Unlock()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		remote, err := c.registry.remotes.Get(ctx, c.id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.Contains(remote.Status.Namespaces, namespace) {
			return nil
		}
		remote.Status.Namespaces = without(remote.Status.Namespaces, namespace)
		_, err = c.registry.remotes.UpdateStatus(ctx, remote, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take namespace %s off cluster %s: %w", namespace, c.id, err)
	}
	return nil
}
