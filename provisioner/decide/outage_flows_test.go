package decide_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// outageFlow is one thing that a user asks for while west goes away and comes back.
type outageFlow struct {
	name string
	// real is the real class of west; retained: volumes are kept; stuck: west makes none.
	real            string
	retained, stuck bool
	// from makes the claim one with a data source in west, nil for an empty volume.
	from change
	// served: the claim has its volume in west before act, which is what the user does.
	served bool
	act    func(w *world)
	// play is what others do in turn, nil for nothing more than in any flow.
	play func(w *world)
	// want says what is wrong with the end, empty if nothing.
	want func(w *world) string
	// most is how many backing claims may ever be made.
	most int
}

const storageAttributes = "gold"

func outageFlows() []outageFlow {
	anywhere := func(w *world) string { return w.served("") }
	there := func(w *world) string { return w.served("west") }
	return []outageFlow{
		{name: "provision-remote", real: "now", want: anywhere, most: 2},
		{name: "provision-remote-wait", real: "wait", want: anywhere, most: 2},
		{name: "provision-remote-retain", real: "now", retained: true, want: anywhere, most: 2},
		{name: "abandon-remote", real: "now", stuck: true, act: (*world).deleteClaim, want: (*world).empty, most: 1},
		{name: "reschedule-refused", real: "now", act: func(w *world) { w.sites["west"].full = true }, want: anywhere, most: 2},
		{name: "reschedule-moved", real: "now", stuck: true, act: func(w *world) { w.selects("home-1") }, want: anywhere, most: 2},
		{name: "copy-remote", real: "now", from: copyIn("west"), want: there, most: 1},
		{name: "copy-remote-wait", real: "wait", from: copyIn("west"), want: there, most: 1},
		{name: "restore-remote", real: "now", from: snapIn("west"), want: there, most: 1},
		{name: "delete-remote", real: "now", served: true, act: (*world).deleteClaim, want: (*world).empty, most: 1},
		{name: "retain-remote", real: "now", retained: true, served: true, act: (*world).deleteClaim, want: (*world).kept, most: 1},
		{name: "expand-remote", real: "roomy", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].claim.Spec.Resources.Requests = storage("2Gi")
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				home := w.sites[keys.Home]
				if home.claim.Status.Capacity.Storage().String() != "2Gi" || home.volume.Spec.Capacity.Storage().String() != "2Gi" {
					return "claim or volume have not grown"
				}
				return there(w)
			}},
		{name: "carry-remote", real: "now", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].claim.Labels = map[string]string{"team": "b"}
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				if b := w.sites["west"].backing; b == nil || b.Labels["team"] != "b" {
					return "the label is not carried"
				}
				return there(w)
			}},
		{name: "attributes-remote", real: "now", served: true, most: 1, play: (*world).modify,
			act: func(w *world) {
				w.sites[keys.Home].claim.Spec.VolumeAttributesClassName = ptr.To(storageAttributes)
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				if ptr.Deref(w.sites[keys.Home].claim.Status.CurrentVolumeAttributesClassName, "") != storageAttributes {
					return "the claim does not have its attributes"
				}
				return there(w)
			}},
		{name: "heal-remote", real: "now", served: true, most: 1, play: (*world).agent,
			act: func(w *world) {
				b := w.sites["west"].backing
				b.DeletionTimestamp = &b.CreationTimestamp
			},
			want: func(w *world) string {
				if real := w.sites["west"].real; real == nil || real.Labels[keys.Healing] != "" {
					return "the agent is not done"
				}
				return there(w)
			}},
		{name: "lost-remote", real: "now", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].volume.Annotations[keys.Lost] = "given up"
				w.deleteClaim()
			},
			want: (*world).forgotten},
	}
}

func (w *world) deleteClaim() {
	w.sites[keys.Home].claim, w.deleted = nil, true
}

// selects has somebody choose a node for the claim.
func (w *world) selects(node string) {
	c := w.sites[keys.Home].claim
	c.Annotations[keys.SelectedNode] = node
	w.touch(c)
}

