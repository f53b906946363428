package flow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// backings returns the backing claims of a claim that are seen. volume is its
// virtual volume, nil if it has none.
func (f *Flow) backings(uid types.UID, owners []types.NamespacedName, volume *corev1.PersistentVolume, remotes []string) []decide.Backing {
	result := f.backingAt(nil, uid, keys.Home, f.Place.Twin(uid, volume), volume, true)
	for _, id := range remotes {
		remote := f.Clusters.Object(id)
		if remote == nil {
			continue
		}
		for _, owner := range owners {
			result = f.backingAt(result, uid, id, f.Place.At(id, remote.Spec.Namespaces.Strategy, owner, uid, volume), volume, len(owners) == 1)
		}
	}
	return result
}

// movedBackings returns the backing claims that moves made, under names of their own, for
// a claim of which nothing else is left that would name them.
func (f *Flow) movedBackings(uid types.UID, owners []types.NamespacedName, remotes []string) []decide.Backing {
	var result []decide.Backing
	for _, name := range f.memory.movedOf(uid) {
		result = f.backingAt(result, uid, keys.Home, types.NamespacedName{Namespace: f.Place.StorageNamespace, Name: name}, nil, false)
		for _, id := range remotes {
			remote := f.Clusters.Object(id)
			if remote == nil {
				continue
			}
			for _, owner := range owners {
				at := types.NamespacedName{Namespace: f.mapped(remote, owner.Namespace), Name: name}
				result = f.backingAt(result, uid, id, at, nil, false)
			}
		}
	}
	return result
}

// backingAt adds the backing claim that is seen somewhere in a cluster, if it is one of
// the claim; written says that what was written last may be newer than what is seen.
func (f *Flow) backingAt(found []decide.Backing, uid types.UID, id string, at types.NamespacedName, volume *corev1.PersistentVolume, written bool) []decide.Backing {
	var b *corev1.PersistentVolumeClaim
	var real *corev1.PersistentVolume
	if id == keys.Home {
		b = one[corev1.PersistentVolumeClaim](f.Sources.Claims, at.String())
	} else if cluster := f.Clusters.Get(id); cluster != nil {
		b, real = cluster.Backing(at)
	} else {
		return found
	}
	if written {
		if newer := f.written.latest(uid, id, b, time.Now()); newer != nil && newer.Namespace == at.Namespace && newer.Name == at.Name {
			b = newer
		}
	}
	if b == nil || !backing.IsOf(b, uid, f.Place.HomeID) || backing.Spare(b, volume) {
		return found
	}
	if id == keys.Home {
		real = clusters.Bound(f.Sources.Volumes.GetStore(), b)
	}
	return append(found, decide.Backing{Cluster: id, Claim: b, Volume: real})
}
