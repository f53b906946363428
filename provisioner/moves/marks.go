package moves

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/copying"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

const (
	// recheckMarks is when a claim whose marks stay is looked at again.
	recheckMarks = time.Minute
	// marksAgain is when it is told again that they stay.
	marksAgain = time.Hour
	// markWorkers is how many claims are looked at at once: users decide how many there are.
	markWorkers = 2
)

// marks takes off what a move writes on claims, and its gate off pods, where no move holds the claim: a user wrote it, or it comes
// from a backup. Nobody else may, and such a claim could not be deleted, nor its pods start.
type marks struct {
	queue *controller.Queue[types.NamespacedName]
	told  *controller.LastMessage[types.NamespacedName, string]
}

func newMarks() marks {
	return marks{
		queue: controller.NewQueue[types.NamespacedName](controller.QueueConfig{
			Name: "marks", FirstRetry: time.Second, LastRetry: recheckMarks, Timeout: stepTimeout,
		}),
		told: controller.NewLastMessage[types.NamespacedName, string](marksAgain),
	}
}

// syncMarks takes the marks off a claim, and then the gate off its pods, if no move holds it.
func (c *Controller) syncMarks(ctx context.Context, key types.NamespacedName) (after time.Duration, err error) {
	claim, err := c.sites.Home().Claim(ctx, key.Namespace, key.Name)
	if err != nil {
		return 0, err
	}
	if claim != nil {
		m, err := c.observeMarked(ctx, claim)
		if err != nil {
			return 0, err
		}
		if m.Moves {
			return recheckMarks, nil
		}
		if isMarked(claim) {
			if why := decide.WhyKeepMarks(m); why != "" {
				if !decide.ToldElsewhere(m) {
					c.tellMarks(key, claim, why)
				}
				return recheckMarks, nil
			}
			if n := decide.Supersedes(m); n > 0 {
				if err := c.setGeneration(ctx, m.Volume, n); err != nil {
					return 0, err
				}
			}
			if err := c.takeMarksOff(ctx, claim); err != nil {
				return 0, err
			}
		}
	}
	c.marks.told.Forget(key)
	return c.openGates(ctx, key)
}

// tellMarks writes an event about marks that stay.
func (c *Controller) tellMarks(key types.NamespacedName, claim *corev1.PersistentVolumeClaim, why string) {
	why = plain(why)
	if _, news := c.marks.told.Due(key, why, time.Now()); !news {
		return
	}
	c.Recorder.Eventf(claim, corev1.EventTypeWarning, "MoveMarksStay", "the claim is locked as for a move, but there is no such move, as "+
		"after a restore from a backup; it stays locked, because %s: see which data is the newest; to use what the claim has now, let an "+
		"administrator run kubectl annotate pvc %s -n %s %s=true", why, claim.Name, claim.Namespace, keys.Unlock)
}

// observeMarked reads what must be known before the marks are taken off a claim.
func (c *Controller) observeMarked(ctx context.Context, claim *corev1.PersistentVolumeClaim) (m decide.Marked, err error) {
	m.Claim = claim
	if m.Moves, err = c.isMoved(ctx, claim); err != nil || m.Moves || !isMarked(claim) {
		return m, err
	}
	if claim.Spec.VolumeName != "" {
		if m.Volume, err = c.sites.Home().Volume(ctx, claim.Spec.VolumeName); err != nil {
			return m, err
		}
	}
	m.Virtual = m.Volume != nil && m.Volume.Annotations[keys.Backing] != ""
	if name := claim.Spec.StorageClassName; !m.Virtual && name != nil {
		class := c.Class(*name)
		// A volume that is gone may have been one of a class that is gone, too.
		m.Virtual = class != nil && virtualclass.Is(class) || class == nil && m.Volume == nil && claim.Spec.VolumeName == "pvc-"+string(claim.UID)
	}
	if m.Virtual {
		var copies []backing.Copy
		copies, m.Unread, err = c.copiesOf(ctx, claim, m.Volume)
		m.Standing = c.Place.Compare(m.Volume, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID, copies)
		for _, b := range copies {
			if b.Cluster == m.Standing.Current.Cluster && b.Ref().Key() == m.Standing.Current.Key() {
				m.Backing = b.Claim
			}
		}
	}
	return m, err
}

