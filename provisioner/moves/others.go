package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// observeOthers finds out who else has a source: pods beside the backing claim, and nodes
// that its volume is attached to, but the node of the mover.
func (c *Controller) observeOthers(ctx context.Context, o *decide.Observation) error {
	for i := range o.Record.Claims {
		ref := o.Record.Claims[i].Source.Ref
		at, why := c.reach(ref.Cluster)
		if why != "" || o.Unusable[record.Source] != "" {
			continue
		}
		if err := c.observeSource(ctx, at, o, i); err != nil {
			if at.home {
				return err
			}
			c.suspect(ref.Cluster)
			o.Unusable[record.Source] = fmt.Sprintf("cluster %s cannot be asked now: %v", ref.Cluster, err)
		}
	}
	return nil
}

// observeSource is observeOthers for one claim.
func (c *Controller) observeSource(ctx context.Context, at site, o *decide.Observation, i int) error {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	found, err := c.besides(ctx, at, o.Record, i)
	if err != nil {
		return err
	}
	attachments, err := at.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	o.Others = append(o.Others, found.others...)
	o.Users = append(o.Users, found.users...)
	o.Claims[i].On = found.on
	for _, pod := range o.Pods {
		if at.home && slices.Contains(pod.Claims, i) && pod.Bound && !pod.Leaving && !pod.Finished && c.atHome(pod.Node) {
			o.Claims[i].On = append(o.Claims[i].On, pod.Node)
		}
	}
	o.Writers = append(o.Writers, found.writers...)
	for _, node := range attached(attachments.Items, o.Record.Claims[i].Volume, o.Claims[i].Source.Real) {
		if !found.movers[node] {
			o.Others = append(o.Others, "node "+node+", which it is attached to")
		}
	}
	return nil
}

// beside is who uses a real claim directly.
type beside struct {
	others []string
	users  []record.Node
	// on are the nodes of those that are not ending.
	on []string
	// writers are those at home, where their end is not proven otherwise.
	writers []record.Pod
	// movers are the nodes of its mover.
	movers map[string]bool
}

// besides looks for the pods in the namespace of a source, in its own cluster, that use it.
func (c *Controller) besides(ctx context.Context, at site, r *record.Record, i int) (found beside, err error) {
	ref := r.Claims[i].Source.Ref
	// Also those that somebody in that cluster made.
	pods, err := at.Client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, fmt.Errorf("list pods beside real claim %s: %w", ref.Key(), err)
	}
	mover := r.MoverName(i, record.Source)
	found.movers = map[string]bool{}
	for j := range pods.Items {
		switch pod := &pods.Items[j]; {
		case !uses(&pod.Spec, ref.Name), finished(pod):
		case pod.Name == mover:
			found.movers[pod.Spec.NodeName] = true
		default:
			found.others = append(found.others, "pod "+pod.Name+" in "+ref.Cluster)
			if pod.Spec.NodeName != "" {
				found.users = append(found.users, record.Node{Cluster: ref.Cluster, Name: pod.Spec.NodeName})
				if pod.DeletionTimestamp == nil {
					found.on = append(found.on, pod.Spec.NodeName)
				}
			}
			if known := slim.NewPod(pod); at.home && c.local(known) {
				found.writers = append(found.writers, writer(known))
			}
		}
	}
	if at.Remote == nil {
		return found, nil
	}
	shadows, err := at.Remote.ShadowPods(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + c.Place.HomeID})
	if err != nil {
		return found, fmt.Errorf("list ShadowPods beside real claim %s: %w", ref.Key(), err)
	}
	for j := range shadows.Items {
		// One that was not started yet may be, until its home pod is gone.
		if shadow := &shadows.Items[j]; shadow.Name != mover && uses(&shadow.Spec.Pod.Spec, ref.Name) {
			found.others = append(found.others, "ShadowPod "+shadow.Name+" in "+ref.Cluster)
		}
	}
	return found, nil
}

// attached returns the nodes that a volume is attached to, by whatever name: the virtual
// volume and the real one are the same to a driver.
func attached(attachments []storagev1.VolumeAttachment, virtual, real *corev1.PersistentVolume) []string {
	var nodes []string
	for _, attachment := range attachments {
		name := attachment.Spec.Source.PersistentVolumeName
		if name != nil && (virtual != nil && *name == virtual.Name || real != nil && *name == real.Name) {
			nodes = append(nodes, attachment.Spec.NodeName)
		}
	}
	return nodes
}
