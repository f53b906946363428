package soak

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// world is all that there is of claims and volumes.
type world struct {
	// claims are those of the virtual classes, and backings the real ones by cluster.
	claims   []*corev1.PersistentVolumeClaim
	backings map[string][]*corev1.PersistentVolumeClaim
	// volumes are the objects by cluster, at home the virtual ones too.
	volumes map[string][]*corev1.PersistentVolume
	// stored is what the storage of each cluster holds.
	stored map[string][]instant.Volume
}

// problems returns what is wrong once all work is done: owners are the claims, by
// UID, that must have exactly one backing claim each, of which the ones in bound
// are still there and the others were deleted with their data kept.
func (w world) problems(owners map[types.UID]wish, bound map[types.UID]bool) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	found := map[types.UID]bool{}
	for _, claim := range w.claims {
		found[claim.UID] = true
		switch {
		case !bound[claim.UID]:
			complain("claim %s/%s is there and should not be", claim.Namespace, claim.Name)
		case claim.Status.Phase != corev1.ClaimBound:
			complain("claim %s/%s is %s", claim.Namespace, claim.Name, claim.Status.Phase)
		case claim.Spec.VolumeName != "pvc-"+string(claim.UID):
			complain("claim %s/%s is bound to the volume %s", claim.Namespace, claim.Name, claim.Spec.VolumeName)
		}
	}
	for uid := range bound {
		if !found[uid] {
			complain("claim %s is gone", owners[uid].key())
		}
	}
	return append(wrong, w.behind(owners)...)
}

// behind returns what is wrong behind the claims: for each there must be exactly one
// virtual volume, one backing claim, which that volume names, and for each backing
// claim that is bound one real volume; and nothing else.
func (w world) behind(owners map[types.UID]wish) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	virtual := map[types.UID]backing.Ref{}
	real := map[string]map[string]bool{}
	for cluster, volumes := range w.volumes {
		real[cluster] = map[string]bool{}
		for _, volume := range volumes {
			if volume.Annotations[keys.Backing] == "" {
				real[cluster][volume.Name] = true
				continue
			}
			ref, err := backing.RefOf(volume)
			if owner := volume.Spec.ClaimRef.UID; err != nil || owners[owner].name == "" {
				complain("virtual volume %s belongs to no claim (%v)", volume.Name, err)
			} else {
				virtual[owner] = ref
			}
		}
	}
	for uid, wished := range owners {
		var have []string
		for _, cluster := range []string{keys.Home, fabric.WestNode} {
			for _, b := range w.backings[cluster] {
				if b.Labels[keys.ClaimUID] != string(uid) {
					continue
				}
				ref := backing.RefTo(cluster, b)
				have = append(have, ref.String())
				if virtual[uid] != ref {
					complain("the volume of %s names %q and not its backing claim %s", wished.key(), virtual[uid], ref)
				}
				if backing.Unpublished(b) || !backing.Protected(b) || b.DeletionTimestamp != nil {
					complain("backing claim %s is not marked as published, not protected or being deleted", ref)
				}
			}
		}
		if len(have) != 1 {
			complain("claim %s has %d backing claims: %v", wished.key(), len(have), have)
		}
	}
	for cluster, backings := range w.backings {
		for _, b := range backings {
			if _, known := owners[types.UID(b.Labels[keys.ClaimUID])]; !known {
				complain("backing claim %s was left behind", backing.RefTo(cluster, b))
			}
			if b.Spec.VolumeName != "" && !real[cluster][b.Spec.VolumeName] {
				complain("backing claim %s has lost its real volume", backing.RefTo(cluster, b))
			}
			delete(real[cluster], b.Spec.VolumeName)
		}
	}
	for cluster, left := range real {
		for name := range left {
			complain("real volume %s of %s belongs to no backing claim", name, cluster)
		}
		if stored, objects := len(w.stored[cluster]), w.realVolumes(cluster); stored != objects {
			complain("the storage of %s holds %d volumes for %d objects", cluster, stored, objects)
		}
	}
	slices.Sort(wrong)
	return wrong
}

func (w world) realVolumes(cluster string) (n int) {
	for _, volume := range w.volumes[cluster] {
		if volume.Annotations[keys.Backing] == "" {
			n++
		}
	}
	return n
}
