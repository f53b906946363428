package moves

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// observeUsers finds out which pods of home use the claims, and while that decides
// anything who else has a source: pods beside the backing claim, and nodes that its volume
// is attached to, but the node of the mover.
func (c *Controller) observeUsers(ctx context.Context, o *decide.Observation) error {
	found, pods := c.sources(o), []func() error{func() error { return c.observePods(ctx, o) }}
	var attachments []func() error
	for i := range found {
		s := &found[i]
		pods = append(pods, func() error {
			return s.ask(ctx, func(ctx context.Context) error { return c.podsBeside(ctx, o.Record, s) })
		})
		attachments = append(attachments, func() error { return s.ask(ctx, func(ctx context.Context) error { return s.attached(ctx, o) }) })
	}
	if err := atOnce(pods); err != nil {
		return err
	}
	// After the pods: what one that is gone has left is seen.
	if err := atOnce(attachments); err != nil {
		return err
	}
	for i := range found {
		if err := found[i].err; err != nil {
			cluster := o.Record.Claims[found[i].claim].Source.Ref.Cluster
			c.suspect(cluster)
			o.Unusable[record.Source] = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
			return nil
		}
		c.besides(o, &found[i])
	}
	return nil
}

// sources returns the sources of which it matters who has them, and can be asked.
func (c *Controller) sources(o *decide.Observation) (found []beside) {
	if o.Unusable[record.Source] != "" || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for i := range o.Record.Claims {
		if at, why := c.reach(o.Record.Claims[i].Source.Ref.Cluster); why == "" {
			found = append(found, beside{claim: i, at: at})
		}
	}
	return found
}

// ask looks at the cluster of a source. A remote one that does not tell is asked nothing
// more.
func (s *beside) ask(ctx context.Context, look func(context.Context) error) error {
	if s.err != nil {
		return nil
	}
	ctx, cancel := s.at.patience(ctx)
	defer cancel()
	err := look(ctx)
	if s.at.home {
		return err
	}
	s.err = err
	return nil
}

// besides notes who has a source.
func (c *Controller) besides(o *decide.Observation, found *beside) {
	o.Others = append(o.Others, found.others...)
	o.Users = append(o.Users, found.users...)
	o.Writers = append(o.Writers, found.writers...)
	seen := &o.Claims[found.claim]
	seen.On, seen.Levels = found.on, append(seen.Levels, found.levels...)
	for _, pod := range o.Pods {
		if found.at.home && slices.Contains(pod.Claims, found.claim) && pod.Bound && !pod.Leaving && !pod.Finished && c.atHome(pod.Node) {
			seen.On = append(seen.On, pod.Node)
		}
	}
}

// beside is who has the source of a claim directly.
type beside struct {
	claim  int
	at     site
	others []string
	users  []record.Node
	// on are the nodes of those that are not ending.
	on []string
	// writers are those whose end is not proven otherwise.
	writers []record.Pod
	// levels are the SELinux levels that they state.
	levels []string
	// movers are the nodes of its mover.
	movers map[string]bool
	// err is why a remote cluster does not tell.
	err error
}

// podsBeside looks for the pods in the namespace of a source, in its own cluster, that use it.
func (c *Controller) podsBeside(ctx context.Context, r *record.Record, found *beside) error {
	ref, at := r.Claims[found.claim].Source.Ref, found.at
	// Also those that somebody in that cluster made.
	pods, err := at.Client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods beside real claim %s: %w", ref.Key(), err)
	}
	mover := r.MoverName(found.claim, record.Source)
	found.movers = map[string]bool{}
	for j := range pods.Items {
		pod := &pods.Items[j]
		if !uses(&pod.Spec, ref.Name) {
			continue
		}
		switch known := slim.NewPod(pod); {
		case known.Ended():
			// Others than its node may say that it has failed.
		case pod.Name == mover:
			found.movers[pod.Spec.NodeName] = true
		default:
			found.others = append(found.others, "pod "+pod.Name+" in "+ref.Cluster)
			found.levels = append(found.levels, levels(&pod.Spec, ref.Name)...)
			if pod.Spec.NodeName != "" {
				found.users = append(found.users, record.Node{Cluster: ref.Cluster, Name: pod.Spec.NodeName})
				if pod.DeletionTimestamp == nil {
					found.on = append(found.on, pod.Spec.NodeName)
				}
			}
			if known.Node != "" && (!at.home || c.local(known)) {
				found.writers = append(found.writers, writerIn(ref.Cluster, known))
			}
		}
	}
	if at.Remote == nil {
		return nil
	}
	shadows, err := at.Remote.ShadowPods(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + c.Place.HomeID})
	if err != nil {
		return fmt.Errorf("list ShadowPods beside real claim %s: %w", ref.Key(), err)
	}
	for j := range shadows.Items {
		// One that was not started yet may be, until its home pod is gone.
		if shadow := &shadows.Items[j]; shadow.Name != mover && uses(&shadow.Spec.Pod.Spec, ref.Name) {
			found.others = append(found.others, "ShadowPod "+shadow.Name+" in "+ref.Cluster)
		}
	}
	return nil
}

// attached looks for the nodes that a source is attached to.
func (s *beside) attached(ctx context.Context, o *decide.Observation) error {
	attachments, err := s.at.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	for _, node := range attached(attachments.Items, o.Record.Claims[s.claim].Volume, o.Claims[s.claim].Source.Real) {
		if !s.movers[node] {
			s.others = append(s.others, "node "+node+", which it is attached to")
		}
	}
	return nil
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
