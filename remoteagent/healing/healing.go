// Package healing creates a shadow again that somebody deleted, alone or with its namespace, bound
// to the real volume that it had. For each real volume its Controller reads the API server, lets
// policy.Heal choose the next step, and takes it. Read healing.go first; warnings.go has the
// metrics and limits the events.
package healing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// recheckAfter is when a volume that is being healed is reconciled again if no event comes: claims
// of others are not watched.
const recheckAfter = 10 * time.Second

// Config is what the Controller needs.
type Config struct {
	Client   kubernetes.Interface
	Sources  *sources.Sources
	Recorder record.EventRecorder
	Metrics  *Metrics
}

// Controller heals the shadows of all home clusters.
type Controller struct {
	Config
	// queue holds names of real volumes.
	queue    *controller.Queue[string]
	warnings *warnings
}

// New returns a Controller. It does nothing before Watch and Run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: controller.NewQueue[string](controller.QueueConfig{
		Name: "healing", FirstRetry: 50 * time.Millisecond, LastRetry: 15 * time.Second, Timeout: sources.SyncTimeout,
	}), warnings: newWarnings(config.Metrics.unhealed)}
}

// Watch adds the handlers that queue volumes.
func (c *Controller) Watch() error {
	return errors.Join(
		controller.OnEach(c.Sources.Healing, func(v *corev1.PersistentVolume) { c.queue.Add(v.Name) }),
		controller.OnEach(c.Sources.Claims, func(claim *corev1.PersistentVolumeClaim) {
			c.requeue(claim)
			if claim.DeletionTimestamp != nil {
				// The deleted claim may have prevented the healing of others in its namespace.
				c.requeueNamespace(claim.Namespace)
			}
		}),
		controller.OnEach(c.Sources.Namespaces, func(n *corev1.Namespace) { c.requeueNamespace(n.Name) }),
		controller.OnEach(c.Sources.Requests, func(r *remotev1alpha1.NamespaceRequest) { c.requeueNamespace(r.Name) }),
		c.Sources.OnHome(func(home *remotev1alpha1.HomeCluster) {
			for claim := range controller.Each[corev1.PersistentVolumeClaim](c.Sources.Claims) {
				if claim.Labels[keys.HomeID] == home.Name {
					c.requeue(claim)
				}
			}
		}),
	)
}

// requeue queues the volume of a claim if there may be something to heal.
func (c *Controller) requeue(claim *corev1.PersistentVolumeClaim) {
	volume := claim.Spec.VolumeName
	if volume != "" && (claim.DeletionTimestamp != nil || controller.Get[corev1.PersistentVolume](c.Sources.Healing, volume) != nil) {
		c.queue.Add(volume)
	}
}

func (c *Controller) requeueNamespace(name string) {
	for claim := range controller.EachIndexed[corev1.PersistentVolumeClaim](c.Sources.Claims, cache.NamespaceIndex, name) {
		c.requeue(claim)
	}
	for _, volume := range controller.All[corev1.PersistentVolume](c.Sources.Healing) {
		if volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == name {
			c.queue.Add(volume.Name)
		}
	}
}

// Pending reports whether a shadow that is to be created again belongs in a namespace.
func Pending(from *sources.Sources, namespace string) bool {
	return slices.ContainsFunc(controller.All[corev1.PersistentVolume](from.Healing), func(volume *corev1.PersistentVolume) bool {
		return volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == namespace
	})
}

// Run heals until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx, 4, c.sync) }

// sync takes the next step for a real volume. It decides on what it has just read from the API
// server, and each write fails if the object has changed since.
func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	h, err := c.observe(ctx, name)
	if err != nil || h.Volume == nil {
		return 0, err
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", klog.KObj(h.Volume)))
	step := policy.Heal(h)
	if step.Cure != policy.Rest && step.Cure != policy.Abide {
		klog.FromContext(ctx).V(2).Info("Healing a volume", "step", step.Cure)
		err := c.act(ctx, h, step.Cure)
		c.Metrics.step(step.Cure, err)
		if err != nil {
			return 0, c.refused(h, err)
		}
	}
	c.warn(h, step.Warning)
	if step.Cure == policy.Rest && step.Warning == nil {
		return 0, nil
	}
	return recheckAfter, nil
}

// observe reads the volume, and the claim that it names, from the API server.
func (c *Controller) observe(ctx context.Context, name string) (policy.Healing, error) {
	var h policy.Healing
	volume, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.warnings.clear(name)
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("get volume %s: %w", name, err)
	}
	record, unreadable := policy.ReadRecord(volume)
	if unreadable != nil {
		return policy.Healing{Volume: volume, Unreadable: unreadable}, nil //nolint:nilerr // it is reported in an event: a retry would not help
	}
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return policy.Healing{Volume: volume, Record: record}, nil
	}
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		claim = nil
	} else if err != nil {
		return h, fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, name, err)
	}
	h = policy.Healing{Volume: volume, Record: record, Claim: claim, Namespace: controller.Get[corev1.Namespace](c.Sources.Namespaces,
		ref.Namespace)}
	home := ""
	switch {
	case record != nil:
		home = record.Labels[keys.HomeID]
	case claim != nil:
		home = claim.Labels[keys.HomeID]
	}
	h.Refusal = c.permit(home, ref.Namespace, h.Namespace, claim == nil || claim.UID != ref.UID)
	return h, nil
}

