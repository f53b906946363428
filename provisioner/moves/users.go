package moves

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/site"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// observeUsers finds out which home pods use the claims and, if that matters now, who else
// uses a source: pods of its own cluster that mount the backing claim, and nodes that its
// volume is attached to, except the mover's node.
func (c *Controller) observeUsers(ctx context.Context, o *steps.Observation) error {
	found, pods := c.reachableSources(o), []func() error{func() error { return c.observePods(ctx, o) }}
	var attachments []func() error
	for i := range found {
		s := &found[i]
		pods = append(pods, func() error {
			return s.ask(ctx, func(ctx context.Context) error { return c.sourcePods(ctx, o.Record, s) })
		})
		attachments = append(attachments, func() error { return s.ask(ctx, func(ctx context.Context) error { return s.attachedNodes(ctx, o) }) })
	}
	if err := atOnce(pods); err != nil {
		return err
	}
	// After the pods, so that attachments that a deleted pod has left are included.
	if err := atOnce(attachments); err != nil {
		return err
	}
	for i := range found {
		if err := found[i].err; err != nil {
			cluster := o.Record.Claims[found[i].claim].Source.Ref.Cluster
			c.sites.Recheck(cluster)
			o.Source.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
			return nil
		}
		c.noteSourceUsers(o, &found[i])
	}
	return nil
}

// observePods finds out which home pods use a claim of a move.
func (c *Controller) observePods(ctx context.Context, o *steps.Observation) error {
	pods, err := c.Client.CoreV1().Pods(o.Record.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var live []*corev1.Pod // of o.Pods
	for i := range pods.Items {
		pod := &pods.Items[i]
		used := usedBy(pod, o.Record)
		if len(used) == 0 {
			continue
		}
		known, seen := home.NewPod(pod), podOf(pod)
		seen.Claims = used
		for _, j := range used {
			if known := &o.Record.Claims[j]; known.Source.Ref.Cluster == keys.Home && !seen.Finished {
				o.Claims[j].Levels = append(o.Claims[j].Levels, selinuxLevels(&pod.Spec, known.Name)...)
			}
		}
		if c.isHomePod(known) {
			// Controllers other than its node may set the phase Failed.
			if seen.Finished = known.Ended(); seen.Finished {
				noteEnded(o, pod.UID)
			} else {
				o.Writers = append(o.Writers, recordPod(known))
			}
		}
		o.Pods = append(o.Pods, seen)
		live = append(live, pod)
	}
	return c.observeGate(ctx, o, live)
}

// noteEnded notes that a pod has ended.
func noteEnded(o *steps.Observation, pod types.UID) {
	if o.Ended == nil {
		o.Ended = map[types.UID]bool{}
	}
	o.Ended[pod] = true
}

// usedBy returns the indices of the claims of a move that a pod uses.
func usedBy(pod *corev1.Pod, r *record.Record) (claims []int) {
	for i := range r.Claims {
		if uses(&pod.Spec, r.Claims[i].Name) {
			claims = append(claims, i)
		}
	}
	return claims
}

func podOf(pod *corev1.Pod) steps.Pod {
	seen := steps.Pod{
		Name: pod.Name, UID: pod.UID, Bound: pod.Spec.NodeName != "", Leaving: pod.DeletionTimestamp != nil,
		Finished: finished(pod), Owned: metav1.GetControllerOf(pod) != nil, Job: jobOf(pod), Node: pod.Spec.NodeName,
		Hasty: pod.Spec.TerminationGracePeriodSeconds != nil && *pod.Spec.TerminationGracePeriodSeconds == 0,
	}
	for _, gate := range pod.Spec.SchedulingGates {
		seen.Gated = seen.Gated || gate.Name == keys.MovingGate
	}
	for _, condition := range pod.Status.Conditions {
		seen.Ready = seen.Ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}
	return seen
}

// jobOf returns the name of a pod's Job; empty if it has none.
func jobOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, "batch/") {
		return owner.Name
	}
	return ""
}

