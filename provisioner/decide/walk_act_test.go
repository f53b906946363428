package decide_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

var (
	errFault   = errors.New("no answer")
	errRefused = errors.New("there is no room")
)

// place is where backing claims are.
var place = backing.Place{HomeID: "here", StorageNamespace: "lodestone-storage"}

// call makes a request: it may fail before it has an effect, or its answer be lost.
func (w *world) call(id string, effect func() error) error {
	if !w.sends(id) || w.faulty && w.chance(8) {
		return errFault
	}
	err := effect()
	if !w.answers(id) || w.faulty && w.chance(8) {
		return errFault
	}
	return err
}

// sends says whether a request gets to a cluster.
func (w *world) sends(id string) bool {
	s := w.sites[id]
	if w.cutting && id == "west" && w.cut == 0 {
		s.away = true
	}
	return !s.away
}

// answers says whether the answer to a request that was carried out comes back.
func (w *world) answers(id string) bool {
	if !w.cutting || id != "west" || w.sites[id].away {
		return !w.sites[id].away
	}
	w.cut--
	w.sites[id].away = w.cut == 0
	return !w.sites[id].away
}

// act takes a step as package flow does, with the same questions to API servers.
func (w *world) act(o decide.Observation, step decide.Step) error {
	home := w.sites[keys.Home]
	switch step.Verb {
	case decide.Idle:
	case decide.Record:
		err := w.annotate(o, map[string]string{keys.Routed: step.Route.Cluster})
		if err == nil {
			w.unsent = true
		}
		return err
	case decide.Create:
		err := w.create(o, step)
		if errors.Is(err, errRefused) {
			return w.reschedule(o, &decide.Refusal{Cluster: step.Cluster, Reason: "QuotaExceeded"})
		}
		return err
	case decide.Publish:
		w.handedOut = true
	case decide.Mark:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) { delete(b.Annotations, keys.Unpublished) })
	case decide.Remove:
		return w.remove(o, step)
	case decide.Reschedule:
		return w.reschedule(o, step.Refusal)
	case decide.Wake:
		return w.annotate(o, map[string]string{keys.Refused: ""})
	case decide.Release:
		return w.call(keys.Home, func() error {
			if v := home.volume; v == nil || v.UID != o.Volume.UID || v.Status.Phase != corev1.VolumeReleased {
				return errFault
			}
			if err := w.drop(step, false); err != nil || !w.answers(step.Cluster) {
				return errFault
			}
			return nil
		})
	case decide.Confirm:
		return w.call(step.Cluster, func() error {
			s := w.sites[step.Cluster]
			claimed := s.backing != nil && s.backing.UID == step.Ref.UID
			w.gone = w.gone || !claimed && (s.real == nil || s.real.Spec.ClaimRef.UID != step.Ref.UID)
			return nil
		})
	case decide.Finish:
		return w.call(keys.Home, func() error { home.volume = nil; return nil })
	case decide.Update:
		return w.call(keys.Home, func() error {
			if home.volume != nil && home.volume.UID == o.Volume.UID {
				home.volume.Annotations[keys.BackingVolume] = step.Backing.Volume.Name
				home.volume.Spec.Capacity = step.Backing.Volume.Spec.Capacity.DeepCopy()
				if decide.Attributed(o, step.Backing) {
					home.volume.Spec.VolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
					home.claim.Status.CurrentVolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
					w.touch(home.claim)
				}
				w.touch(home.volume)
			}
			return nil
		})
	case decide.Expand:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) { b.Spec.Resources.Requests[corev1.ResourceStorage] = step.Size })
	case decide.Reflect:
		return w.call(keys.Home, func() error {
			return w.onClaim(o, func(c *corev1.PersistentVolumeClaim) { c.Status = *step.Status.DeepCopy() })
		})
	case decide.Fix:
		return w.annotate(o, map[string]string{keys.FixedSize: step.Fixed})
	case decide.Locate:
		return w.annotate(o, map[string]string{keys.SourceCluster: step.Located})
	case decide.Ask:
		return w.call(step.Cluster, func() error {
			w.base.Said = &decide.Said{Backing: step.Backing.Claim.UID, Again: w.now.Add(time.Minute)}
			return nil
		})
	case decide.Modify:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) {
			b.Spec.VolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
		})
	case decide.Carry:
		w.carried = w.now
		return w.write(step, func(b *corev1.PersistentVolumeClaim) {
			carry(&b.Labels, step.Labels)
			carry(&b.Annotations, step.Annotations)
		})
	case decide.Heal:
		if step.Cure != decide.Adopt {
			return fmt.Errorf("nobody asked for cure %s", step.Cure)
		}
		return w.call(keys.Home, func() error {
			home.volume.Annotations[keys.Backing] = backing.RefTo(step.Ref.Cluster, step.Backing.Claim).String()
			w.touch(home.volume)
			return nil
		})
	default:
		return fmt.Errorf("nobody asked for %s", step.Verb)
	}
	return nil
}

// carry sets and removes keys.
func carry(on *map[string]string, changes map[string]any) {
	for key, value := range changes {
		if text, ok := value.(string); ok {
			if *on == nil {
				*on = map[string]string{}
			}
			(*on)[key] = text
		} else {
			delete(*on, key)
		}
	}
}

// onClaim changes the virtual claim if it is as it was seen.
func (w *world) onClaim(o decide.Observation, change func(*corev1.PersistentVolumeClaim)) error {
	c := w.sites[keys.Home].claim
	if c == nil || c.ResourceVersion != o.Claim.ResourceVersion {
		return errFault
	}
	change(c)
	w.touch(c)
	return nil
}

func (w *world) annotate(o decide.Observation, changes map[string]string) error {
	return w.call(keys.Home, func() error {
		return w.onClaim(o, func(c *corev1.PersistentVolumeClaim) {
			for key, value := range changes {
				if c.Annotations[key] = value; value == "" {
					delete(c.Annotations, key)
				}
			}
		})
	})
}

func (w *world) reschedule(o decide.Observation, refused *decide.Refusal) error {
	changes := map[string]string{keys.SelectedNode: "", keys.Routed: ""}
	if refused != nil {
		changes[keys.Refused] = encode(refusal.Add(refusal.Decode(o.Claim.Annotations[keys.Refused]),
			refusal.Refusal{Cluster: refused.Cluster, Node: refused.Node, Until: o.Now.Add(time.Minute)}, o.Now)...)
	}
	return w.annotate(o, changes)
}

func (w *world) refuses(c *corev1.PersistentVolumeClaim, id string) bool {
	_, refused := refusal.Of(refusal.Decode(c.Annotations[keys.Refused]), id, "", w.now)
	return refused
}
