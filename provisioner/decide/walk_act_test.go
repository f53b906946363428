package decide_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

var errFault = errors.New("no answer")

// place is where backing claims are.
var place = backing.Place{HomeID: "here", StorageNamespace: "lodestone-storage"}

// call makes a request: it may fail before it has an effect, or its answer be lost.
func (w *world) call(id string, effect func() error) error {
	s := w.sites[id]
	if s.away || w.faulty && w.chance(8) {
		return errFault
	}
	err := effect()
	if w.faulty && w.chance(8) {
		return errFault
	}
	return err
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
		return w.create(o, step)
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
			return w.drop(step, false)
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
	default:
		return fmt.Errorf("nobody asked for %s", step.Verb)
	}
	return nil
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

func (w *world) create(o decide.Observation, step decide.Step) error {
	s := w.sites[step.Cluster]
	w.unsent = false
	return w.call(step.Cluster, func() error {
		if s.backing != nil {
			return nil // it is ours, whatever its state: it will be seen
		}
		w.version++
		b := backing.New(o.Claim, step.Route, place.Of(step.Cluster, "", types.NamespacedName{Namespace: "shop", Name: "data"}, uid), place.HomeID)
		b.UID, b.CreationTimestamp = types.UID(fmt.Sprintf("b%d", w.version)), metav1.NewTime(w.now.Add(s.skew))
		b.Status.Phase = corev1.ClaimPending
		w.touch(b)
		s.backing = b
		return nil
	})
}

// write changes a backing claim of just the UID that was seen.
func (w *world) write(step decide.Step, change func(*corev1.PersistentVolumeClaim)) error {
	return w.call(step.Cluster, func() error {
		b := w.sites[step.Cluster].backing
		if b == nil || b.UID != step.Backing.Claim.UID {
			return errFault
		}
		change(b)
		w.touch(b)
		return nil
	})
}

func (w *world) remove(o decide.Observation, step decide.Step) error {
	home := w.sites[keys.Home]
	w.handedOut = false
	err := w.call(keys.Home, func() error {
		if home.volume != nil && o.Volume == nil || o.Claim == nil && home.claim != nil {
			return errFault
		}
		return nil
	})
	if err == nil {
		err = w.call(step.Cluster, func() error { return w.drop(step, true) })
	}
	if err == nil && step.Refusal != nil {
		err = w.reschedule(o, step.Refusal)
	}
	return err
}

// drop deletes a backing claim and lets it go; exactly the version that was seen
// if that matters.
func (w *world) drop(step decide.Step, exact bool) error {
	s, seen := w.sites[step.Cluster], step.Backing.Claim
	if s.away {
		return errFault
	}
	b := s.backing
	if b == nil || b.UID != seen.UID || exact && seen.DeletionTimestamp == nil && b.ResourceVersion != seen.ResourceVersion {
		return errFault
	}
	b.DeletionTimestamp = ptr.To(metav1.NewTime(w.now.Add(s.skew)))
	w.touch(b)
	if w.faulty && w.chance(8) {
		return errFault
	}
	b.Finalizers = nil
	return nil
}

// store is the library: it creates the virtual volume that was handed over, if
// that is still right.
func (w *world) store() {
	home := w.sites[keys.Home]
	if !w.handedOut {
		return
	}
	w.handedOut = false
	o := w.observe()
	step := decide.Next(o)
	if step.Verb != decide.Publish || home.volume != nil {
		return
	}
	_ = w.call(keys.Home, func() error {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "v1", Labels: map[string]string{keys.Cluster: step.Route.Cluster}, CreationTimestamp: metav1.NewTime(w.now),
				Annotations: map[string]string{keys.Backing: backing.RefTo(step.Route.Cluster, step.Backing.Claim).String()}},
			Spec: corev1.PersistentVolumeSpec{Capacity: o.Claim.Spec.Resources.Requests.DeepCopy(),
				ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: uid},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
		if w.retained {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
		if step.Backing.Volume != nil {
			v.Annotations[keys.BackingVolume] = step.Backing.Volume.Name
		}
		w.touch(v)
		home.volume = v
		return nil
	})
}
