package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// attributesAgain is when a change of attributes is tried again that the cluster
// refused, or whose class it does not have.
const attributesAgain = time.Minute

// attributes says why a cluster cannot give a volume of a driver the attributes
// that a claim asks for; nil if it can, or none are asked for. driver is empty if
// it is not known.
func (f *Flow) attributes(ctx context.Context, client kubernetes.Interface, cluster string, claim *corev1.PersistentVolumeClaim, driver string) (*decide.Refusal, error) {
	name := backing.Attributes(claim)
	if name == "" {
		return nil, nil
	}
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	refuse := func(text string, details ...any) (*decide.Refusal, error) {
		return &decide.Refusal{Cluster: cluster, Reason: "NoAttributesClass", Message: fmt.Sprintf(text, details...)}, nil
	}
	class, err := client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return refuse("%s has no VolumeAttributesClass %q: create it there, or choose another for the claim", place, name)
	case apierrors.IsForbidden(err):
		return refuse("%s does not let its VolumeAttributesClasses be read, so whether it has %q is not known: apply Lodestone's manifests there anew", place, name)
	case err != nil:
		return nil, fmt.Errorf("look for VolumeAttributesClass %s in %s: %w", name, cluster, err)
	case driver != "" && class.DriverName != driver:
		return refuse("VolumeAttributesClass %q in %s is for driver %q, but the volume's is %q: choose another for the claim", name, place, class.DriverName, driver)
	}
	return nil, nil
}

// modify has the attributes of a backing claim changed to those that its virtual
// claim asks for.
func (f *Flow) modify(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	client, err := f.client(step.Cluster)
	if err != nil {
		result.err = err
		return result
	}
	driver := ""
	if v := step.Backing.Volume; v != nil && v.Spec.CSI != nil {
		driver = v.Spec.CSI.Driver
	}
	refused, err := f.attributes(ctx, client, step.Cluster, o.Claim, driver)
	switch {
	case err != nil:
		f.suspect(step.Cluster)
		result.err = err
	case refused != nil:
		return f.ungiven(o, refused, result)
	default:
		var name any // nil takes a change back that never came about
		if want := backing.Attributes(o.Claim); want != "" {
			name = want
		}
		result.err = f.patchBacking(ctx, o.UID, step, map[string]any{"spec": map[string]any{"volumeAttributesClassName": name}})
		if refused := sortAttributesError(result.err, step); refused != nil {
			result.err = nil
			return f.ungiven(o, refused, result)
		}
		if result.err == nil {
			f.memory.setUngiven(o.UID, nil)
		}
	}
	return result
}

// ungiven keeps for a while that attributes were refused. The next step says so on
// the virtual claim.
func (f *Flow) ungiven(o decide.Observation, refused *decide.Refusal, result outcome) outcome {
	f.memory.setUngiven(o.UID, &decide.Ungiven{
		Attributes: backing.Attributes(o.Claim), Reason: refused.Reason, Message: refused.Message, Until: o.Now.Add(attributesAgain),
	})
	result.again = true
	return result
}

// sortAttributesError tells a refusal of other attributes from what may soon be
// otherwise: nil.
func sortAttributesError(err error, step decide.Step) *decide.Refusal {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil
	}
	place := "cluster " + step.Cluster
	if step.Cluster == keys.Home {
		place = "the home cluster"
	}
	return &decide.Refusal{Cluster: step.Cluster, Reason: "AttributesRefused", Message: fmt.Sprintf(
		"%s does not let real claim %s/%s have other attributes: %v; choose another VolumeAttributesClass, or have it allowed there", place, step.Backing.Claim.Namespace, step.Backing.Claim.Name, err)}
}

// carry brings labels and annotations of a backing claim in step. Only what was
// written is followed by a pause: a write that fails is tried again by the queue,
// ever more seldom, which also tells of it.
func (f *Flow) carry(ctx context.Context, o decide.Observation, step decide.Step) error {
	err := f.patchBacking(ctx, o.UID, step, map[string]any{
		"metadata": map[string]any{"labels": step.Labels, "annotations": step.Annotations},
	})
	if err == nil {
		f.memory.setCarried(o.UID, o.Now)
	}
	return err
}

// patchBacking changes the backing claim of a step, of just its UID.
func (f *Flow) patchBacking(ctx context.Context, uid types.UID, step decide.Step, change map[string]any) error {
	client, err := f.client(step.Cluster)
	if err != nil {
		return err
	}
	b := step.Backing.Claim
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
		f.suspect(step.Cluster)
		return fmt.Errorf("bring backing claim %s/%s in %s in step: %w", b.Namespace, b.Name, step.Cluster, err)
	}
	f.written.set(uid, step.Cluster, b, patched)
	return nil
}

// tellAttributes writes on a virtual claim that its remote volume has the
// attributes that it asks for, as the driver does for other claims.
func (f *Flow) tellAttributes(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"currentVolumeAttributesClassName": backing.Attributes(claim)},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("tell attributes on claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
