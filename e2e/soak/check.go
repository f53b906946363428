package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// world is all that there is of claims and volumes.
type world struct {
	// claims are those of the virtual classes, and backings the real ones by cluster.
	claims   []*corev1.PersistentVolumeClaim
	backings map[string][]*corev1.PersistentVolumeClaim
	// volumes are the objects by cluster, at home the virtual ones too.
	volumes map[string][]*corev1.PersistentVolume
	// stored is what the storage of each cluster holds.
	stored map[string][]fakeprovisioner.Volume
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

// view follows both clusters with all rights. It is safe for concurrent use.
type view struct {
	bed             *fabric.Fabric
	claims, volumes map[string]cache.SharedIndexInformer // by cluster
	pods            cache.SharedIndexInformer

	mu   sync.Mutex
	made map[types.UID]map[types.UID]bool // backing claims ever seen, by claim
}

func newView(ctx context.Context, bed *fabric.Fabric) (*view, error) {
	v := &view{
		bed: bed, made: map[types.UID]map[types.UID]bool{},
		claims: map[string]cache.SharedIndexInformer{}, volumes: map[string]cache.SharedIndexInformer{},
	}
	for id, cluster := range map[string]*testbed.Cluster{keys.Home: bed.Home, fabric.WestNode: bed.West} {
		factory := informers.NewSharedInformerFactory(cluster.Client(), 0)
		v.claims[id] = factory.Core().V1().PersistentVolumeClaims().Informer()
		v.volumes[id] = factory.Core().V1().PersistentVolumes().Informer()
		if id == keys.Home {
			v.pods = factory.Core().V1().Pods().Informer()
		}
		_, err := v.claims[id].AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { v.count(obj) }})
		if err != nil {
			return nil, fmt.Errorf("watch claims of %s: %w", id, err)
		}
		factory.StartWithContext(ctx)
		for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return nil, errors.New("watch both clusters: stopped")
			}
		}
	}
	return v, nil
}

func (v *view) count(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Labels[keys.ClaimUID] == "" {
		return
	}
	owner := types.UID(claim.Labels[keys.ClaimUID])
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made[owner] == nil {
		v.made[owner] = map[types.UID]bool{}
	}
	v.made[owner][claim.UID] = true
}

// twice returns the claims for which more than one backing claim was ever made.
func (v *view) twice() []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var several []types.UID
	for owner, backings := range v.made {
		if len(backings) > 1 {
			several = append(several, owner)
		}
	}
	return several
}

// owned returns the claims of the virtual classes that are there, and how many of
// them are bound.
func (v *view) owned() (claims []*corev1.PersistentVolumeClaim, bound int) {
	for _, claim := range all[corev1.PersistentVolumeClaim](v.claims[keys.Home]) {
		if claim.Labels[keys.ClaimUID] != "" {
			continue
		}
		claims = append(claims, claim)
		if claim.Status.Phase == corev1.ClaimBound {
			bound++
		}
	}
	return claims, bound
}

// running returns how many of the pods that use claims run; the Deployments of
// deploy/base have some too.
func (v *view) running() (n int) {
	for _, pod := range all[corev1.Pod](v.pods) {
		if slices.Contains(namespaces, pod.Namespace) && pod.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// world asks the API servers for all that there is, for what a watch shows may be
// late.
func (v *view) world(ctx context.Context) (world, error) {
	w := world{
		backings: map[string][]*corev1.PersistentVolumeClaim{}, volumes: map[string][]*corev1.PersistentVolume{},
		stored: map[string][]fakeprovisioner.Volume{keys.Home: v.bed.HomeStorage.Volumes(), fabric.WestNode: v.bed.WestStorage.Volumes()},
	}
	for id, cluster := range map[string]*testbed.Cluster{keys.Home: v.bed.Home, fabric.WestNode: v.bed.West} {
		core := cluster.Client().CoreV1()
		claims, err := core.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return world{}, fmt.Errorf("list claims of %s: %w", id, err)
		}
		volumes, err := core.PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return world{}, fmt.Errorf("list volumes of %s: %w", id, err)
		}
		for i := range claims.Items {
			if claim := &claims.Items[i]; claim.Labels[keys.ClaimUID] != "" {
				w.backings[id] = append(w.backings[id], claim)
			} else {
				w.claims = append(w.claims, claim)
			}
		}
		for i := range volumes.Items {
			w.volumes[id] = append(w.volumes[id], &volumes.Items[i])
		}
	}
	return w, nil
}

func all[T any](informer cache.SharedIndexInformer) []*T {
	var found []*T
	for _, obj := range informer.GetStore().List() {
		if typed, ok := obj.(*T); ok {
			found = append(found, typed)
		}
	}
	return found
}
