package flow

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

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// declineSoon is when a place that refused a size is asked for it again; each time
// twice as late, and at most declineSeldom. No event tells home that a quota there
// has room, or that a class was changed.
const declineSoon, declineSeldom = time.Minute, 10 * time.Minute

// expand changes the size that a backing claim asks for. A refusal is kept for a
// while, and said on the virtual claim by the next step.
func (f *Flow) expand(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	client, err := f.client(step.Cluster)
	if err != nil {
		result.err = err
		return result
	}
	claim := step.Backing.Claim
	patch, err := sizePatch(claim.UID, step.Size)
	if err != nil {
		result.err = err
		return result
	}
	grown, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		f.memory.setDeclined(o.UID, nil, o.Now)
		f.written.set(o.UID, step.Cluster, claim, grown)
		return result
	}
	if declined := sortExpandError(err, step.Cluster, claim, step.Size); declined != nil {
		f.memory.setDeclined(o.UID, declined, o.Now)
		result.again = true
		return result
	}
	f.suspect(step.Cluster)
	result.err = fmt.Errorf("expand backing claim %s/%s in %s to %s: %w", claim.Namespace, claim.Name, step.Cluster, step.Size.String(), err)
	return result
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

// sortExpandError is the one table of answers to a request for another size: a
// refusal, or nil where nobody knows what became of it, or soon it may be
// otherwise.
func sortExpandError(err error, cluster string, claim *corev1.PersistentVolumeClaim, size resource.Quantity) *decide.Declined {
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	detail := ""
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		detail = status.Status().Message
	}
	refuse := func(reason, text string) *decide.Declined {
		return &decide.Declined{Size: size, Reason: reason, Message: text}
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(detail, "must support resize"):
		return refuse("ExpansionNotAllowed", fmt.Sprintf(
			"real storage class %q in %s does not allow expansion: let its administrator set allowVolumeExpansion there, or copy the data to a new, larger claim", class, place))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "exceeded quota"):
		return refuse("QuotaExceeded", fmt.Sprintf("the quota of namespace %s in %s leaves no room for %s: ask for less, or let its administrator raise it: %s", claim.Namespace, place, size.String(), detail))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "cannot patch resource"):
		return refuse("NotAllowed", fmt.Sprintf("%s does not let this cluster change claims in namespace %s: let its administrator bind the rights there (see deploy/remote-volumes, or the NamespaceRequest where the remote agent runs)", place, claim.Namespace))
	case apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not admit %s for real claim %s/%s: %s", place, size.String(), claim.Namespace, claim.Name, detail))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refuse("NotValid", fmt.Sprintf("%s does not accept %s for real claim %s/%s: %s", place, size.String(), claim.Namespace, claim.Name, detail))
	}
	return nil
}

// reflect writes what became of a claim's size on it, if it is still as it was
// seen: conditions are written as a whole.
func (f *Flow) reflect(ctx context.Context, o decide.Observation, step decide.Step) error {
	patch, err := statusPatch(step.On, step.Status)
	if err != nil {
		return err
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(step.On.Namespace).Patch(ctx, step.On.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write size of claim %s/%s: %w", step.On.Namespace, step.On.Name, err)
	}
	if step.On != o.Claim {
		f.written.set(o.UID, keys.Home, step.On, written)
	}
	return nil
}

// statusPatch names only what tells of the size, and of changes of size and attributes.
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

// setDeclined keeps the size that was refused for a claim, and from when on the
// place is asked again; nil drops it.
func (m *memory) setDeclined(claim types.UID, size *decide.Declined, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, again := m.declined[claim]
	delete(m.declined, claim)
	if size == nil {
		return
	}
	kept := declined{Declined: *size, pause: declineSoon}
	if again && before.Size.Equal(size.Size) {
		kept.pause = min(2*before.pause, declineSeldom)
	}
	kept.Until = now.Add(kept.pause)
	m.declined[claim] = kept
}

// declinedBy returns the size that was refused for a claim, nil once it is time
// to ask again.
func (m *memory) declinedBy(claim types.UID, now time.Time) *decide.Declined {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kept, ok := m.declined[claim]; ok && now.Before(kept.Until) {
		return &kept.Declined
	}
	return nil
}

// declined is a size that was refused, and how long the place is not asked again.
type declined struct {
	decide.Declined
	pause time.Duration
}
