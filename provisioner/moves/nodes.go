package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// observeNodes finds out on which nodes pods use the claims, and which of those that
// they ever did on do not answer. Users in a source's own cluster are known already.
func (c *Controller) observeNodes(ctx context.Context, o *decide.Observation) error {
	if !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Finished && c.atHome(pod.Node) {
			o.Users = append(o.Users, record.Node{Cluster: keys.Home, Name: pod.Node})
		}
	}
	o.Away = map[record.Node]string{}
	for _, node := range o.Record.Ran {
		if slices.Contains(o.Users, node) && o.Record.Phase != v1alpha1.MoveQuiesce && o.Record.Phase != v1alpha1.MoveFence {
			// It is in the record anyway.
			continue
		}
		at, why := c.reach(node.Cluster)
		if why != "" {
			o.Away[node] = why
			continue
		}
		why, err := away(ctx, at, node.Name)
		switch {
		case err == nil && why != "":
			o.Away[node] = why
		case err != nil && at.home:
			return err
		case err != nil:
			c.suspect(node.Cluster)
			o.Away[node] = err.Error()
		}
	}
	return nil
}

// atHome says whether a node stands for no remote cluster, as far as is known.
func (c *Controller) atHome(name string) bool {
	node := c.Node(name)
	return node == nil || locality.OfNode(node.Labels) == keys.Home
}

// away says why it is not known what runs on a node: it is there, is not ready, and
// nobody has said that it is off. It asks the API server, never a cache.
func away(ctx context.Context, at site, name string) (why string, err error) {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	nodes, err := at.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return "", fmt.Errorf("look at node %s: %w", name, err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Name == name {
			return silent(&nodes.Items[i]), nil
		}
	}
	return "", nil
}

// silent says why a node is not known to be ready; empty if it is, or is known to be off.
func silent(node *corev1.Node) string {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return ""
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return "the node is not ready"
}
