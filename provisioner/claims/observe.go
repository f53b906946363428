package claims

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/nodeaccess"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// observe gathers the observation of one claim, from caches only. With publishing set the
// volume is about to be created; then HandedOut is ignored.
func (f *Controller) observe(uid types.UID, publishing bool) steps.Observation {
	now := time.Now()
	known := f.memory.of(uid)
	o := steps.Observation{
		Now:       now,
		UID:       uid,
		Moving:    f.Held != nil && f.Held(uid),
		Claim:     f.memory.latest(uid, virtualClaim, f.Sources.Claim(uid), now),
		Volume:    f.Sources.Virtual(uid),
		Unsent:    known.unsent,
		Gone:      known.gone,
		Changed:   known.changed(now),
		Synced:    known.syncedAt(),
		StandIn:   f.standIn(uid),
		HandedOut: !publishing && f.Publisher.HandedOut(uid),
	}
	if later := known.dueIn(now); later > 0 {
		// The queue keeps the earlier time of a claim that was added twice, so such a claim
		// may come too early.
		f.queue.AddAfter(uid, later+time.Millisecond)
	}
	if o.Claim != nil && o.Claim.Namespace == f.Place.StorageNamespace {
		// A backing claim at home gets no backing claim itself.
		o.Claim = nil
	}
	owners := f.owners(o)
	view := map[string]steps.Cluster{}
	o.Cluster = func(id string) steps.Cluster {
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
		o.Attached = f.Sources.AttachedTo(o.Volume.Name)
		if o.Volume.UID != "" {
			// The API server has stored it; before, it may have been in the library's store
			// only.
			f.Publisher.Forget(uid)
		}
		f.memory.settled(uid)
		o.RefusedSize = known.sizeRefused(now)
		o.RefusedAttributes, o.QuietUntil = known.attributesRefused(now), f.memory.quietUntil(uid, now)
	}
	if o.Claim != nil {
		o.Class = f.class(o.Claim)
	}
	if o.Claim != nil && o.Volume == nil {
		f.observeUnbound(&o)
	}
	o.Backings = f.backings(uid, owners, o.Volume, f.candidates(o))
	moved := f.movedBackings(uid, owners, o.Volume, f.candidates(o))
	if o.Claim == nil && o.Volume == nil {
		o.Backings = append(o.Backings, moved...)
	}
	if o.Volume != nil && len(owners) == 1 {
		o.Standing = f.Place.Compare(o.Volume, owners[0], uid, copiesOf(o.Backings, moved))
	}
	o.MissedSince = f.memory.sinceTrue(uid, backingMissed, decide.BackingMissed(o), now)
	o.AwaySince = f.memory.sinceTrue(uid, clusterAway, decide.ClusterSilent(o), now)
	o.WaitsSince = f.memory.since(uid, backingAwaited, decide.WaitsFor(o), now)
	f.addLastWarning(&o)
	f.addNodeAccess(&o)
	if o.Claim == nil && o.Volume == nil && len(o.Backings) > 0 {
		f.memory.update(uid, func(r *remembered) { r.orphan = true })
	}
	return o
}

// observeUnbound adds what matters only while a claim has no volume.
func (f *Controller) observeUnbound(o *steps.Observation) {
	o.Namespace = controller.Get[corev1.Namespace](f.Sources.Namespaces, o.Claim.Namespace)
	if !virtualclass.Is(o.Class) {
		return
	}
	o.Source = f.source(o.Claim)
	if node := o.Claim.Annotations[keys.SelectedNode]; node != "" {
		o.Node = controller.Get[corev1.Node](f.Sources.Nodes, node)
		f.memory.selectedAt(o.UID, o.Now)
		o.Siblings = f.siblings(*o)
	} else if f.Places != nil {
		o.Places = f.Places(o.Class.Name)
	}
}

// observeReal adds what matters only once there is a virtual volume.
func (f *Controller) observeReal(o *steps.Observation) {
	ref, err := backing.RefOf(o.Volume)
	name := o.Volume.Annotations[keys.BackingVolume]
	switch {
	case err != nil:
	case ref.Cluster != keys.Home:
		if cluster := f.Clusters.Get(ref.Cluster); cluster != nil {
			o.Real = cluster.Volume(name)
		}
	default:
		o.Real = controller.Get[corev1.PersistentVolume](f.Sources.Volumes, name)
		storage := controller.Get[corev1.Namespace](f.Sources.Namespaces, f.Place.StorageNamespace)
		o.StorageLeaving = storage == nil || storage.DeletionTimestamp != nil
	}
}

