package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Healing is all that the next step depends on when a shadow that somebody deleted is replaced by a
// new one that is bound to the same real volume.
type Healing struct {
	Volume *corev1.PersistentVolume
	// Record is the record on the volume, nil while nothing is being healed. Unreadable says why it
	// cannot be read, nil if it can.
	Record     *Record
	Unreadable error
	// Claim is the claim that the volume names, whoever made it; nil if it does not exist.
	Claim *corev1.PersistentVolumeClaim
	// Namespace is the namespace of that claim; nil if it does not exist.
	Namespace *corev1.Namespace
	// Refusal says why the shadow must not be created again, nil if it may be.
	Refusal *Refusal
}

// Cure is a step of healing. At any time the real volume is bound to a shadow or has the policy
// Retain, or both, and at most one claim can be bound to it.
type Cure string

// The cures, in their order.
const (
	// Rest: there is nothing to heal, or it must not be.
	Rest Cure = "Rest"
	// Abide: something must happen first.
	Abide Cure = "Abide"
	// Begin records the shadow on the volume and sets the volume's policy to Retain; one write.
	// Insist sets that policy again after somebody changed it.
	Begin  Cure = "Begin"
	Insist Cure = "Insist"
	// LetGo removes our finalizer from the deleted shadow.
	LetGo Cure = "LetGo"
	// Rebuild creates the new shadow. It names the volume, which still names the deleted one.
	Rebuild Cure = "Rebuild"
	// Give makes the volume name the new shadow.
	Give Cure = "Give"
	// Protect adds our finalizer to the new shadow again after somebody removed it.
	Protect Cure = "Protect"
	// Touch writes the new shadow so that Kubernetes binds it now; otherwise that takes 15 s.
	Touch Cure = "Touch"
	// End sets the volume's own policy again and removes the record; one write. Undo does the same
	// if healing is no longer wanted and no finalizer was removed.
	End  Cure = "End"
	Undo Cure = "Undo"
)

// HealStep is the next step of healing. Warning is a message for the owner of the cluster, nil for
// none.
type HealStep struct {
	Cure    Cure
	Warning *Refusal
}

// Heal decides the next step for a real volume. After each step it is called again.
func Heal(h Healing) HealStep {
	if h.Unreadable != nil {
		return HealStep{Abide, &Refusal{reasonNotHealed, h.Unreadable.Error() + "; correct it, or remove it and label " + keys.Healing +
			", and set the volume's reclaim policy by hand."}}
	}
	if h.Record == nil {
		switch {
		case !deletedInUse(h):
			return HealStep{Cure: Rest}
		case h.Claim.Labels[keys.ClaimUID] == "":
			return HealStep{Rest, &Refusal{reasonNotHealed, "The claim is not made anew, since it says not of which claim at home it is, as after " +
				"an import that stopped: give its volume " + h.Volume.Name +
				" the reclaim policy Retain, take the claim's finalizer " + keys.BackingFinalizer + " off, make the claim anew with its volume, and " +
				"import it again; or take just the finalizer off if its data is not needed."}}
		case h.Refusal != nil:
			return HealStep{Cure: Rest, Warning: h.Refusal}
		}
		return HealStep{Cure: Begin}
	}
	ref, claim := h.Volume.Spec.ClaimRef, h.Claim
	switch {
	case h.Volume.DeletionTimestamp != nil || ref == nil:
		return HealStep{Abide, &Refusal{reasonNotHealed, "The volume is being deleted, or its claimRef was removed: its claim is not made " +
			"anew. Make a new volume of the same storage by hand, or take label " + keys.Healing + " and annotation " + keys.HealingRecord +
			" off."}}
	case claim != nil && !h.Record.is(claim, h.Volume):
		return HealStep{Abide,
			&Refusal{"NameTaken", fmt.Sprintf("Another claim has the name %s/%s: delete it, or the claim of this volume cannot be made anew.",
				ref.Namespace, ref.Name)}}
	case claim != nil && claim.UID == ref.UID && claim.DeletionTimestamp == nil:
		return finish(h)
	case h.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		return HealStep{Cure: Insist}
	case claim == nil:
		return permitted(h, Rebuild)
	case claim.DeletionTimestamp == nil:
		return permitted(h, Give)
	case !hasFinalizer(claim):
		return HealStep{Cure: Abide} // a pod uses it
	case h.Refusal != nil && claim.UID == ref.UID:
		return HealStep{Undo, h.Refusal}
	}
	return HealStep{Cure: LetGo}
}