// uses says whether a pod mounts a claim of its namespace.
func uses(spec *corev1.PodSpec, claim string) bool {
	for _, volume := range spec.Volumes {
		if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// reachableSources returns the sources whose users matter now and whose clusters take
// requests.
func (c *Controller) reachableSources(o *steps.Observation) (found []sourceUsers) {
	if o.Source.Unusable != "" || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for i := range o.Record.Claims {
		if at, why := c.sites.Reach(o.Record.Claims[i].Source.Ref.Cluster); why == "" {
			found = append(found, sourceUsers{claim: i, at: at})
		}
	}
	return found
}

// sourceUsers has the direct users of a claim's source.
type sourceUsers struct {
	claim  int
	at     site.Site
	others []string
	// attachments are the nodes that it is attached to, without the mover's; attached says
	// that it is attached under the virtual volume's name.
	attachments []string
	attached    bool
	users       []record.Node
	// on are the nodes of pods that are not being deleted.
	on []string
	// writers are the pods that are not proven to have ended, ended those that are and still exist.
	writers []record.Pod
	ended   []types.UID
	// levels are the SELinux levels in their security contexts.
	levels []string
	// movers are the nodes of its mover; "" while that has none.
	movers map[string]bool
	// err is the error of a remote cluster's answer.
	err error
}

// ask sends a request to the cluster of a source. After an error of a remote cluster no
// more are sent.
func (s *sourceUsers) ask(ctx context.Context, look func(context.Context) error) error {
	if s.err != nil {
		return nil
	}
	ctx, cancel := s.at.WithTimeout(ctx)
	defer cancel()
	err := look(ctx)
	if s.at.Home {
		return err
	}
	s.err = err
	return nil
}

// sourcePods finds the pods that use a source, in its namespace and cluster.
func (c *Controller) sourcePods(ctx context.Context, r *record.Record, found *sourceUsers) error {
	ref, at := r.Claims[found.claim].Source.Ref, found.at
	// Include pods that users of that cluster created.
	mover := r.MoverName(found.claim, record.Source)
	found.movers = map[string]bool{}
	var pods []corev1.Pod
	err := eachPage(ctx, metav1.ListOptions{}, at.Client.CoreV1().Pods(ref.Namespace).List, func(page *corev1.PodList) {
		pods = append(pods, slices.DeleteFunc(page.Items, func(pod corev1.Pod) bool { return !uses(&pod.Spec, ref.Name) })...)
	})
	if err != nil {
		return fmt.Errorf("list pods beside real claim %s: %w", ref.Key(), err)
	}
	for j := range pods {
		pod := &pods[j]
		switch known := home.NewPod(pod); {
		case known.Ended():
			// Controllers other than its node may set the phase Failed.
			found.ended = append(found.ended, pod.UID)
		case pod.Name == mover:
			found.movers[pod.Spec.NodeName] = true
		default:
			found.others = append(found.others, "pod "+pod.Name+" in "+ref.Cluster)
			found.levels = append(found.levels, selinuxLevels(&pod.Spec, ref.Name)...)
			if pod.Spec.NodeName != "" {
				found.users = append(found.users, record.Node{Cluster: ref.Cluster, Name: pod.Spec.NodeName})
				if pod.DeletionTimestamp == nil {
					found.on = append(found.on, pod.Spec.NodeName)
				}
			}
			if known.Node != "" && (!at.Home || c.isHomePod(known)) {
				found.writers = append(found.writers, recordPodOf(ref.Cluster, known))
			}
		}
	}
	if at.Remote == nil {
		return nil
	}
	ours := metav1.ListOptions{LabelSelector: keys.HomeID + "=" + c.Place.HomeID}
	err = eachPage(ctx, ours, at.Remote.ShadowPods(ref.Namespace).List, func(page *remotev1alpha1.ShadowPodList) {
		for j := range page.Items {
			// A ShadowPod that was not started yet may still be, until its home pod is gone.
			if shadow := &page.Items[j]; shadow.Name != mover && uses(&shadow.Spec.Pod.Spec, ref.Name) {
				found.others = append(found.others, "ShadowPod "+shadow.Name+" in "+ref.Cluster)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list ShadowPods beside real claim %s: %w", ref.Key(), err)
	}
	return nil
}

// attachedNodes finds the nodes that a source is attached to.
func (s *sourceUsers) attachedNodes(ctx context.Context, o *steps.Observation) error {
	offline := slices.ContainsFunc(o.Record.Claims, func(c record.Claim) bool { return c.Offline })
	if !offline && record.Before(o.Record.Phase, v1alpha1.MoveQuiesce) {
		// Its pods use it, and it is read beside them.
		return nil
	}
	var asVirtual, asReal []string
	err := eachPage(ctx, metav1.ListOptions{}, s.at.Client.StorageV1().VolumeAttachments().List, func(page *storagev1.VolumeAttachmentList) {
		virtual, real := attachmentsOf(page.Items, o.Record.Claims[s.claim].Volume, o.Claims[s.claim].Source.Real)
		asVirtual, asReal = append(asVirtual, virtual...), append(asReal, real...)
	})
	if err != nil {
		return fmt.Errorf("list attachments: %w", err)
	}
	s.attached = s.at.Home && len(asVirtual) > 0
	if s.movers[""] {
		// The mover may have got its node, and the volume been attached there, since its pod
		// was read: that is for the next observation.
		asReal = nil
	}
	for _, node := range append(asVirtual, asReal...) {
		if !s.movers[node] {
			s.attachments = append(s.attachments, "node "+node+", which it is attached to")
		}
	}
	return nil
}

// attachmentsOf returns the nodes that a volume is attached to, by its two names: to a
// driver the virtual volume and the real one are the same, and the name is that of whichever
// was attached first.
func attachmentsOf(attachments []storagev1.VolumeAttachment, virtual, real *corev1.PersistentVolume) (asVirtual, asReal []string) {
	for _, attachment := range attachments {
		switch name := attachment.Spec.Source.PersistentVolumeName; {
		case name == nil:
		case virtual != nil && *name == virtual.Name:
			asVirtual = append(asVirtual, attachment.Spec.NodeName)
		case real != nil && *name == real.Name:
			asReal = append(asReal, attachment.Spec.NodeName)
		}
	}
	return asVirtual, asReal
}

// noteSourceUsers adds the users of a source to the observation.
func (c *Controller) noteSourceUsers(o *steps.Observation, found *sourceUsers) {
	o.Others = append(o.Others, found.others...)
	o.Attachments = append(o.Attachments, found.attachments...)
	o.Users = append(o.Users, found.users...)
	o.Writers = append(o.Writers, found.writers...)
	cluster := o.Record.Claims[found.claim].Source.Ref.Cluster
	for _, pod := range o.Record.Pods {
		// What another cluster says of a pod with that UID does not count.
		if pod.On().Cluster == cluster && slices.Contains(found.ended, pod.UID) {
			noteEnded(o, pod.UID)
		}
	}
	seen := &o.Claims[found.claim]
	seen.Attached = found.attached
	seen.On, seen.Levels = found.on, append(seen.Levels, found.levels...)
	for _, pod := range o.Pods {
		if found.at.Home && slices.Contains(pod.Claims, found.claim) && pod.Bound && !pod.Leaving && !pod.Finished && c.atHome(pod.Node) {
			seen.On = append(seen.On, pod.Node)
		}
	}
}

// observeNodes finds out on which nodes pods use the claims, and which of the nodes ever
// used are not ready. Users in a source's own cluster have been added before.
func (c *Controller) observeNodes(ctx context.Context, o *steps.Observation, seen remoteWatchers) error {
	if !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Finished && c.atHome(pod.Node) {
			o.Users = append(o.Users, record.Node{Cluster: keys.Home, Name: pod.Node})
		}
	}
	c.observeEndedPods(o, seen)
	nodes := nodesOf(o)
	looks, found := make([]func() error, len(nodes)), make([]steps.Absence, len(nodes))
	for i, node := range nodes {
		looks[i] = func() error {
			at, why := c.sites.Reach(node.Cluster)
			if why != "" {
				found[i].Why = why
				return nil
			}
			var err error
			if found[i], err = absenceOf(ctx, at, node.Name); err != nil && !at.Home {
				c.sites.Recheck(node.Cluster)
				found[i].Why, err = err.Error(), nil
			}
			return err
		}
	}
	err := atOnce(looks)
	o.Nodes = map[record.Node]steps.Absence{}
	for i, node := range nodes {
		if found[i] != (steps.Absence{}) {
			o.Nodes[node] = found[i]
		}
	}
	return err
}

// atHome says whether a node represents no remote cluster, as far as known.
func (c *Controller) atHome(name string) bool {
	node := c.Node(name)
	return node == nil || locality.OfNode(node.Labels) == keys.Home
}

// isHomePod says whether a pod is bound to a real home node. Pods on other nodes are kept
// by the virtual node until they are proven to have ended.
func (c *Controller) isHomePod(pod *home.Pod) bool { return pod.Node != "" && c.atHome(pod.Node) }

// recordPod returns the record of a home pod.
func recordPod(pod *home.Pod) record.Pod {
	return record.Pod{UID: pod.UID, Name: pod.Name, Node: pod.Node, Grace: pod.Grace}
}

// recordPodOf is recordPod for a pod of any cluster. A remote cluster's values are cut,
// since it may send anything.
func recordPodOf(cluster string, pod *home.Pod) record.Pod {
	known := recordPod(pod)
	if cluster != keys.Home {
		known.Cluster, known.UID = cluster, known.UID[:min(len(known.UID), 64)]
		known.Name, known.Node = known.Name[:min(len(known.Name), 253)], known.Node[:min(len(known.Node), 253)]
	}
	return known
}

// nodesOf returns the nodes of which the state matters.
func nodesOf(o *steps.Observation) []record.Node {
	var nodes []record.Node
	for _, node := range o.Record.Ran {
		// A node in use is in the record anyway.
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

// absenceOf reads the state of a node from the API server, never from a cache; the zero
// value means that it is ready.
func absenceOf(ctx context.Context, at site.Site, name string) (steps.Absence, error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	nodes, err := at.Client.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return steps.Absence{}, fmt.Errorf("look at node %s: %w", name, err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		switch {
		case node.Name != name:
			continue
		case slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }):
			return steps.Absence{Off: true}, nil
		case slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}):
			return steps.Absence{}, nil
		}
		return steps.Absence{Why: "the node is not ready"}, nil
	}
	return steps.Absence{Off: true}, nil
}

const (
	// gateProof is the policy that answers the dry run, and heldBack what it says of a pod
	// that has the gate: deploy/base/moves/rights.yaml.
	gateProof = "lodestone-move-proof"
	heldBack  = "a new pod waits at the gate"
)

// observeGate finds out, for the next pod that is to be stopped, whether a new one like it
// would get the gate. live are the pods of the observation, in its order.
//
// It is asked by a dry run with the live pod, which was admitted once, so that all that
// decides about its successor decides here too: the namespace, its labels, policies and
// webhooks of others. Our policy refuses each such pod and says in the refusal what it saw,
// before quotas are looked at, which that pod may fill. So the right to create pods is the
// right to ask.
func (c *Controller) observeGate(ctx context.Context, o *steps.Observation, live []*corev1.Pod) error {
	next := slices.IndexFunc(o.Pods, decide.MustStop)
	stopping := record.Before(o.Record.Phase, v1alpha1.MoveCommit) && !record.Before(o.Record.Phase, v1alpha1.MoveQuiesce)
	if next < 0 || !stopping || !isLocked(o) {
		return nil
	}
	made, err := c.Client.CoreV1().Pods(o.Record.Namespace).Create(ctx, likeAgain(live[next]),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	pod := &o.Pods[next]
	switch {
	case err == nil:
		if pod.Held = podOf(made).Gated; !pod.Held {
			pod.NotHeld = "nothing gave it the scheduling gate " + keys.MovingGate
		}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), gateProof) && strings.Contains(err.Error(), heldBack):
		pod.Held = true
	// An internal error is what becomes of a webhook that does not answer.
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err),
		apierrors.IsInternalError(err):
		pod.NotHeld = plain(err.Error())
	default:
		return fmt.Errorf("ask what would hold a new pod like %s back: %w", pod.Name, err)
	}
	return nil
}

