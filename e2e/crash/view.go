package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// View is all that exists for one case at one moment.
type View struct {
	// Claims are those of its home namespace, Backings the twins and shadows.
	Claims, Backings []*corev1.PersistentVolumeClaim
	// Volumes are virtual volumes, Reals the real ones behind backing claims.
	Volumes, Reals []*corev1.PersistentVolume

	// away is the remote cluster that each backing claim is in which is not at home.
	away map[types.UID]string
}

const byCase = "case"

// watched is what is watched of one cluster.
type watched struct {
	claims, volumes cache.SharedIndexInformer
}

// watch watches claims and volumes of a cluster, and tells the ledger of them.
func watch(ctx context.Context, cluster *testbed.Cluster, home bool, ledger *ledger) (*watched, error) {
	factory := informers.NewSharedInformerFactory(cluster.Client(), 0)
	w := &watched{
		claims:  factory.Core().V1().PersistentVolumeClaims().Informer(),
		volumes: factory.Core().V1().PersistentVolumes().Informer(),
	}
	for _, informer := range []cache.SharedIndexInformer{w.claims, w.volumes} {
		if err := informer.AddIndexers(cache.Indexers{byCase: func(obj any) ([]string, error) {
			return []string{caseOf(obj)}, nil
		}}); err != nil {
			return nil, fmt.Errorf("index %s: %w", cluster.Name(), err)
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { learn(obj, home, ledger) }})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", cluster.Name(), err)
		}
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), w.claims.HasSynced, w.volumes.HasSynced) {
		return nil, fmt.Errorf("read claims and volumes of %s: %w", cluster.Name(), ctx.Err())
	}
	return w, nil
}

// madeFor returns the UID of the claim that a twin is made for, by its name: a twin that a
// move made has a number behind it.
func madeFor(twin string) types.UID {
	if uid, ok := strings.CutPrefix(twin, "pvc-"); ok {
		return types.UID(uids.FindString(uid))
	}
	return ""
}

// caseOf returns the case that an object belongs to: its namespace, or, for the
// volume of a twin, "twin/" and the UID of the claim that this is made for.
func caseOf(obj any) string {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		if o.Namespace == fabric.Storage {
			namespace, _, _ := strings.Cut(o.Annotations[keys.Claim], "/")
			return namespace
		}
		return home(o.Namespace)
	case *corev1.PersistentVolume:
		switch ref := o.Spec.ClaimRef; {
		case ref == nil:
		case ref.Namespace == fabric.Storage:
			return "twin/" + string(madeFor(ref.Name))
		default:
			return home(ref.Namespace)
		}
	}
	return ""
}

// home returns the namespace of a case, given that or the one in west that stands
// for it.
func home(namespace string) string {
	if of := namespaces.FindString(namespace); of != "" {
		return of
	}
	return namespace
}

// learn tells the ledger, and the case, of a new object.
func learn(obj any, home bool, ledger *ledger) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		backing := o.Labels[keys.ClaimUID] != ""
		c := ledger.owns(caseOf(o), o.UID, home && !backing && !imported(o))
		if c == nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if backing {
			c.backings[o.UID] = o.Name
		} else if home {
			c.claims[o.Name] = o.UID
		}
	case *corev1.PersistentVolume:
		ref := o.Spec.ClaimRef
		if ref == nil || virtual(o) {
			return
		}
		c := ledger.owner(ref.UID)
		if c == nil {
			c = ledger.owner(madeFor(ref.Name))
		}
		if c == nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reals[o.UID] = o.Name
	}
}

// imported says whether a claim of home is of the real class that imports are from.
func imported(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == fabric.HomeNow
}

// virtual says whether a volume of home is one that the provisioner made.
func virtual(v *corev1.PersistentVolume) bool { return v.Annotations[keys.Backing] != "" }

func indexed[T any](informer cache.SharedIndexInformer, key string) []*T {
	found, err := informer.GetIndexer().ByIndex(byCase, key)
	if err != nil {
		return nil
	}
	var all []*T
	for _, obj := range found {
		if typed, ok := obj.(*T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// view returns what exists for a case.
func (w *World) view(c *Case) *View {
	v := &View{away: map[types.UID]string{}}
	for _, claim := range indexed[corev1.PersistentVolumeClaim](w.home.claims, c.Namespace) {
		if claim.Namespace == fabric.Storage {
			v.Backings = append(v.Backings, claim)
		} else {
			v.Claims = append(v.Claims, claim)
		}
	}
	for _, remote := range w.remotes {
		for _, shadow := range indexed[corev1.PersistentVolumeClaim](remote.claims, c.Namespace) {
			v.Backings, v.away[shadow.UID] = append(v.Backings, shadow), remote.name
		}
		v.Reals = append(v.Reals, indexed[corev1.PersistentVolume](remote.volumes, c.Namespace)...)
	}
	v.Volumes = indexed[corev1.PersistentVolume](w.home.volumes, c.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range c.claims {
		v.Reals = append(v.Reals, indexed[corev1.PersistentVolume](w.home.volumes, "twin/"+string(uid))...)
	}
	return v
}

// Claim returns the claim of a name, nil if there is none.
func (v *View) Claim(name string) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(v.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return v.Claims[i]
}

// of returns what is behind one claim, by its UID.
func (v *View) of(uid types.UID) (backings []*corev1.PersistentVolumeClaim, volumes, reals []*corev1.PersistentVolume) {
	for _, b := range v.Backings {
		if b.Labels[keys.ClaimUID] != string(uid) {
			continue
		}
		backings = append(backings, b)
		for _, real := range v.Reals {
			if real.Spec.ClaimRef.UID == b.UID {
				reals = append(reals, real)
			}
		}
	}
	for _, volume := range v.Volumes {
		if volume.Spec.ClaimRef.UID == uid {
			volumes = append(volumes, volume)
		}
	}
	return backings, volumes, reals
}

func (v *View) clusterOf(b *corev1.PersistentVolumeClaim) string {
	if b.Namespace == fabric.Storage {
		return keys.Home
	}
	return v.away[b.UID]
}
