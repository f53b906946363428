package decide_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func (w *world) create(o decide.Observation, step decide.Step) error {
	s := w.sites[step.Cluster]
	w.unsent = false
	return w.call(step.Cluster, func() error {
		if s.full {
			return errRefused
		}
		if s.backing != nil {
			return nil // it is ours, whatever its state: it will be seen
		}
		w.version++
		b := backing.New(o.Claim, step.Route, place.Of(step.Cluster, "", types.NamespacedName{Namespace: "shop", Name: "data"}, uid), place.HomeID)
		b.UID, b.CreationTimestamp = types.UID(fmt.Sprintf("b%d", w.version)), metav1.NewTime(w.now.Add(s.skew))
		b.Status.Phase = corev1.ClaimPending
		w.touch(b)
		s.backing = b
		w.made++
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
	if !w.sends(step.Cluster) {
		return errFault
	}
	b := s.backing
	if b == nil || b.UID != seen.UID || exact && seen.DeletionTimestamp == nil && b.ResourceVersion != seen.ResourceVersion {
		return errFault
	}
	b.DeletionTimestamp = ptr.To(metav1.NewTime(w.now.Add(s.skew)))
	w.touch(b)
	if !w.answers(step.Cluster) || w.faulty && w.chance(8) {
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
