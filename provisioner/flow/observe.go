package flow

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// observe gathers what is known of one claim, from caches alone.
// publishing is set when the volume is about to be created: then it is handed
// out already and that does not count.
func (f *Flow) observe(uid types.UID, publishing bool) decide.Observation {
	now := time.Now()
	o := decide.Observation{
		Now:       now,
		UID:       uid,
		Moving:    f.Held != nil && f.Held(uid),
		Claim:     f.written.latest(uid, virtualClaim, f.Sources.claim(uid), now),
		Volume:    f.Sources.virtual(uid),
		Unsent:    f.memory.isUnsent(uid),
		Gone:      f.memory.isGone(uid),
		Changed:   f.memory.changedFor(uid, now),
		Carried:   f.memory.carriedAt(uid),
		StandIn:   f.standIn(uid),
		HandedOut: !publishing && f.publisher.HandedOut(uid),
	}
	if later := f.memory.dueIn(uid, now); later > 0 {
		// The queue keeps the earlier time of a claim that was added twice: one that
		// was roused again meanwhile comes too early.
		f.queue.AddAfter(uid, later+time.Millisecond)
	}
	if o.Claim != nil && o.Claim.Namespace == f.Place.StorageNamespace {
		// A twin has no twin.
		o.Claim = nil
	}
	owners := f.owners(o)
	view := map[string]decide.Cluster{}
	o.Cluster = func(id string) decide.Cluster {
		if _, ok := view[id]; !ok {
			namespace := ""
			if len(owners) > 0 {
				namespace = owners[0].Namespace
			}
			view[id] = f.view(id, namespace)
		}
		return view[id]
	}
	if o.Volume != nil {
		f.observeReal(&o)
		o.Attached = f.Sources.attachedTo(o.Volume.Name)
		if o.Volume.UID != "" {
			// Stored for certain, not only in the library's cache.
			f.publisher.Forget(uid)
		}
		f.memory.settled(uid)
		o.Declined = f.memory.declinedBy(uid, now)
		o.Ungiven, o.QuietUntil = f.memory.ungivenTo(uid, now), f.memory.quietUntil(uid, now)
	}
	if o.Claim != nil {
		o.Class = f.class(o.Claim)
	}
	if o.Claim != nil && o.Volume == nil {
		f.observeUnbound(&o)
	}
	o.Backings = f.backings(uid, owners, o.Volume, f.candidates(o))
	if o.Claim == nil && o.Volume == nil {
		o.Backings = append(o.Backings, f.movedBackings(uid, owners, f.candidates(o))...)
	}
	o.MissedSince = f.memory.missedSince(uid, decide.Missed(o), now)
	o.AwaySince = f.memory.awaySince(uid, decide.Away(o), now)
	o.WaitsSince = f.memory.waitsSince(uid, decide.Waits(o), now)
	f.heard(&o)
	f.reach(&o)
	if o.Claim == nil && o.Volume == nil && len(o.Backings) > 0 {
		f.memory.setOrphan(uid)
	}
	return o
}

// observeUnbound adds what matters only while a claim has no volume.
func (f *Flow) observeUnbound(o *decide.Observation) {
	o.Namespace = one[corev1.Namespace](f.Sources.Namespaces, o.Claim.Namespace)
	if !virtualclass.Is(o.Class) {
		return
	}
	o.Source = f.source(o.Claim)
	if node := o.Claim.Annotations[keys.SelectedNode]; node != "" {
		o.Node = one[corev1.Node](f.Sources.Nodes, node)
		f.memory.start(o.UID, o.Now)
		o.Siblings = f.siblings(*o)
	} else if f.Places != nil {
		o.Places = f.Places(o.Class.Name)
	}
}

// owners returns namespace and name of the virtual claim, from whatever is left
// of it; several where only what backing claims say of it is left.
func (f *Flow) owners(o decide.Observation) []types.NamespacedName {
	switch {
	case o.Claim != nil:
		return []types.NamespacedName{{Namespace: o.Claim.Namespace, Name: o.Claim.Name}}
	case o.Volume != nil:
		return []types.NamespacedName{{Namespace: o.Volume.Spec.ClaimRef.Namespace, Name: o.Volume.Spec.ClaimRef.Name}}
	}
	return f.memory.ownersOf(o.UID)
}

// candidates returns the clusters in which a backing claim may be.
func (f *Flow) candidates(o decide.Observation) []string {
	found := map[string]bool{}
	for _, id := range f.Clusters.IDs() {
		found[id] = true
	}
	if o.Claim != nil && o.Claim.Annotations[keys.Routed] != "" {
		found[o.Claim.Annotations[keys.Routed]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// View returns what is known of a cluster for claims of a namespace.
func (f *Flow) View(id, namespace string) decide.Cluster { return f.view(id, namespace) }

// view returns what is known of a cluster for claims of a namespace.
func (f *Flow) view(id, namespace string) decide.Cluster {
	if id == keys.Home {
		var classes []*storagev1.StorageClass
		for _, obj := range f.Sources.Classes.GetStore().List() {
			if class, ok := obj.(*storagev1.StorageClass); ok {
				classes = append(classes, class)
			}
		}
		return decide.Cluster{Usable: true, Seen: true, Cluster: route.Home(classes)}
	}
	remote, cluster := f.Clusters.Object(id), f.Clusters.Get(id)
	if remote == nil || cluster == nil {
		return decide.Cluster{Cluster: route.Cluster{Known: remote != nil}, Since: time.Now(), Message: "it is being looked at for the first time"}
	}
	return cluster.View(remote, f.mapped(remote, namespace))
}

func (f *Flow) mapped(remote *v1alpha1.RemoteCluster, namespace string) string {
	return f.Place.Of(remote.Name, remote.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: namespace, Name: "-"}, "").Namespace
}
