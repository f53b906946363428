package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// tellAgain is how long the same message about a claim is not repeated.
const tellAgain = 5 * time.Minute

// maxText is the most, in bytes, that one event says.
const maxText = 2048

// patchClaim changes annotations of a virtual claim if it is still as it was
// seen; nil removes one.
func (f *Flow) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, changes map[string]any) error {
	patch, err := annotationsPatch(claim.UID, claim.ResourceVersion, changes)
	if err != nil {
		return err
	}
	patched, err := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotate claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	// A node that was just taken off must not get another backing claim.
	f.written.set(claim.UID, virtualClaim, claim, patched)
	return nil
}

// wake drops refusals that no longer hold and touches the claim, which makes
// kube-scheduler look again at the pods that wait for it.
func (f *Flow) wake(ctx context.Context, o decide.Observation) error {
	hold := slices.DeleteFunc(refusal.Active(refusal.Decode(o.Claim.Annotations[keys.Refused]), o.Now), func(r refusal.Refusal) bool {
		return decide.Outlived(o, r)
	})
	encoded, err := refusal.Encode(hold)
	if err != nil {
		return err
	}
	changes := map[string]any{keys.Refused: nil, keys.ClusterChanged: o.Now.UTC().Format(time.RFC3339Nano)}
	if encoded != "" {
		changes[keys.Refused] = encoded
	}
	// Before the write: what changes meanwhile is worth another one.
	f.memory.clearChanged(o.UID, o.Now)
	if err := f.patchClaim(ctx, o.Claim, changes); err != nil {
		if o.Changed != "" {
			f.memory.setChanged(o.UID, o.Changed, o.Now)
		}
		return err
	}
	return nil
}

func (f *Flow) patchVolume(ctx context.Context, name string, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", name, err)
	}
	return nil
}

// annotationsPatch returns the patch that sets annotations of just the object
// with this UID and, if given, this resource version.
func annotationsPatch(uid types.UID, version string, changes map[string]any) ([]byte, error) {
	metadata := map[string]any{"uid": uid, "annotations": changes}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	return patch, nil
}

// suspect has a cluster looked at after a request to it failed.
func (f *Flow) suspect(cluster string) {
	if cluster == keys.Home {
		return
	}
	if c := f.Clusters.Get(cluster); c != nil {
		c.Nudge()
	}
}

// wakeSiblings has the other claims of the same pod looked at: they wait for
// this one, or must now go elsewhere with it.
func (f *Flow) wakeSiblings(o decide.Observation) {
	if o.Claim == nil {
		return
	}
	// Not only its own siblings: one that other pods use too has none, yet they
	// wait for it.
	self := o.Claim.Namespace + "/" + o.Claim.Name
	for _, pod := range f.Sources.podsOf(self) {
		for _, name := range pod.Claims {
			if claim := one[corev1.PersistentVolumeClaim](f.Sources.Claims, name); name != self && claim != nil && claim.Spec.VolumeName == "" {
				f.Enqueue(claim.UID)
			}
		}
	}
}

// tell writes an event where the user looks: on the claim, or on the volume when
// the claim is gone. The same thing is not told again for a while.
func (f *Flow) tell(o decide.Observation, m *decide.Message) {
	if m == nil {
		return
	}
	// It may hold what another cluster said, at any length.
	text := strings.ToValidUTF8(m.Text[:min(len(m.Text), maxText)], "")
	if !f.memory.worthTelling(o.UID, m.Reason+" "+text, o.Now) {
		return
	}
	kind := corev1.EventTypeNormal
	if m.Warning {
		kind = corev1.EventTypeWarning
	}
	// The claim of a released volume is gone, even if it is still seen.
	released := o.Volume != nil && o.Volume.Status.Phase == corev1.VolumeReleased
	switch {
	case o.Claim != nil && !released:
		f.Recorder.Event(o.Claim, kind, m.Reason, text)
	case o.Volume != nil:
		f.Recorder.Event(o.Volume, kind, m.Reason, text)
	}
}

// tellFailure tells of a step that keeps failing. What goes away by itself, as
// a conflict does, is not worth an event.
func (f *Flow) tellFailure(o decide.Observation, step decide.Step, err error) {
	if f.queue.NumRequeues(o.UID) < 5 || errors.Is(err, errChanged) {
		return
	}
	advice := ""
	if step.Cluster != keys.Home && apierrors.IsForbidden(err) {
		advice = fmt.Sprintf(", and needs home's rights in that namespace: where the remote agent runs, its NamespaceRequest says what is wrong, otherwise bind those of deploy/remote-volumes; if it is being deleted and cannot be given them, its administrator must take finalizer %s off the claim", keys.BackingFinalizer)
	}
	f.tell(o, &decide.Message{Warning: true, Reason: string(step.Verb) + "Failed", Text: fmt.Sprintf("%v; it is tried again%s", err, advice)})
}
