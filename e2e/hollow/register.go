package hollow

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Register registers nodes that are ready and that nobody plays: pods are scheduled
// to them and stay Pending, and the nodes are ready until the grace period of the
// cluster is over. It is for very many nodes, where only scheduling counts.
func Register(ctx context.Context, config *rest.Config, nodes ...Node) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client of the nodes: %w", err)
	}
	h := &Hollow{client: client}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, node := range nodes {
		group.Go(func() error {
			if err := node.validate(); err != nil {
				return err
			}
			return h.register(ctx, node)
		})
	}
	return group.Wait()
}
