package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// clusterFlows are about a RemoteCluster, which cases share: they run alone. The
// RemoteCluster is made again after each case.
func clusterFlows() []Flow {
	first := Flow{
		// The first claim of a namespace, which is written down with the cluster.
		Name: "first-in-cluster", Alone: true,
		Act: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, now, "west") },
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, "west"), once(c, 1, 1), w.recorded(c))
		},
	}
	// Removed while a claim waits there: it goes home.
	waiting := Flow{
		Name: "cluster-removed-waiting", Alone: true,
		Setup: func(ctx context.Context, w *World, c *Case) error { return w.create(ctx, c, data, moved, "west") },
		Ready: func(_ *World, _ *Case, v *View) error { return hasBacking(v) },
		Act:   func(ctx context.Context, w *World, _ *Case) error { return w.removeCluster(ctx) },
		Play:  chooseHome,
		Want: func(w *World, c *Case, v *View) error {
			return all(w.bound(v, data, keys.Home), once(c, 2, 1), w.removed())
		},
	}
	// Removed while it holds a volume: it stays until the user deletes that.
	inUse := served(Flow{
		Name: "cluster-removed-in-use", Alone: true,
		Act: func(ctx context.Context, w *World, c *Case) error {
			return errors.Join(w.removeCluster(ctx), w.delete(ctx, w.Bed.Home, c.Namespace, data))
		},
		Want: func(w *World, c *Case, v *View) error { return all(w.gone(c, v), once(c, 1, 1), w.removed()) },
	}, places[1])
	return []Flow{first, waiting, inUse}
}

func (w *World) removeCluster(ctx context.Context) error {
	if err := w.Bed.Remotes.Delete(ctx, "west", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete RemoteCluster west: %w", err)
	}
	return nil
}

// removed says whether the RemoteCluster is gone and its Secret is let go.
func (w *World) removed() error {
	if _, err := w.Bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return errors.New("RemoteCluster west is still there")
	}
	secret, err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Get(context.Background(), "west", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at the Secret of west: %w", err)
	}
	if slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
		return errors.New("the Secret of west is still held")
	}
	return nil
}

// recorded says whether the RemoteCluster names a case's namespace.
func (w *World) recorded(c *Case) error {
	remote, err := w.Bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at RemoteCluster west: %w", err)
	}
	if !slices.Contains(remote.Status.Namespaces, c.Namespace) {
		return errors.New("the RemoteCluster does not name the namespace")
	}
	return nil
}

// restoreCluster makes the RemoteCluster again if it is gone.
func (w *World) restoreCluster(ctx context.Context) error {
	_, err := w.Bed.Remotes.Get(ctx, "west", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Delete(ctx, "west", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Secret of west: %w", err)
	}
	return w.Bed.Register(ctx, "west", w.kubeconfigs[1]["west"])
}
