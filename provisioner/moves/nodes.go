package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// observeNodes finds out on which nodes pods use the claims, and which of those that
// they ever did on do not answer. Users in a source's own cluster are known already.
func (c *Controller) observeNodes(ctx context.Context, o *decide.Observation, seen abroad) error {
	if !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Finished && c.atHome(pod.Node) {
			o.Users = append(o.Users, record.Node{Cluster: keys.Home, Name: pod.Node})
		}
	}
	c.observeVanished(o, seen)
	o.Away, o.Off = map[record.Node]string{}, map[record.Node]bool{}
	nodes := nodesOf(o)
	looks, found := make([]func() error, len(nodes)), make([]absent, len(nodes))
	for i, node := range nodes {
		looks[i] = func() error {
			at, why := c.reach(node.Cluster)
			if why != "" {
				found[i].why = why
				return nil
			}
			var err error
			if found[i].off, found[i].why, err = away(ctx, at, node.Name); err != nil && !at.home {
				c.suspect(node.Cluster)
				found[i].why, err = err.Error(), nil
			}
			return err
		}
	}
	err := atOnce(looks)
	for i, node := range nodes {
		switch {
		case found[i].off:
			o.Off[node] = true
		case found[i].why != "":
			o.Away[node] = found[i].why
		}
	}
	return err
}

// absent says whether a node is off, or else why it is not known what runs there.
type absent struct {
	off bool
	why string
}

// atHome says whether a node stands for no remote cluster, as far as is known.
func (c *Controller) atHome(name string) bool {
	node := c.Node(name)
	return node == nil || locality.OfNode(node.Labels) == keys.Home
}

// nodesOf returns the nodes of which it matters what runs there.
func nodesOf(o *decide.Observation) []record.Node {
	var nodes []record.Node
	for _, node := range o.Record.Ran {
		// One that is in use is in the record anyway.
		if !slices.Contains(o.Users, node) || o.Record.Phase == v1alpha1.MoveQuiesce || o.Record.Phase == v1alpha1.MoveFence {
			nodes = append(nodes, node)
		}
	}
	there := map[types.UID]bool{}
	for _, pod := range o.Writers {
		there[pod.UID] = true
	}
	for _, pod := range slices.Concat(o.Record.Pods, o.Unended) {
		if node := pod.On(); !there[pod.UID] && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// away says whether a node is gone, or said to be off, or else why it is not known what
// runs there: it is not ready. It asks the API server, never a cache.
func away(ctx context.Context, at site, name string) (off bool, why string, err error) {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	nodes, err := at.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return false, "", fmt.Errorf("look at node %s: %w", name, err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Name == name {
			off, why = silent(&nodes.Items[i])
			return off, why, nil
		}
	}
	return true, "", nil
}

// silent says whether a node is said to be off, or else why it is not known to be ready;
// empty if it is.
func silent(node *corev1.Node) (off bool, why string) {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return true, ""
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return false, ""
		}
	}
	return false, "the node is not ready"
}
