package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// statusWriter reads and writes RemoteClusters.
type statusWriter interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.RemoteCluster, error)
	UpdateStatus(ctx context.Context, remote *v1alpha1.RemoteCluster, options metav1.UpdateOptions) (*v1alpha1.RemoteCluster, error)
}

// RecordNamespace adds a namespace to the RemoteCluster's status before a backing claim is
// created in it, so that the claim is found again whatever happens to the home namespace.
// It is idempotent.
func (c *Cluster) RecordNamespace(ctx context.Context, namespace string) error {
	if err := c.record(ctx, c.clusters.remotes, namespace); err != nil {
		return fmt.Errorf("record namespace %s of cluster %s: %w", namespace, c.id, err)
	}
	return nil
}

// record writes all waiting namespaces in one request: otherwise the first claims of many
// new namespaces would spend their time on conflicts with each other.
func (c *Cluster) record(ctx context.Context, remotes statusWriter, namespace string) error {
	if !c.startWaiting(namespace) {
		return nil
	}
	defer c.stopWaiting(namespace)
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	done, uid := c.recorded[namespace], c.uid
	wanted := slices.Collect(maps.Keys(c.waiting))
	c.mu.Unlock()
	if done {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		remote, err := remotes.Get(ctx, c.id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(remote.Status.Namespaces, wanted))))
		if len(all) == len(remote.Status.Namespaces) {
			return nil
		}
		remote.Status.Namespaces = all
		_, err = remotes.UpdateStatus(ctx, remote, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid != uid {
		return errRemade
	}
	for _, name := range wanted {
		c.recorded[name] = true
	}
	return nil
}

// errRemade is the error of a record in a RemoteCluster that was recreated meanwhile.
var errRemade = errors.New("the RemoteCluster was made anew")

// startWaiting counts a caller that waits for a namespace to be recorded; false if it is
// recorded already.
func (c *Cluster) startWaiting(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recorded[namespace] {
		return false
	}
	c.waiting[namespace]++
	return true
}

func (c *Cluster) stopWaiting(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[namespace]--; c.waiting[namespace] == 0 {
		delete(c.waiting, namespace)
	}
}

// forgetNamespace removes a namespace from the RemoteCluster's status, once no backing
// claim is left in it and none will be created. It is idempotent.
func (c *Cluster) forgetNamespace(ctx context.Context, namespace string) error {
	c.mu.Lock()
	delete(c.recorded, namespace)
	c.mu.Unlock()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		remote, err := c.clusters.remotes.Get(ctx, c.id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.Contains(remote.Status.Namespaces, namespace) {
			return nil
		}
		remote.Status.Namespaces = without(remote.Status.Namespaces, namespace)
		_, err = c.clusters.remotes.UpdateStatus(ctx, remote, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take namespace %s off cluster %s: %w", namespace, c.id, err)
	}
	return nil
}