// addLastWarning adds the last warning event of a waiting backing claim, and drops it once
// that no longer waits.
func (f *Controller) addLastWarning(o *steps.Observation) {
	if o.LastWarning = f.memory.of(o.UID).warning(); o.LastWarning == nil {
		return
	}
	waits := slices.ContainsFunc(o.Backings, func(b steps.Backing) bool {
		return b.Claim.UID == o.LastWarning.Backing && b.Claim.Status.Phase != corev1.ClaimBound
	})
	if !waits {
		f.memory.dropLastWarning(o.UID)
		o.LastWarning = nil
	}
}

// addNodeAccess adds whether any node, and any ready node, is left on which the real
// volumes of a claim can be used. That matters only once there is a virtual volume.
func (f *Controller) addNodeAccess(o *steps.Observation) {
	if o.Volume == nil {
		return
	}
	for i := range o.Backings {
		b := &o.Backings[i]
		switch {
		case !nodeaccess.Confined(b.Volume):
		case b.Cluster == keys.Home:
			b.NodesGone, b.NodesDown = nodeaccess.Lost(b.Volume, f.Sources.Nodes.GetStore())
		default:
			if cluster := f.Clusters.Get(b.Cluster); cluster != nil {
				b.NodesGone, b.NodesDown = cluster.NodesGone(b.Volume)
			}
		}
	}
}

// owners returns the key of the virtual claim, from whatever is left of it; several if only
// the labels of backing claims are left and they differ.
func (f *Controller) owners(o steps.Observation) []types.NamespacedName {
	switch {
	case o.Claim != nil:
		return []types.NamespacedName{{Namespace: o.Claim.Namespace, Name: o.Claim.Name}}
	case o.Volume != nil:
		return []types.NamespacedName{{Namespace: o.Volume.Spec.ClaimRef.Namespace, Name: o.Volume.Spec.ClaimRef.Name}}
	}
	return f.memory.of(o.UID).owners
}

