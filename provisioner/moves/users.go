package moves

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// observeUsers finds out which home pods use the claims and, if that matters now, who else
// uses a source: pods of its own cluster that mount the backing claim, and nodes that its
// volume is attached to, except the mover's node.
func (c *Controller) observeUsers(ctx context.Context, o *steps.Observation) error {
	found, pods := c.reachableSources(o), []func() error{func() error { return c.observePods(ctx, o) }}
	var attachments []func() error
	for i := range found {
		pods = append(pods, func() error { return c.witness.ReadPods(ctx, &found[i].Users) })
		if mayBeAttached(o.Record) {
			attachments = append(attachments, func() error { return found[i].ReadAttachments(ctx) })
		}
	}
	if err := site.AtOnce(pods); err != nil {
		return err
	}
	if err := site.AtOnce(attachments); err != nil {
		return err
	}
	for i := range found {
		if err := found[i].Err; err != nil {
			cluster := found[i].Ref.Cluster
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
		seen.Claims, seen.Cluster = used, keys.Home
		if node := c.Node(pod.Spec.NodeName); node != nil {
			seen.Cluster = locality.OfNode(node.Labels)
		}
		for _, j := range used {
			if known := &o.Record.Claims[j]; known.Source.Ref.Cluster == keys.Home && !seen.Finished {
				o.Claims[j].Levels = append(o.Claims[j].Levels, selinuxLevels(&pod.Spec, known.Name)...)
			}
		}
		if c.witness.IsHomePod(known) {
			// Controllers other than its node may set the phase Failed.
			if seen.Finished = known.Ended(); seen.Finished {
				o.NoteEnded(pod.UID)
			} else {
				o.Writers = append(o.Writers, witness.PodOf(keys.Home, known))
			}
		}
		o.Pods = append(o.Pods, seen)
		live = append(live, pod)
	}
	return c.observeGate(ctx, o, live)
}

// usedBy returns the indices of the claims of a move that a pod uses.
func usedBy(pod *corev1.Pod, r *record.Record) (claims []int) {
	for i := range r.Claims {
		if witness.Uses(&pod.Spec, r.Claims[i].Name) {
			claims = append(claims, i)
		}
	}
	return claims
}

func podOf(pod *corev1.Pod) steps.Pod {
	hosted := slices.Contains(pod.Finalizers, keys.RemotePodFinalizer)
	seen := steps.Pod{
		Name: pod.Name, UID: pod.UID, Bound: pod.Spec.NodeName != "", Leaving: pod.DeletionTimestamp != nil,
		Finished: finished(pod), Owned: metav1.GetControllerOf(pod) != nil, Job: jobOf(pod), Node: pod.Spec.NodeName,
		Hosted: hosted, Released: ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 && !hosted,
		Grace: max(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds),
			ptr.Deref(pod.DeletionGracePeriodSeconds, 0)),
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

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// sourceUsers has the direct users of a claim's source.
type sourceUsers struct {
	claim int
	witness.Users
}

// reachableSources returns the sources whose users matter now and whose clusters take
// requests.
func (c *Controller) reachableSources(o *steps.Observation) (found []sourceUsers) {
	if o.Source.Unusable != "" || !record.Before(o.Record.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for i := range o.Record.Claims {
		known := &o.Record.Claims[i]
		if at, why := c.sites.Reach(known.Source.Ref.Cluster); why == "" {
			found = append(found, sourceUsers{claim: i, Users: witness.Users{Volume: witness.Volume{At: at, Ref: known.Source.Ref,
				Virtual: known.Volume, Real: o.Claims[i].Source.Real, Mover: o.Record.MoverName(i, record.Source)}}})
		}
	}
	return found
}

// mayBeAttached says whether attachments of the sources matter: before the stop their pods use them, and they are read
// beside these.
func mayBeAttached(r *record.Record) bool {
	return !record.Before(r.Phase, v1alpha1.MoveQuiesce) || slices.ContainsFunc(r.Claims, func(c record.Claim) bool { return c.Offline })
}

func (c *Controller) noteSourceUsers(o *steps.Observation, found *sourceUsers) {
	found.AddTo(&o.Seen, o.Record.Known)
	seen := &o.Claims[found.claim]
	seen.Attached = found.Attached
	for i := range found.Pods {
		pod := &found.Pods[i]
		seen.Levels = append(seen.Levels, selinuxLevels(&pod.Spec, found.Ref.Name)...)
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			seen.On = append(seen.On, pod.Spec.NodeName)
		}
	}
	for _, pod := range o.Pods {
		if found.At.Home && slices.Contains(pod.Claims, found.claim) && pod.Bound && !pod.Leaving && !pod.Finished && c.witness.IsHome(pod.Node) {
			seen.On = append(seen.On, pod.Node)
		}
	}
}

// observeNodes finds out on which nodes pods use the claims, which pods that used them are gone, and which of the nodes
// ever used are not ready. Users in a source's own cluster have been added before.
func (c *Controller) observeNodes(ctx context.Context, o *steps.Observation, seen witness.Watchers) error {
	r := o.Record
	if !record.Before(r.Phase, v1alpha1.MoveCommit) {
		return nil
	}
	for _, pod := range o.Pods {
		if pod.Bound && !pod.Finished && c.witness.IsHome(pod.Node) {
			o.Users = append(o.Users, proof.Node{Cluster: keys.Home, Name: pod.Node})
		}
	}
	c.witness.AddEnded(&o.Seen, r.Known, seen, claimsOfUsers(r), func(cluster, name string) bool {
		if cluster == keys.Home {
			return strings.HasPrefix(name, record.SecretName(r.UID)+"-")
		}
		return isSourceMover(r, name)
	})
	var err error
	stopping := r.Phase == v1alpha1.MoveQuiesce || r.Phase == v1alpha1.MoveFence
	o.Nodes, err = c.witness.ReadNodes(ctx, proof.NodesToAsk(r.Known, o.Seen, stopping))
	return err
}

// isSourceMover says whether a name is that of a mover of a source.
func isSourceMover(r *record.Record, name string) bool {
	for i := range r.Claims {
		if name == r.MoverName(i, record.Source) {
			return true
		}
	}
	return false
}

// claimsOfUsers are the claims by which pods use the sources of a move.
func claimsOfUsers(r *record.Record) (claims []witness.Claim) {
	for i := range r.Claims {
		ref := r.Claims[i].Source.Ref
		claims = append(claims, witness.Claim{Cluster: keys.Home, Namespace: r.Namespace, Name: r.Claims[i].Name},
			witness.Claim{Cluster: ref.Cluster, Namespace: ref.Namespace, Name: ref.Name})
	}
	return claims
}

// watchRemotes starts the watchers in the remote clusters of both ends. Call it before
// observing them. The move is observed again when a mover changes there, or a pod that uses a
// source.
func (c *Controller) watchRemotes(ctx context.Context, w *activeMove, r *record.Record) {
	if !record.Before(r.Phase, v1alpha1.MoveResume) {
		w.watchers.Close()
		return
	}
	changed := func(pod *home.Pod) { c.remotePodChanged(w.uid, pod) }
	for i := range r.Claims {
		for _, end := range record.Ends {
			ref := r.Claims[i].At(end).Ref
			if at, why := c.sites.Reach(ref.Cluster); why == "" && !at.Home {
				w.watchers.Watch(ctx, at, ref.Cluster, ref.Namespace, changed)
			}
		}
	}
}

// remoteWakePause gathers what changes in a remote cluster while pods stand still: it may send
// anything at any rate.
const remoteWakePause = 20 * time.Millisecond

// remotePodChanged queues a move if a pod in a remote cluster is its mover or uses a source.
func (c *Controller) remotePodChanged(move types.UID, pod *home.Pod) {
	for _, r := range c.Records.those(func(r *record.Record) bool {
		return r.UID == move && (strings.HasPrefix(pod.Name, record.SecretName(move)+"-") ||
			slices.ContainsFunc(r.Claims, func(known record.Claim) bool {
				return slices.Contains(pod.Claims, known.Source.Ref.Key().String())
			}))
	}) {
		pause := wakePause
		if isStopped(r) {
			pause = remoteWakePause
		}
		c.noteChange(move)
		c.queue.AddAfter(keyOf(r), pause)
	}
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
