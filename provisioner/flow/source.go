package flow

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// source returns what is known of what a claim is to be made from, nil if it is to
// be empty.
func (f *Flow) source(claim *corev1.PersistentVolumeClaim) *decide.Source {
	if s := f.snapshot(claim); s != nil {
		return &decide.Source{Snapshot: s}
	}
	name, err := route.CopyOf(claim)
	if err != nil || name == "" {
		return nil
	}
	owner := types.NamespacedName{Namespace: claim.Namespace, Name: name}
	s := &decide.Source{Claim: one[corev1.PersistentVolumeClaim](f.Sources.Claims, owner.String())}
	if s.Claim == nil {
		return s
	}
	if s.Volume = f.Sources.virtual(s.Claim.UID); s.Volume == nil {
		s.Foreign = f.foreign(s.Claim)
		return s
	}
	if ref, err := backing.RefOf(s.Volume); err == nil {
		var remotes []string
		if ref.Cluster != keys.Home {
			remotes = []string{ref.Cluster}
		}
		s.Backings = f.backings(s.Claim.UID, []types.NamespacedName{owner}, s.Volume, remotes)
	}
	return s
}

// foreign says whether a claim is known to have, or to get, a volume that is not
// virtual. Caches may lag: what is not seen is not known.
func (f *Flow) foreign(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.VolumeName != "" {
		return one[corev1.PersistentVolume](f.Sources.Volumes, claim.Spec.VolumeName) != nil
	}
	class := one[storagev1.StorageClass](f.Sources.Classes, className(claim))
	return class != nil && !virtualclass.Is(class)
}

// copiesOf returns the claims without a volume that are to be copies of a claim.
func (f *Flow) copiesOf(source types.NamespacedName) []*corev1.PersistentVolumeClaim {
	return indexed[corev1.PersistentVolumeClaim](f.Sources.Claims, bySource, source.String())
}

// sourceChanged brings back the claims that are to be copies of a claim of which
// something changed.
func (f *Flow) sourceChanged(source types.NamespacedName) {
	for _, claim := range f.copiesOf(source) {
		f.Enqueue(claim.UID)
	}
}

// copyable says whether a change of a claim may let pods go that use copies of it:
// it has a volume now, or that is no longer being moved.
func copyable(before, after *corev1.PersistentVolumeClaim) bool {
	return (before.Spec.VolumeName == "" && after.Spec.VolumeName != "") ||
		(before.Annotations[keys.Move] != "" && after.Annotations[keys.Move] == "")
}

// sourceKeys is the index of claims by their source.
func sourceKeys(claim *corev1.PersistentVolumeClaim) []string {
	if claim.Spec.VolumeName != "" {
		return nil
	}
	if name, err := route.CopyOf(claim); err == nil && name != "" {
		return []string{claim.Namespace + "/" + name}
	}
	if name := route.SnapshotOf(claim); name != "" {
		return []string{snapshotKey(types.NamespacedName{Namespace: claim.Namespace, Name: name})}
	}
	return nil
}

// upstream says whether a claim is what another is to be a copy of, perhaps with
// other copies in between: then it need not wait for that one.
func (f *Flow) upstream(claim, of *corev1.PersistentVolumeClaim) bool {
	const generations = 8
	for range generations {
		name, err := route.CopyOf(of)
		if err != nil || name == "" || of.Spec.VolumeName != "" {
			return false
		}
		if name == claim.Name {
			return true
		}
		if of = one[corev1.PersistentVolumeClaim](f.Sources.Claims, claim.Namespace+"/"+name); of == nil {
			return false
		}
	}
	return false
}
