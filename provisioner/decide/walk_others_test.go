package decide_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// others lets everybody else do one thing.
func (w *world) others() {
	home := w.sites[keys.Home]
	switch w.IntN(4) {
	case 0:
		w.schedule(home)
	case 1:
		w.controllers(home)
	case 2:
		for _, s := range w.sites {
			w.provision(s)
		}
	case 3:
		w.pod(home)
	}
}

// schedule is kube-scheduler: it chooses any node where none is chosen.
func (w *world) schedule(home *site) {
	c := home.claim
	switch {
	case c == nil || home.volume != nil:
		return
	case c.Annotations[keys.SelectedNode] != "":
		if w.faulty && w.chance(10) {
			// The node went away: others take it off the claim without a word to us.
			delete(c.Annotations, keys.SelectedNode)
			w.touch(c)
		}
		return
	}
	for _, id := range w.Perm(3) {
		place := []string{keys.Home, "west", "east"}[id]
		if !w.refuses(c, place) && (w.faulty || !w.sites[place].away) {
			c.Annotations[keys.SelectedNode] = place + "-1"
			w.touch(c)
			return
		}
	}
}

// controllers is kube-controller-manager: it binds claim and volume, and releases
// the volume whose claim is gone.
func (w *world) controllers(home *site) {
	v := home.volume
	switch {
	case v == nil:
	case home.claim == nil && v.Status.Phase != corev1.VolumeReleased:
		v.Status.Phase = corev1.VolumeReleased
		w.touch(v)
	case home.claim != nil && home.claim.Spec.VolumeName == "":
		home.claim.Spec.VolumeName, home.claim.Status.Phase = v.Name, corev1.ClaimBound
		home.claim.Status.Capacity = v.Spec.Capacity.DeepCopy()
		v.Status.Phase = corev1.VolumeBound
		w.touch(home.claim)
		w.touch(v)
	}
}

// provision is the real provisioner of a cluster, with its garbage collection.
func (w *world) provision(s *site) {
	b := s.backing
	if b != nil && b.DeletionTimestamp != nil && len(b.Finalizers) == 0 {
		s.backing, b = nil, nil
	}
	if s.real != nil && b == nil && s.real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		s.real.Status.Phase = corev1.VolumeReleased
		if w.chance(70) {
			s.real = nil
		}
	}
	if b == nil {
		return
	}
	switch {
	case b.Spec.VolumeName == "" && !s.stuck && (*b.Spec.StorageClassName != "wait" || b.Annotations[keys.SelectedNode] != ""):
		s.real = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "real-" + string(b.UID), UID: types.UID("r-" + string(b.UID)), Annotations: map[string]string{}},
			Spec: corev1.PersistentVolumeSpec{Capacity: b.Spec.Resources.Requests.DeepCopy(), ClaimRef: &corev1.ObjectReference{UID: b.UID},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		}
		if b.Spec.DataSource != nil {
			s.real.Annotations["pv.kubernetes.io/provisioned-by"] = driver
			s.real.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		}
		b.Status.Phase, b.Status.Capacity, b.Spec.VolumeName = corev1.ClaimBound, b.Spec.Resources.Requests.DeepCopy(), s.real.Name
		w.touch(b)
	case s.real != nil && b.Status.Phase == corev1.ClaimBound:
		asked, have := b.Spec.Resources.Requests[corev1.ResourceStorage], s.real.Spec.Capacity[corev1.ResourceStorage]
		if asked.Cmp(have) > 0 {
			s.real.Spec.Capacity, b.Status.Capacity = b.Spec.Resources.Requests.DeepCopy(), b.Spec.Resources.Requests.DeepCopy()
			w.touch(b)
		}
	}
}

// pod is a pod of the claim: once that is bound it runs where the data is and
// writes.
func (w *world) pod(home *site) {
	if home.claim == nil || home.claim.Spec.VolumeName == "" || home.volume == nil {
		return
	}
	s := w.sites[refOf(home.volume).Cluster]
	if s.backing == nil || s.backing.UID != refOf(home.volume).UID {
		return
	}
	if s.real == nil && s.backing.Annotations[keys.SelectedNode] == "" {
		s.backing.Annotations[keys.SelectedNode] = "there"
		w.touch(s.backing)
	}
	if s.real != nil {
		s.real.Annotations["data"] = "yes"
	}
}
