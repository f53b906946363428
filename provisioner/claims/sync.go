package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// sizeAgainSoon is when a refused size is requested again; the interval doubles each time,
// up to sizeAgainSeldom. Home gets no event when a quota in the cluster has room again or a
// class changed.
const sizeAgainSoon, sizeAgainSeldom = time.Minute, 10 * time.Minute

// expandBacking changes the requested size of a backing claim. A refusal is recorded for a
// while, and the next step writes it on the virtual claim.
func (f *Controller) expandBacking(ctx context.Context, o steps.Observation, a steps.ExpandBacking) outcome {
	cluster, claim := a.Backing.Cluster, a.Backing.Claim
	client, err := f.client(cluster)
	if err != nil {
		return outcome{err: err}
	}
	patch, err := sizePatch(claim.UID, a.Size)
	if err != nil {
		return outcome{err: err}
	}
	grown, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err == nil {
		f.memory.setRefusedSize(o.UID, nil, o.Now)
		f.memory.setWritten(o.UID, cluster, claim, grown)
		return outcome{}
	}
	if declined := sortExpandError(err, cluster, claim, a.Size); declined != nil {
		f.memory.setRefusedSize(o.UID, declined, o.Now)
		return outcome{again: true}
	}
	f.probe(cluster)
	return outcome{err: fmt.Errorf("expand backing claim %s/%s in %s to %s: %w", claim.Namespace, claim.Name, cluster, a.Size.String(), err)}
}

func sizePatch(uid types.UID, size resource.Quantity) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{string(corev1.ResourceStorage): size.String()}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode size: %w", err)
	}
	return patch, nil
}

// sortExpandError is the table of all answers to a request for another size. It returns a
// refusal, or nil if the outcome is unknown or may soon be different.
func sortExpandError(err error, cluster string, claim *corev1.PersistentVolumeClaim, size resource.Quantity) *steps.RefusedSize {
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	detail := ""
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		detail = status.Status().Message
	}
	refuse := func(reason, text string) *steps.RefusedSize {
		return &steps.RefusedSize{Size: size, Reason: reason, Message: text}
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(detail, "must support resize"):
		return refuse("ExpansionNotAllowed", fmt.Sprintf(
			"real storage class %q in %s does not allow expansion: let its administrator set allowVolumeExpansion there, or copy the data to a "+
				"new, larger claim", class, place))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "exceeded quota"):
		return refuse("QuotaExceeded", fmt.Sprintf("the quota of namespace %s in %s leaves no room for %s: ask for less, or let its "+
			"administrator raise it: %s", claim.Namespace, place, size.String(), detail))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "cannot patch resource"):
		return refuse("NotAllowed", fmt.Sprintf("%s does not let this cluster change claims in namespace %s: let its administrator bind the "+
			"rights there (see deploy/remote-volumes, or the NamespaceRequest where the remote agent runs)", place, claim.Namespace))
	case apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not admit %s for real claim %s/%s: %s", place, size.String(), claim.Namespace,
			claim.Name, detail))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refuse("NotValid", fmt.Sprintf("%s does not accept %s for real claim %s/%s: %s", place, size.String(), claim.Namespace, claim.Name,
			detail))
	}
	return nil
}

// refusedSize is a size that was refused, and until when it is not requested again.
type refusedSize struct {
	steps.RefusedSize
	pause time.Duration
}

// setRefusedSize records the size that was refused for a claim and when it may be requested
// again; nil drops it.
func (m *memory) setRefusedSize(claim types.UID, size *steps.RefusedSize, now time.Time) {
	m.update(claim, func(r *remembered) {
		before := r.refusedSize
		if r.refusedSize = nil; size == nil {
			return
		}
		kept := refusedSize{RefusedSize: *size, pause: sizeAgainSoon}
		if before != nil && before.Size.Equal(size.Size) {
			kept.pause = min(2*before.pause, sizeAgainSeldom)
		}
		kept.Until = now.Add(kept.pause)
		r.refusedSize = &kept
	})
}

// updateClaimStatus writes size and conditions on a claim if its resource version is
// unchanged: conditions are written as a whole.
func (f *Controller) updateClaimStatus(ctx context.Context, o steps.Observation, a steps.UpdateClaimStatus) error {
	patch, err := statusPatch(a.On, a.Status)
	if err != nil {
		return err
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(a.On.Namespace).Patch(ctx, a.On.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write size of claim %s/%s: %w", a.On.Namespace, a.On.Name, err)
	}
	if a.On != o.Claim {
		f.memory.setWritten(o.UID, keys.Home, a.On, written)
	}
	return nil
}

// statusPatch contains only the size, and the conditions and states of changes of size and
// attributes.
func statusPatch(on *corev1.PersistentVolumeClaim, status *corev1.PersistentVolumeClaimStatus) ([]byte, error) {
	storage := string(corev1.ResourceStorage)
	change := map[string]any{"conditions": status.Conditions}
	for field, list := range map[string]corev1.ResourceList{"capacity": status.Capacity, "allocatedResources": status.AllocatedResources} {
		change[field] = map[string]any{storage: nil}
		if size, ok := list[corev1.ResourceStorage]; ok {
			change[field] = map[string]any{storage: size.String()}
		}
	}
	change["allocatedResourceStatuses"] = map[string]any{storage: nil}
	if state, ok := status.AllocatedResourceStatuses[corev1.ResourceStorage]; ok {
		change["allocatedResourceStatuses"] = map[string]any{storage: state}
	}
	if state := status.ModifyVolumeStatus; state != nil {
		change["modifyVolumeStatus"] = state
	} else if on.Status.ModifyVolumeStatus != nil {
		change["modifyVolumeStatus"] = nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": on.UID, "resourceVersion": on.ResourceVersion},
		"status":   change,
	})
	if err != nil {
		return nil, fmt.Errorf("encode size: %w", err)
	}
	return patch, nil
}