// deletedInUse reports whether somebody deleted the shadow of a volume who may not have known what
// that means. Home itself removes our finalizer before it deletes a shadow. A claim outside the
// namespaces of home clusters is not their shadow, but may be a twin.
func deletedInUse(h Healing) bool {
	ref := h.Volume.Spec.ClaimRef
	return h.Claim != nil && ref != nil && h.Claim.UID == ref.UID && h.Claim.DeletionTimestamp != nil && h.Volume.DeletionTimestamp == nil &&
		h.Claim.Spec.VolumeName == h.Volume.Name && keepsVolume(h.Claim) && h.Namespace != nil && h.Namespace.Labels[keys.HomeID] != ""
}

// permitted returns a step that creates a claim again or makes the volume name it, or says why not:
// only in the namespace of the home cluster that the claim belongs to, and only without a refusal.
// Anybody who may create claims can create one that looks like the shadow.
func permitted(h Healing, cure Cure) HealStep {
	switch {
	case h.Refusal != nil:
		return HealStep{Abide, h.Refusal}
	case h.Namespace == nil || h.Namespace.DeletionTimestamp != nil:
		return HealStep{Cure: Abide} // the namespace is created again
	case h.Namespace.Labels[keys.HomeID] != h.Record.Labels[keys.HomeID]:
		return HealStep{Abide,
			&Refusal{reasonNotHealed, fmt.Sprintf("The claim is not made anew, since namespace %s was not made for home cluster %s.",
				h.Namespace.Name, h.Record.Labels[keys.HomeID])}}
	}
	return HealStep{Cure: cure}
}

// finish decides for a volume that names the new shadow.
func finish(h Healing) HealStep {
	bound := h.Claim.Status.Phase == corev1.ClaimBound
	_, fresh := h.Claim.Annotations[keys.Healing]
	switch {
	case !hasFinalizer(h.Claim):
		return HealStep{Cure: Protect}
	case fresh && (bound || h.Volume.Status.Phase == corev1.VolumeBound):
		return HealStep{Cure: Touch}
	case bound && !fresh:
		return HealStep{Cure: End}
	}
	return HealStep{Cure: Abide}
}

// Healable reports whether a claim is a shadow that could be created again: it has a real volume,
// and a virtual volume refers or referred to it.
func Healable(claim *corev1.PersistentVolumeClaim) bool {
	return keepsVolume(claim) && claim.Labels[keys.ClaimUID] != ""
}

// BlocksNamespace reports whether a claim blocks the deletion of its namespace and could not be
// created again.
func BlocksNamespace(claim *corev1.PersistentVolumeClaim) bool {
	return hasFinalizer(claim) && !Healable(claim)
}

// keepsVolume reports whether a claim belongs to a home cluster and has a real volume.
func keepsVolume(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[keys.HomeID] != "" && hasFinalizer(claim) && claim.Annotations[keys.Unpublished] == "" &&
		claim.Status.Phase == corev1.ClaimBound
}

func hasFinalizer(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, keys.BackingFinalizer)
}

// Rebuilding is what decides whether a shadow may be created again. Objects that do not exist are
// nil.
type Rebuilding struct {
	Home      *remotev1alpha1.HomeCluster
	Request   *remotev1alpha1.NamespaceRequest
	Namespace *corev1.Namespace
	// Count is how many namespaces the home cluster has.
	Count int
	// BlockedBy is the name of a claim that blocks the deletion of the namespace, if that is being
	// deleted.
	BlockedBy string
	// Gone says that no claim has the volume any more.
	Gone bool
}

// PermitRebuild says why a shadow must not be created again, nil if it may be.
func PermitRebuild(m Rebuilding) *Refusal {
	home, request, namespace := m.Home, m.Request, m.Namespace
	instead := "take its finalizer " + keys.BackingFinalizer + " off if its data is not needed."
	if m.Gone {
		instead = "to leave it so, take label " + keys.Healing + " and annotation " + keys.HealingRecord +
			" off its volume, and give that the reclaim policy that it is to have: with Delete it is deleted at once with its data."
	}
	switch {
	case home == nil || home.DeletionTimestamp != nil:
		return &Refusal{reasonNotHealed, "The claim is not made anew, since its home cluster is served no longer: " + instead}
	case request == nil || request.DeletionTimestamp != nil:
		return &Refusal{reasonNotHealed, "The claim is not made anew, since its home cluster asks for the namespace no longer: " + instead}
	case namespace == nil:
		return Grant(home, request, nil, m.Count)
	case namespace.DeletionTimestamp == nil:
		return grantExisting(home, request, namespace)
	case !MadeForHome(namespace, home) || namespace.Annotations[keys.MadeFor] != MadeFor(home, request):
		return &Refusal{reasonNotHealed, "The claim is not made anew, since its namespace was not made for home cluster " + home.Name + "."}
	case m.BlockedBy != "":
		return &Refusal{reasonNotHealed, fmt.Sprintf("The claim is not made anew yet, since its namespace is being deleted and claim %s, which "+
			"has no volume or is not in use yet, keeps it: delete that claim at home, or take its finalizer %s off.", m.BlockedBy,
			keys.BackingFinalizer)}
	}
	if refusal := Grant(home, request, nil, m.Count-1); refusal != nil {
		return &Refusal{reasonNotHealed, "The claim is not made anew, since its namespace would not be given again: " + refusal.Message}
	}
	return nil
}