// served says what is wrong with a claim that must have its volume in a cluster; "" for
// any.
func (w *world) served(cluster string) string {
	home := w.sites[keys.Home]
	if home.claim == nil || home.volume == nil || home.claim.Spec.VolumeName != home.volume.Name {
		return "the claim is not bound"
	}
	ref, have := refOf(home.volume), w.have()
	if cluster != "" && ref.Cluster != cluster {
		return "the volume is in " + ref.Cluster
	}
	if !slices.Equal(have, []string{ref.Cluster}) {
		return fmt.Sprintf("the volume is in %s, backing claims are in %v", ref.Cluster, have)
	}
	b, real := w.sites[ref.Cluster].backing, w.sites[ref.Cluster].real
	switch {
	case b.UID != ref.UID || b.DeletionTimestamp != nil || backing.Unpublished(b) || !backing.Protected(b):
		return "the backing claim is another, deleted, not published or not protected"
	case b.Status.Phase != corev1.ClaimBound || real == nil || real.Spec.ClaimRef.UID != b.UID || real.Annotations["data"] == "":
		return "the backing claim has no real volume that a pod uses"
	case home.volume.Annotations[keys.BackingVolume] != real.Name:
		return "the volume names another real volume"
	}
	return ""
}

// have names the clusters with backing claims.
func (w *world) have() (ids []string) {
	for _, id := range []string{keys.Home, "west", "east"} {
		if w.sites[id].backing != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// empty says what is left of a claim that is gone, kept what is wrong with what
// policy Retain keeps, forgotten with data that home gave up.
func (w *world) empty() string {
	if home := w.sites[keys.Home]; home.claim != nil || home.volume != nil {
		return "claim or volume are left"
	}
	for id, s := range w.sites {
		if s.backing != nil || s.real != nil {
			return "backing claim or real volume are left in " + id
		}
	}
	return ""
}

func (w *world) kept() string {
	home, b := w.sites[keys.Home], w.sites["west"].backing
	switch {
	case home.claim != nil || home.volume == nil || home.volume.Status.Phase != corev1.VolumeReleased:
		return "the volume is not released"
	case b == nil || b.UID != refOf(home.volume).UID || b.DeletionTimestamp != nil || w.sites["west"].real == nil:
		return "what is behind the volume is not kept"
	}
	return ""
}

func (w *world) forgotten() string {
	home, b := w.sites[keys.Home], w.sites["west"].backing
	switch {
	case home.claim != nil || home.volume != nil:
		return "claim or volume are left"
	case b == nil || b.DeletionTimestamp != nil || !backing.Protected(b) || w.sites["west"].real == nil:
		return "what was given up was touched"
	}
	return ""
}

// modify is the modifier of west's driver.
func (w *world) modify() {
	if b := w.sites["west"].backing; b != nil && b.Spec.VolumeAttributesClassName != nil && b.Status.CurrentVolumeAttributesClassName == nil {
		b.Status.CurrentVolumeAttributesClassName = b.Spec.VolumeAttributesClassName
		w.touch(b)
	}
}

// agent is the remote agent with Kubernetes: each time, one step towards a new shadow.
func (w *world) agent() {
	s := w.sites["west"]
	b, real := s.backing, s.real
	healing := real.Labels[keys.Healing] != ""
	switch {
	case b != nil && b.DeletionTimestamp != nil && !healing:
		real.Labels = map[string]string{keys.Healing: place.HomeID}
		real.Annotations["shadow"] = b.Name
		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	case b != nil && b.DeletionTimestamp != nil:
		s.healed, s.backing = b, nil
		real.Status.Phase = corev1.VolumeReleased
	case b == nil && healing:
		b = s.healed.DeepCopy()
		w.version++
		b.UID, b.DeletionTimestamp = types.UID(fmt.Sprintf("b%d", w.version)), nil
		b.Status.Phase = corev1.ClaimPending
		s.backing = b
		w.touch(b)
	case healing && b.Status.Phase == corev1.ClaimPending:
		real.Spec.ClaimRef.UID, real.Status.Phase = b.UID, corev1.VolumeBound
		b.Status.Phase = corev1.ClaimBound
		w.touch(b)
	case healing:
		delete(real.Labels, keys.Healing)
		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
}