// isLocked says whether new pods of all claims are to be held back.
func isLocked(o *steps.Observation) bool {
	return !slices.ContainsFunc(o.Claims, func(claim steps.Claim) bool {
		return claim.Claim == nil || claim.Claim.Labels[keys.Moving] != keys.MovingNow ||
			claim.Claim.Annotations[keys.Move] != string(o.Record.UID)
	})
}

// likeAgain is a pod as the owner of another one would make it once more.
func likeAgain(pod *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lodestone-move-", Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       *pod.Spec.DeepCopy(),
	}
	next.Spec.NodeName, next.Spec.SchedulingGates, next.Spec.EphemeralContainers = "", nil, nil
	return next
}

// selinuxLevel is the syntax of a process's level, such as s0:c12,c34.
var selinuxLevel = regexp.MustCompile(`^s[0-9]{1,2}(-s[0-9]{1,2})?(:[c0-9.,]{1,200})?$`)

// selinuxLevels returns the SELinux levels in a pod's security contexts for the containers
// that use a claim. A mover beside it needs the same level: on nodes that enforce SELinux a
// volume is relabelled for each pod that starts with it, and all others lose access.
func selinuxLevels(spec *corev1.PodSpec, claim string) (stated []string) {
	for j := range spec.Containers {
		container := &spec.Containers[j]
		if !mounts(spec, container, claim) {
			continue
		}
		said := ""
		if s := spec.SecurityContext; s != nil && s.SELinuxOptions != nil {
			said = s.SELinuxOptions.Level
		}
		if s := container.SecurityContext; s != nil && s.SELinuxOptions != nil && s.SELinuxOptions.Level != "" {
			said = s.SELinuxOptions.Level
		}
		if selinuxLevel.MatchString(said) {
			stated = append(stated, said)
		}
	}
	return stated
}

// mounts says whether a container of a pod mounts a claim.
func mounts(spec *corev1.PodSpec, container *corev1.Container, claim string) bool {
	for _, volume := range spec.Volumes {
		if volume.PersistentVolumeClaim == nil || volume.PersistentVolumeClaim.ClaimName != claim {
			continue
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume.Name {
				return true
			}
		}
		for _, device := range container.VolumeDevices {
			if device.Name == volume.Name {
				return true
			}
		}
	}
	return false
}

// atOnce calls functions in parallel and waits for all; it returns the error of the first
// in order that failed.
func atOnce(calls []func() error) error {
	errs, slots := make([]error, len(calls)), make(chan struct{}, maxAtOnce)
	var running sync.WaitGroup
	for i, call := range calls {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = call()
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