// reasonNotHealed is the reason why a shadow is not created again, if there is no more precise one.
const reasonNotHealed = "NotHealed"

// maxMetadata limits, in bytes, the labels and annotations in a Record. If there are more, it has
// only those that say whose the shadow is; home copies its own again.
const maxMetadata = 64 << 10

// Record is stored on a real volume whose shadow somebody deleted: enough to create the shadow
// again, and the volume's own reclaim policy. Only those who may change volumes can write it:
// neither home nor the users of its namespaces.
type Record struct {
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy"`
	Labels        map[string]string                    `json:"labels"`
	Annotations   map[string]string                    `json:"annotations,omitempty"`
	AccessModes   []corev1.PersistentVolumeAccessMode  `json:"accessModes"`
	Request       resource.Quantity                    `json:"request"`
}

// RecordOf returns the record of a real volume and its shadow.
func RecordOf(volume *corev1.PersistentVolume, shadow *corev1.PersistentVolumeClaim) Record {
	r := Record{
		ReclaimPolicy: volume.Spec.PersistentVolumeReclaimPolicy,
		Labels:        maps.Clone(shadow.Labels),
		Annotations:   maps.Clone(shadow.Annotations),
		AccessModes:   slices.Clone(shadow.Spec.AccessModes),
		Request:       shadow.Spec.Resources.Requests[corev1.ResourceStorage],
	}
	// A volume is not bound to a claim that asks for more than it has; home asks for the rest
	// again.
	if has := volume.Spec.Capacity[corev1.ResourceStorage]; r.Request.Cmp(has) > 0 {
		r.Request = has
	}
	// These are notes of Kubernetes about the deleted claim.
	maps.DeleteFunc(r.Annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || key == corev1.LastAppliedConfigAnnotation
	})
	size := 0
	for _, notes := range []map[string]string{r.Labels, r.Annotations} {
		for key, value := range notes {
			size += len(key) + len(value)
		}
	}
	if size > maxMetadata {
		others := func(key, _ string) bool {
			return !slices.Contains([]string{keys.ClaimUID, keys.HomeID, keys.Claim}, key)
		}
		maps.DeleteFunc(r.Labels, others)
		maps.DeleteFunc(r.Annotations, others)
	}
	return r
}

// Encode returns the record in the form that ReadRecord reads.
func (r Record) Encode() (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode record: %w", err)
	}
	return string(data), nil
}

// ReadRecord returns the record of a volume, nil if it has none.
func ReadRecord(volume *corev1.PersistentVolume) (*Record, error) {
	text, ok := volume.Annotations[keys.HealingRecord]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", keys.HealingRecord, err)
	}
	switch r.ReclaimPolicy {
	case corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimRecycle:
	default:
		return nil, fmt.Errorf("read annotation %s: there is no reclaim policy %q", keys.HealingRecord, r.ReclaimPolicy)
	}
	if r.Labels[keys.HomeID] == "" || r.Labels[keys.ClaimUID] == "" {
		return nil, fmt.Errorf("read annotation %s: it does not say whose the claim is", keys.HealingRecord)
	}
	return r, nil
}

// Shadow returns the new shadow that replaces the recorded one, for the volume that names it.
func (r Record) Shadow(volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	annotations := maps.Clone(r.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[keys.Healing] = "true"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name,
			Labels: maps.Clone(r.Labels), Annotations: annotations,
			Finalizers: []string{keys.BackingFinalizer},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               slices.Clone(r.AccessModes),
			VolumeMode:                volume.Spec.VolumeMode,
			Resources:                 corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: r.Request}},
			StorageClassName:          &volume.Spec.StorageClassName,
			VolumeAttributesClassName: volume.Spec.VolumeAttributesClassName,
			VolumeName:                volume.Name,
		},
	}
}

// is reports whether a claim is the recorded shadow of a volume, or the new one that replaces it.
func (r Record) is(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	return claim.Labels[keys.HomeID] == r.Labels[keys.HomeID] && claim.Labels[keys.ClaimUID] == r.Labels[keys.ClaimUID] &&
		claim.Spec.VolumeName == volume.Name
}