// attributesAgain is when a change of attributes is tried again that the cluster refused or
// whose class it does not have.
const attributesAgain = time.Minute

// modifyBacking changes the attributes class of a backing claim to that of its virtual
// claim.
func (f *Controller) modifyBacking(ctx context.Context, o steps.Observation, a steps.ModifyBacking) outcome {
	client, err := f.client(a.Backing.Cluster)
	if err != nil {
		return outcome{err: err}
	}
	driver := ""
	if v := a.Backing.Volume; v != nil && v.Spec.CSI != nil {
		driver = v.Spec.CSI.Driver
	}
	refused, err := f.checkAttributes(ctx, client, a.Backing.Cluster, o.Claim, driver)
	switch {
	case err != nil:
		f.probe(a.Backing.Cluster)
		return outcome{err: err}
	case refused != nil:
		return f.refuseAttributes(o, refused)
	}
	// nil undoes a change that never took effect.
	err = f.patchBacking(ctx, o.UID, a.Backing,
		map[string]any{"spec": map[string]any{"volumeAttributesClassName": orNil(backing.Attributes(o.Claim))}})
	if refused := sortAttributesError(err, a.Backing); refused != nil {
		return f.refuseAttributes(o, refused)
	}
	if err == nil {
		f.memory.setRefusedAttributes(o.UID, nil)
	}
	return outcome{err: err}
}

// refuseAttributes records a refusal of attributes for a while. The next step writes it on
// the virtual claim.
func (f *Controller) refuseAttributes(o steps.Observation, refused *steps.Refusal) outcome {
	f.memory.setRefusedAttributes(o.UID, &steps.RefusedAttributes{
		Attributes: backing.Attributes(o.Claim), Reason: refused.Reason, Message: refused.Message, Until: o.Now.Add(attributesAgain),
	})
	return outcome{again: true}
}

// setRefusedAttributes records attributes that were refused; nil drops them.
func (m *memory) setRefusedAttributes(claim types.UID, refused *steps.RefusedAttributes) {
	m.update(claim, func(r *remembered) { r.refusedAttributes = refused })
}

// sortAttributesError returns a refusal of attributes, or nil if the outcome may soon be
// different.
func sortAttributesError(err error, of steps.Backing) *steps.Refusal {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil
	}
	place := "cluster " + of.Cluster
	if of.Cluster == keys.Home {
		place = "the home cluster"
	}
	return &steps.Refusal{Cluster: of.Cluster, Reason: "AttributesRefused", Message: fmt.Sprintf(
		"%s does not let real claim %s/%s have other attributes: %v; choose another VolumeAttributesClass, or have it allowed there", place,
		of.Claim.Namespace, of.Claim.Name, err)}
}

// syncMetadata updates labels and annotations of a backing claim. Only a successful write
// is followed by a pause; a failed one is retried by the queue with increasing delay, which
// also reports it.
func (f *Controller) syncMetadata(ctx context.Context, o steps.Observation, a steps.SyncMetadata) error {
	metadata := map[string]any{}
	for key, changes := range map[string]map[string]any{"labels": a.Labels, "annotations": a.Annotations} {
		// As null it would remove all there are.
		if len(changes) > 0 {
			metadata[key] = changes
		}
	}
	err := f.patchBacking(ctx, o.UID, a.Backing, map[string]any{"metadata": metadata})
	if err == nil {
		f.memory.update(o.UID, func(r *remembered) { r.synced = &o.Now })
	}
	return err
}

// patchBacking changes the backing claim with this UID.
func (f *Controller) patchBacking(ctx context.Context, uid types.UID, of steps.Backing, change map[string]any) error {
	client, err := f.client(of.Cluster)
	if err != nil {
		return err
	}
	b := of.Claim
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"] = b.UID
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	patched, err := client.CoreV1().PersistentVolumeClaims(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		f.probe(of.Cluster)
		return fmt.Errorf("bring backing claim %s/%s in %s in step: %w", b.Namespace, b.Name, of.Cluster, err)
	}
	f.memory.setWritten(uid, of.Cluster, b, patched)
	return nil
}

// writeCurrentAttributes writes on a virtual claim that its remote volume has the
// attributes that it requests, as a driver does for other claims.
func (f *Controller) writeCurrentAttributes(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"currentVolumeAttributesClassName": backing.Attributes(claim)},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("tell attributes on claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