// setGeneration writes the generation of a virtual volume, if its resource version is unchanged.
func (c *Controller) setGeneration(ctx context.Context, volume *corev1.PersistentVolume, n int64) error {
	_, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:"%d"}}}`, volume.UID, volume.ResourceVersion,
			keys.Generation, n), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("mark volume %s as the newest of its claim: %w", volume.Name, err)
	}
	return nil
}

// isMoved says whether a move holds a claim, or a VolumeMove names it that has not ended. Records of this replica are not enough: the
// one that led before may have begun a move since they were loaded.
func (c *Controller) isMoved(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if c.Records.Holds(claim.UID) {
		return true, nil
	}
	holds := func(move types.UID) (has, holds bool, err error) {
		known, err := c.read(ctx, move)
		return known != nil, known != nil && known.record.Holds(), err
	}
	// Users may have written anything.
	if uid := claim.Annotations[keys.Move]; uid != "" && len(validation.NameIsDNSSubdomain(uid, false)) == 0 && len(uid) < 64 {
		if _, held, err := holds(types.UID(uid)); err != nil || held {
			return held, err
		}
	}
	moves, err := c.Moves.In(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list VolumeMoves: %w", err)
	}
	for i := range moves.Items {
		move := &moves.Items[i]
		if !slices.Contains(move.Spec.Claims, claim.Name) || c.Records.isOver(move.UID) {
			continue
		}
		begun, held, err := holds(move.UID)
		if err != nil || held || !begun && move.DeletionTimestamp == nil && !decide.IsFinished(move) {
			return true, err
		}
	}
	return false, nil
}

// copiesOf reads the backing claims of a virtual claim in all clusters; volume is its volume, nil if it has none. unread says why some
// may be missing.
func (c *Controller) copiesOf(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	volume *corev1.PersistentVolume) (copies []backing.Copy, unread string, err error) {
	current, earlier := backing.Ref{}, backing.Ref{}
	if volume != nil {
		current, _ = backing.RefOf(volume)
		if backing.WasRestored(volume, claim.UID) {
			earlier = current
		}
	}
	for _, cluster := range append([]string{keys.Home}, c.Clusters.IDs()...) {
		at, why := c.sites.Reach(cluster)
		object := c.Clusters.Object(cluster)
		if why != "" || !at.Home && object == nil {
			unread = why
			continue
		}
		namespace := c.Place.StorageNamespace
		if !at.Home {
			namespace = c.Place.Of(cluster, object.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
				claim.UID).Namespace
		}
		found, err := c.copiesIn(ctx, at, cluster, namespace, claim.UID, earlier)
		switch {
		case apierrors.IsForbidden(err) && current.Cluster != cluster:
			// Home has no namespace there.
		case err != nil && at.Home:
			return nil, "", err
		case err != nil:
			unread = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
		}
		copies = append(copies, found...)
	}
	return copies, unread, nil
}

// copiesIn reads the backing claims of a virtual claim in one namespace of a cluster, and the one that may still carry the UID of a
// claim before it.
func (c *Controller) copiesIn(ctx context.Context, at site.Site, cluster, namespace string, uid types.UID,
	earlier backing.Ref) (copies []backing.Copy, err error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	list, err := at.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: keys.ClaimUID + "=" + string(uid) + "," + keys.HomeID + "=" + c.Place.HomeID})
	if err != nil {
		return nil, fmt.Errorf("list real claims in namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		b, err := site.FoundOrNil(at, &list.Items[i], nil, "claim "+list.Items[i].Name)
		if err == nil {
			copies = append(copies, backing.Copy{Cluster: cluster, Claim: b})
		}
	}
	if earlier.Cluster != cluster || slices.ContainsFunc(copies, func(c backing.Copy) bool { return c.Ref() == earlier }) {
		return copies, nil
	}
	b, err := at.Claim(ctx, earlier.Namespace, earlier.Name)
	if b != nil && b.UID == earlier.UID {
		copies = append(copies, backing.Copy{Cluster: cluster, Claim: b})
	}
	return copies, err
}

// takeMarksOff takes everything off a claim that a move writes there, if its resource version is unchanged. No move may begin with the
// claim meanwhile: it would take the marks for its own.
func (c *Controller) takeMarksOff(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	c.Records.beginning.Lock()
	defer c.Records.beginning.Unlock()
	if c.Records.Holds(claim.UID) {
		return nil
	}
	if err := c.patchClaim(ctx, claim, unlocked(claim)); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Took the marks of a move off a claim that no move holds", "claim", klog.KObj(claim))
	c.Recorder.Event(claim, corev1.EventTypeNormal, "MoveMarksRemoved", "the claim was locked as for a move, and there is no such move: it "+
		"can be used and deleted again")
	return nil
}

// unlocked is the metadata for patchClaim that takes off a claim what a move writes there.
func unlocked(claim *corev1.PersistentVolumeClaim) map[string]any {
	return map[string]any{
		"finalizers":  withoutMoveFinalizer(claim.Finalizers),
		"annotations": map[string]any{keys.Move: nil, keys.MoveTouched: nil, keys.Unlock: nil, keys.Newer: nil},
		"labels":      map[string]any{keys.Moving: nil},
	}
}

// openGates takes the gate of moves off the pods that use a claim which is not locked, except those that wait for another one.
func (c *Controller) openGates(ctx context.Context, key types.NamespacedName) (after time.Duration, err error) {
	for _, pod := range controller.Indexed[home.Pod](c.Pods, cache.NamespaceIndex, key.Namespace) {
		if !pod.Gated || !slices.Contains(pod.Claims, key.String()) {
			continue
		}
		waits, err := c.waitsForMove(ctx, pod, key)
		switch {
		case err != nil:
			return 0, err
		case waits:
			after = recheckMarks
			continue
		}
		// Forbidden is what uses no claim, or is of the system: its user wrote the gate.
		if err := copying.OpenGate(ctx, c.Client, pod.Namespace, pod.Name, pod.UID); err != nil && !apierrors.IsForbidden(err) {
			return 0, err
		}
	}
	return after, nil
}

// waitsForMove says whether another claim of a pod is locked.
func (c *Controller) waitsForMove(ctx context.Context, pod *home.Pod, except types.NamespacedName) (bool, error) {
	for _, name := range pod.Claims {
		namespace, name, _ := strings.Cut(name, "/")
		if name == except.Name {
			continue
		}
		claim, err := c.sites.Home().Claim(ctx, namespace, name)
		if err != nil || claim != nil && (isMarked(claim) || c.Records.Holds(claim.UID)) {
			return true, err
		}
	}
	return false, nil
}