// candidates returns the clusters in which a backing claim may be.
func (f *Controller) candidates(o steps.Observation) []string {
	found := map[string]bool{}
	for _, id := range f.Clusters.IDs() {
		found[id] = true
	}
	if o.Claim != nil && o.Claim.Annotations[keys.Routed] != "" {
		found[o.Claim.Annotations[keys.Routed]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// View returns the state of a cluster for claims of a namespace.
func (f *Controller) View(id, namespace string) steps.Cluster { return f.view(id, namespace) }

// view implements View.
func (f *Controller) view(id, namespace string) steps.Cluster {
	if id == keys.Home {
		return steps.Cluster{Usable: true, Seen: true,
			ClusterClasses: route.HomeClasses(controller.All[storagev1.StorageClass](f.Sources.Classes))}
	}
	remote, cluster := f.Clusters.Object(id), f.Clusters.Get(id)
	if remote == nil || cluster == nil {
		return steps.Cluster{ClusterClasses: route.ClusterClasses{Known: remote != nil}, Since: time.Now(),
			Message: "it is being looked at for the first time"}
	}
	return cluster.View(remote, f.mapped(remote, namespace))
}

func (f *Controller) mapped(remote *v1alpha1.RemoteCluster, namespace string) string {
	return f.Place.Of(remote.Name, remote.Spec.Namespaces.Strategy, types.NamespacedName{Namespace: namespace, Name: "-"}, "").Namespace
}

// backings returns the backing claims of a claim. volume is its virtual volume, nil if it
// has none.
func (f *Controller) backings(uid types.UID, owners []types.NamespacedName, volume *corev1.PersistentVolume,
	remotes []string) []steps.Backing {
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

// copiesOf returns backing claims in the form in which they are compared.
func copiesOf(lists ...[]steps.Backing) []backing.Copy {
	var copies []backing.Copy
	for _, list := range lists {
		for _, b := range list {
			copies = append(copies, backing.Copy{Cluster: b.Cluster, Claim: b.Claim})
		}
	}
	return copies
}

// movedBackings returns the backing claims that moves created under names of their own: for a claim of which nothing is
// left that names them, or whose volume may stand for an older one.
func (f *Controller) movedBackings(uid types.UID, owners []types.NamespacedName, volume *corev1.PersistentVolume,
	remotes []string) []steps.Backing {
	var result []steps.Backing
	for _, name := range f.memory.of(uid).moved {
		result = f.backingAt(result, uid, keys.Home, types.NamespacedName{Namespace: f.Place.StorageNamespace, Name: name}, volume, false)
		for _, id := range remotes {
			remote := f.Clusters.Object(id)
			if remote == nil {
				continue
			}
			for _, owner := range owners {
				at := types.NamespacedName{Namespace: f.mapped(remote, owner.Namespace), Name: name}
				result = f.backingAt(result, uid, id, at, volume, false)
			}
		}
	}
	return result
}

// backingAt adds the backing claim with this key in a cluster, if it belongs to the claim;
// written says that this process's last write may be newer than the cache.
func (f *Controller) backingAt(found []steps.Backing, uid types.UID, id string, at types.NamespacedName, volume *corev1.PersistentVolume,
	written bool) []steps.Backing {
	var b *corev1.PersistentVolumeClaim
	var real *corev1.PersistentVolume
	clusterUID := ""
	if id == keys.Home {
		b = controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, at.String())
	} else if cluster := f.Clusters.Get(id); cluster != nil {
		b, real, clusterUID = cluster.Backing(at)
	} else {
		return found
	}
	if written {
		if newer := f.memory.latest(uid, id, b, time.Now()); newer != nil && newer.Namespace == at.Namespace && newer.Name == at.Name {
			b = newer
		}
	}
	if b == nil || !backing.IsOf(b, uid, f.Place.HomeID) || backing.Spare(b, volume) {
		return found
	}
	var made *corev1.PersistentVolume
	if id == keys.Home {
		real = remote.Bound(f.Sources.Volumes, b)
		if b.Spec.VolumeName == "" {
			// Provisioners name a volume so. One of another name is known once it is bound: an index would need memory.
			made = controller.Get[corev1.PersistentVolume](f.Sources.Volumes, "pvc-"+string(b.UID))
		}
	}
	return append(found, steps.Backing{Cluster: id, ClusterUID: clusterUID, Claim: b, Volume: real, Made: made})
}

// siblings returns the other unbound virtual claims that every pod using the claim uses
// too: kube-scheduler chooses one node for all of them.
func (f *Controller) siblings(o steps.Observation) []steps.Sibling {
	self := o.Claim.Namespace + "/" + o.Claim.Name
	var common []string
	first := true
	for _, pod := range f.Sources.PodsOf(self) {
		if pod.Finished() {
			continue
		}
		names := pod.Claims
		if first {
			common, first = slices.Clone(names), false
			continue
		}
		common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(names, name) })
	}
	var result []steps.Sibling
	for _, name := range common {
		claim := controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, name)
		if name == self || claim == nil || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || f.isSourceOf(o.Claim, claim) ||
			!virtualclass.Is(controller.Get[storagev1.StorageClass](f.Sources.Classes, className(claim))) {
			continue
		}
		result = append(result, steps.Sibling{Claim: claim, Ready: f.ready(claim, o.Node)})
	}
	return result
}

// ready says whether a claim has a volume that can be used on a node, or could get one at
// once.
func (f *Controller) ready(claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	if f.Sources.Virtual(claim.UID) != nil {
		return true
	}
	if node == nil || claim.Annotations[keys.SelectedNode] != node.Name {
		return false
	}
	class, err := virtualclass.Parse(controller.Get[storagev1.StorageClass](f.Sources.Classes, className(claim)))
	if err != nil {
		return false
	}
	to, err := route.To(route.Input{
		Claim: claim, Class: class, Node: node, Namespace: controller.Get[corev1.Namespace](f.Sources.Namespaces, claim.Namespace),
		Cluster: func(id string) route.ClusterClasses { return f.view(id, claim.Namespace).ClusterClasses },
	})
	if err != nil {
		return false
	}
	owner := []types.NamespacedName{{Namespace: claim.Namespace, Name: claim.Name}}
	for _, b := range f.backings(claim.UID, owner, nil, []string{locality.OfNode(node.Labels)}) {
		if b.Cluster == to.Cluster {
			_, obstacle := decide.CopyFrom(claim, f.source(claim), to)
			return decide.Ready(b, to) && (obstacle == nil || b.Claim.Status.Phase == corev1.ClaimBound)
		}
	}
	return false
}