// permit says why a home cluster's shadow must not be created again in a namespace, nil if it may
// be; gone says that no claim has its volume.
func (c *Controller) permit(home, name string, namespace *corev1.Namespace, gone bool) *policy.Refusal {
	count, stuck := 0, ""
	for _, n := range controller.All[corev1.Namespace](c.Sources.Namespaces) {
		if n.Labels[keys.HomeID] == home {
			count++
		}
	}
	if namespace != nil && namespace.DeletionTimestamp != nil {
		for claim := range controller.EachIndexed[corev1.PersistentVolumeClaim](c.Sources.Claims, cache.NamespaceIndex, name) {
			if policy.BlocksNamespace(claim) {
				stuck = claim.Name
			}
		}
	}
	return policy.PermitRebuild(policy.Rebuilding{
		Home:      controller.Get[remotev1alpha1.HomeCluster](c.Sources.Homes, home),
		Request:   controller.Get[remotev1alpha1.NamespaceRequest](c.Sources.Requests, policy.TenantNamespace(home)+"/"+name),
		Namespace: namespace, Count: count, BlockedBy: stuck, Gone: gone,
	})
}

// act takes one step.
func (c *Controller) act(ctx context.Context, h policy.Healing, cure policy.Cure) error {
	switch cure {
	case policy.Begin:
		return c.begin(ctx, h)
	case policy.Insist:
		return c.patchVolume(ctx, h.Volume, nil, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case policy.LetGo:
		left := slices.DeleteFunc(slices.Clone(h.Claim.Finalizers), func(f string) bool { return f == keys.BackingFinalizer })
		return c.patchClaim(ctx, h.Claim, map[string]any{"finalizers": left})
	case policy.Rebuild:
		shadow := h.Record.Shadow(h.Volume)
		_, err := c.Client.CoreV1().PersistentVolumeClaims(shadow.Namespace).Create(ctx, shadow, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make claim %s/%s anew: %w", shadow.Namespace, shadow.Name, err)
		}
		return nil
	case policy.Give:
		return c.patchVolume(ctx, h.Volume, nil, map[string]any{"claimRef": map[string]any{"uid": h.Claim.UID, "resourceVersion": nil}})
	case policy.Protect:
		return c.patchClaim(ctx, h.Claim, map[string]any{"finalizers": append(slices.Clone(h.Claim.Finalizers), keys.BackingFinalizer)})
	case policy.Touch:
		return c.patchClaim(ctx, h.Claim, map[string]any{"annotations": map[string]any{keys.Healing: nil}})
	case policy.End, policy.Undo:
		err := c.patchVolume(ctx, h.Volume, map[string]any{
			"labels": map[string]any{keys.Healing: nil}, "annotations": map[string]any{keys.HealingRecord: nil},
		}, map[string]any{"persistentVolumeReclaimPolicy": h.Record.ReclaimPolicy})
		if err == nil && cure == policy.End {
			c.Metrics.healed.Inc()
			c.Recorder.Eventf(h.Claim, corev1.EventTypeNormal, "Healed",
				"Somebody deleted this claim; it was made anew and has its volume %s with all data.", h.Volume.Name)
		}
		return err
	default:
		return fmt.Errorf("no such step: %s", cure)
	}
}

func (c *Controller) begin(ctx context.Context, h policy.Healing) error {
	record, err := policy.RecordOf(h.Volume, h.Claim).Encode()
	if err != nil {
		return err
	}
	err = c.patchVolume(ctx, h.Volume, map[string]any{
		"labels": map[string]any{keys.Healing: h.Claim.Labels[keys.HomeID]}, "annotations": map[string]any{keys.HealingRecord: record},
	}, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	if err == nil {
		c.Recorder.Event(h.Claim, corev1.EventTypeNormal, "Healing", "Somebody deleted this claim, whose volume is in use: the claim is made "+
			"anew once nothing uses it. To delete it with its data, delete the claim at home.")
	}
	return err
}

// patchVolume changes a volume if it has not changed since it was read.
func (c *Controller) patchVolume(ctx context.Context, volume *corev1.PersistentVolume, metadata, spec map[string]any) error {
	patch, err := encodePatch(volume, metadata, spec)
	if err != nil {
		return err
	}
	if _, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", volume.Name, err)
	}
	return nil
}

// patchClaim changes a claim if it has not changed since it was read.
func (c *Controller) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, metadata map[string]any) error {
	patch, err := encodePatch(claim, metadata, nil)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func encodePatch(object metav1.Object, metadata, spec map[string]any) ([]byte, error) {
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

// refused warns of a step that the API server does not allow, for example because of a quota.
func (c *Controller) refused(h policy.Healing, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		c.warn(h,
			&policy.Refusal{Reason: "NotHealed", Message: fmt.Sprintf("The claim of this volume cannot be made anew, which is tried again: %v.",
				err)})
	}
	return err
}

// warn counts a warning for the owner of this cluster and records it in an event: on the claim, or
// on the volume if the claim is deleted or its namespace accepts no events any more.
func (c *Controller) warn(h policy.Healing, what *policy.Refusal) {
	if what == nil {
		c.warnings.clear(h.Volume.Name)
		return
	}
	if !c.warnings.isNew(h.Volume.Name, *what, time.Now()) {
		return
	}
	going := h.Namespace == nil || h.Namespace.DeletionTimestamp != nil
	if h.Claim != nil && !going && h.Volume.Spec.ClaimRef != nil && h.Claim.UID == h.Volume.Spec.ClaimRef.UID {
		c.Recorder.Event(h.Claim, corev1.EventTypeWarning, what.Reason, what.Message)
		return
	}
	c.Recorder.Event(h.Volume, corev1.EventTypeWarning, what.Reason, what.Message)
}
