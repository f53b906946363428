package clusters

import (
	"context"
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/provisioner/reach"
)

// nodeRights are the rights to see the nodes of a cluster. Only that a volume's
// node is gone cannot be told without them.
var nodeRights = []authorizationv1.ResourceAttributes{{Verb: "list", Resource: "nodes"}, {Verb: "watch", Resource: "nodes"}}

// NodesGone says that no node of the cluster is left on which a real volume there
// could be used, or that none of them is ready, and on which ones it could; empty
// while there is one, or that is not known.
func (c *Cluster) NodesGone(volume *corev1.PersistentVolume) (gone, down string) {
	connection := c.current()
	if connection == nil {
		return "", ""
	}
	connection.mu.Lock()
	nodes := connection.nodes
	connection.mu.Unlock()
	if nodes == nil || !nodes.HasSynced() {
		return "", ""
	}
	return reach.Lost(volume, nodes.GetStore())
}

// follow begins to watch what matters beside volumes and classes: how much room
// there is, if home may see that, and nodes.
func (c *connection) follow(ctx context.Context, room bool) {
	if room {
		c.watchRoom()
	}
	if err := c.followNodes(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Nodes there are not watched", "err", err)
	}
}

// followNodes begins to watch the nodes of a cluster once it matters: when a real
// volume there can be used on some of them only, and home may see them.
func (c *connection) followNodes(ctx context.Context) error {
	c.mu.Lock()
	watched := c.nodes != nil
	c.mu.Unlock()
	if watched || !c.confines() {
		return nil
	}
	for _, right := range nodeRights {
		if ok, err := allowed(ctx, c.client, right); err != nil || !ok {
			return err
		}
	}
	return c.watchNodes()
}

// confines says whether a real volume of ours can be used on some nodes only.
func (c *connection) confines() bool {
	for _, obj := range c.volumes.GetStore().List() {
		if volume, ok := obj.(*corev1.PersistentVolume); ok && reach.Confined(volume) && c.shadowOf(volume) != nil {
			return true
		}
	}
	return false
}

func (c *connection) watchNodes() error {
	nodes := c.factory.Core().V1().Nodes().Informer()
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				c.nodeChanged(obj)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, _ := old.(*corev1.Node)
			after, _ := obj.(*corev1.Node)
			switch {
			case before == nil || after == nil:
			case !maps.Equal(before.Labels, after.Labels):
				c.nodeChanged(before)
				c.nodeChanged(after)
			case reach.Down(before) != reach.Down(after):
				places := map[string]bool{}
				reach.AddPlaces(places, after)
				c.confinedChanged(func(volume *corev1.PersistentVolume) bool { return reach.Among(volume, places) })
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			c.nodeChanged(obj)
		},
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.nodes = nodes
	c.mu.Unlock()
	c.factory.StartWithContext(c.ctx)
	go func() {
		// What was gone before is known only now.
		if cache.WaitForCacheSync(c.ctx.Done(), nodes.HasSynced) {
			c.confinedChanged(func(*corev1.PersistentVolume) bool { return true })
		}
	}()
	return nil
}

// nodeChanged has the volumes looked at that can be used on a node.
func (c *connection) nodeChanged(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.confinedChanged(func(volume *corev1.PersistentVolume) bool { return reach.Allows(volume, node) })
	}
}

func (c *connection) confinedChanged(concerned func(*corev1.PersistentVolume) bool) {
	for _, obj := range c.volumes.GetStore().List() {
		if volume, ok := obj.(*corev1.PersistentVolume); ok && reach.Confined(volume) && c.shadowOf(volume) != nil && concerned(volume) {
			c.volumeChanged(volume)
		}
	}
}