// source returns the state of the claim's data source, nil if it has none.
func (f *Controller) source(claim *corev1.PersistentVolumeClaim) *steps.Source {
	if s := f.snapshot(claim); s != nil {
		return &steps.Source{Snapshot: s}
	}
	name, err := route.CopyOf(claim)
	if err != nil || name == "" {
		return nil
	}
	owner := types.NamespacedName{Namespace: claim.Namespace, Name: name}
	s := &steps.Source{Claim: controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, owner.String())}
	if s.Claim == nil {
		return s
	}
	if s.Volume = f.Sources.Virtual(s.Claim.UID); s.Volume == nil {
		s.Foreign = f.notVirtual(s.Claim)
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

// notVirtual says whether a claim certainly has, or will get, a volume that is not virtual.
// Caches may lag: what they lack proves nothing.
func (f *Controller) notVirtual(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.VolumeName != "" {
		return controller.Get[corev1.PersistentVolume](f.Sources.Volumes, claim.Spec.VolumeName) != nil
	}
	class := controller.Get[storagev1.StorageClass](f.Sources.Classes, className(claim))
	return class != nil && !virtualclass.Is(class)
}

// isSourceOf says whether a claim is the source of another, directly or through other
// copies: then it need not wait for that one.
func (f *Controller) isSourceOf(claim, of *corev1.PersistentVolumeClaim) bool {
	const generations = 8
	for range generations {
		name, err := route.CopyOf(of)
		if err != nil || name == "" || of.Spec.VolumeName != "" {
			return false
		}
		if name == claim.Name {
			return true
		}
		if of = controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, claim.Namespace+"/"+name); of == nil {
			return false
		}
	}
	return false
}

// snapshot returns the state of the claim's source snapshot, nil if it has none.
func (f *Controller) snapshot(claim *corev1.PersistentVolumeClaim) *steps.Snapshot {
	name := route.SnapshotOf(claim)
	if name == "" {
		return nil
	}
	state := f.Snapshots.State()
	s := &steps.Snapshot{Unknown: state == home.Unknown, Absent: state == home.Absent, At: f.twin(claim.UID)}
	if s.Absent {
		f.Snapshots.Discover()
	}
	if s.Object = f.Snapshots.Snapshot(types.NamespacedName{Namespace: claim.Namespace, Name: name}); s.Object == nil {
		return s
	}
	if s.Content = f.Snapshots.Content(ptr.Deref(s.Object.Status.ContentName, "")); s.Content == nil || s.Content.Spec.Driver != keys.Driver {
		return s
	}
	if ref, err := backing.ParseRef(ptr.Deref(s.Content.Status.SnapshotHandle, "")); err == nil {
		if cluster := f.Clusters.Get(ref.Cluster); cluster != nil {
			s.There = cluster.Snapshot(ref.Key())
			s.Driver = takenBy(cluster, s)
		}
	}
	return s
}

// takenBy returns the driver that took the snapshot behind a claim's source in a remote cluster. Of one
// that was taken with others it is written on what was taken.
func takenBy(cluster *remote.Cluster, s *steps.Snapshot) string {
	if handle := s.Content.Annotations[volumesnapshot.MemberOf]; handle != "" {
		ref, err := backing.ParseRef(handle)
		if err != nil {
			return ""
		}
		if group, _ := cluster.Group(ref.Key()); group != nil && group.UID == ref.UID {
			return group.Annotations[keys.MadeBy]
		}
		return ""
	}
	if s.There == nil {
		return ""
	}
	return s.There.Annotations[keys.MadeBy]
}

func (f *Controller) twin(claim types.UID) types.NamespacedName {
	return f.Place.Of(keys.Home, "", types.NamespacedName{}, claim)
}

// standIn returns the stand-in for the twin of a claim. An object of that name that others
// created is none.
func (f *Controller) standIn(claim types.UID) steps.StandIn {
	at := f.twin(claim)
	in := steps.StandIn{Object: f.Snapshots.Snapshot(at), Content: f.Snapshots.Content(volumesnapshot.StandInContent(at.Name))}
	if in.Object != nil && !volumesnapshot.Ours(in.Object, claim, f.Place.HomeID) {
		in.Object = nil
	}
	if in.Content != nil && !volumesnapshot.Ours(in.Content, claim, f.Place.HomeID) {
		in.Content = nil
	}
	return in
}

// class returns the storage class of a claim, nil if it does not exist.
func (f *Controller) class(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if name := className(claim); name != "" {
		return controller.Get[storagev1.StorageClass](f.Sources.Classes, name)
	}
	return nil
}

func className(claim *corev1.PersistentVolumeClaim) string {
	return volumehelpers.GetPersistentVolumeClaimClass(claim)
}
