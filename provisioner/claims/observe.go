// This file is all that is known of one claim: what the informers show now, and what this process remembers of its own steps.
// It is long because both make one observation: what informers do not show yet is taken from memory, and much of what is
// remembered is only how long something that they show has lasted.

package claims

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
	if o.Claim == nil || route.SnapshotOf(o.Claim) != "" {
		o.StandIn = f.standIn(uid)
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
		f.observeRestored(&o, owners)
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
		// What a volume names is of the claim that this has now.
		o.Backings = slices.DeleteFunc(append(o.Backings, moved...), func(b steps.Backing) bool {
			return len(f.Sources.VolumesOf(b.Claim.UID)) > 0
		})
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

// observeRestored adds what matters only for a volume that was made for another claim.
func (f *Controller) observeRestored(o *steps.Observation, owners []types.NamespacedName) {
	ref, err := backing.RefOf(o.Volume)
	if err != nil || !backing.WasRestored(o.Volume, o.UID) {
		return
	}
	for _, other := range f.Sources.VolumesOf(ref.UID) {
		if other.Name != o.Volume.Name {
			o.Another = other.Name
		}
	}
	if ref.Cluster == keys.Home {
		o.Place = f.Place.StorageNamespace
	} else if remote := f.Clusters.Object(ref.Cluster); remote != nil && len(owners) > 0 {
		o.Place = f.mapped(remote, owners[0].Namespace)
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
		f.memory.update(o.UID, func(r *remembered) { r.lastWarning = nil })
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
	ids := f.Clusters.IDs()
	if o.Claim != nil && o.Claim.Annotations[keys.Routed] != "" {
		ids = append(ids, o.Claim.Annotations[keys.Routed])
	}
	slices.Sort(ids)
	return slices.Compact(ids)
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
	if b == nil || !backing.IsOf(b, uid, f.Place.HomeID) && !f.isOfRestored(b, uid, id, volume) || backing.Spare(b, volume) {
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

// isOfRestored says whether a backing claim in a cluster is the one that the volume of a restored claim
// names, by UID: it still carries the UID of the claim before. Only administrators write volumes.
func (f *Controller) isOfRestored(b *corev1.PersistentVolumeClaim, uid types.UID, cluster string, volume *corev1.PersistentVolume) bool {
	if volume == nil || !backing.WasRestored(volume, uid) {
		return false
	}
	ref, err := backing.RefOf(volume)
	return err == nil && ref == backing.RefTo(cluster, b) && b.Labels[keys.HomeID] == f.Place.HomeID
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
	if v := f.version(claim); v != nil {
		return &steps.Source{Version: v}
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

// version returns the state of the version of a VolumeReplica that a claim is to be made from, nil if it
// has no such source.
func (f *Controller) version(claim *corev1.PersistentVolumeClaim) *steps.Version {
	name := route.ReplicaOf(claim)
	if name == "" {
		return nil
	}
	v := &steps.Version{}
	if f.Replica != nil {
		v.Replica = f.Replica(claim.Namespace, name)
	}
	if v.Replica == nil {
		return v
	}
	version, of := v.Replica.Version(claim.Annotations[keys.ReplicaVersion]), decide.PartOf(v.Replica, claim)
	if version == nil || of < 0 {
		return v
	}
	v.Sealed = version.At(of)
	head := v.Replica.Head
	at := types.NamespacedName{Namespace: head.Namespace, Name: v.Sealed.Name}
	if head.Cluster == keys.Home {
		v.Place, v.There = f.Place.StorageNamespace, f.Snapshots.Snapshot(at)
		return v
	}
	if seen := f.view(head.Cluster, claim.Namespace); !seen.Usable {
		v.Away = cmp.Or(seen.Message, "it cannot be used now")
	}
	if remote, cluster := f.Clusters.Object(head.Cluster), f.Clusters.Get(head.Cluster); remote != nil && cluster != nil {
		v.Place, v.There = f.mapped(remote, claim.Namespace), cluster.Snapshot(at)
	}
	return v
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

// memory is the state of claims between steps. All of it may be lost at any time: it only
// saves requests, events and waiting. It is safe for concurrent use.
type memory struct {
	mu     sync.Mutex
	claims map[types.UID]*remembered
}

// remembered is the state of one claim. There may be many claims, and most of their fields
// are empty.
type remembered struct {
	facts
	// owners are the keys of the virtual claim according to the labels of its backing
	// claims: all that is left once the virtual claim is gone. If they differ, at most one
	// is true and the others are forged.
	owners []types.NamespacedName
	// moved are the names of backing claims that moves created.
	moved []string
	// written are the results of this process's last writes, by cluster: of backing claims,
	// and of the virtual claim under virtualClaim. Until the informers show a write,
	// observing without them would repeat it or act on the earlier state.
	written map[string]write
}

// facts is comparable: what a pointer points to is replaced, never changed.
type facts struct {
	// unsent: no request for a backing claim has left this process. gone: backing claim and
	// real volume are gone. orphan: only a backing claim is left.
	unsent, gone, orphan bool
	// change is the change for which the claim must still be written, so that its pods are
	// retried.
	change *change
	// selected is when the claim was first observed with a node, synced when labels and
	// annotations of its backing claim were last written.
	selected, synced *time.Time
	// lastEvent is the claim's last event.
	lastEvent *noted
	// lasting has the conditions of which the duration matters, each with the time it
	// began.
	lasting [lastings]*noted

	refusedSize       *refusedSize
	refusedAttributes *steps.RefusedAttributes
	lastWarning       *lastWarning
	budget            *budget
}

// noted is a text and the time since when it holds.
type noted struct {
	what string
	when time.Time
}

// The indexes of facts.lasting.
const (
	backingMissed = iota
	backingAwaited
	clusterAway
	pendingCondition
	lastings
)

// change is a change for which the pods of a claim must be retried, not before due, and once more later.
type change struct {
	what string
	due  time.Time
	// last: the pods were retried once already.
	last bool
}

func newMemory() memory { return memory{claims: map[types.UID]*remembered{}} }

// of returns the state of a claim. The caller must not change it.
func (m *memory) of(claim types.UID) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.claims[claim]; r != nil {
		return *r
	}
	return remembered{}
}

func (m *memory) update(claim types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.claims[claim]
	if r == nil {
		r = &remembered{}
	}
	change(r)
	if r.facts == (facts{}) && r.owners == nil && r.moved == nil && len(r.written) == 0 {
		delete(m.claims, claim)
		return
	}
	m.claims[claim] = r
}

func (m *memory) forget(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, claim)
}

// settled drops the state that matters only until a claim has its volume.
func (m *memory) settled(claim types.UID) {
	m.update(claim, func(r *remembered) { r.unsent, r.selected = false, nil })
}

func (m *memory) setUnsent(claim types.UID, unsent bool) {
	m.update(claim, func(r *remembered) { r.unsent = unsent })
}

// setChange records a change for which the pods of a claim must be retried, not before due.
func (m *memory) setChange(claim types.UID, what string, due time.Time) {
	m.update(claim, func(r *remembered) { r.change = &change{what: what, due: due} })
}

// retryAgain is when pods are retried for the second time: an extender on a busy machine may not have seen the change before the
// first, and kube-scheduler would then set them aside until something else changes.
const retryAgain = 10 * time.Second

// retried records that the pods of a claim are retried for the change that is due by now.
func (m *memory) retried(claim types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		switch {
		case r.change == nil || now.Before(r.change.due):
		case r.change.last:
			r.change = nil
		default:
			r.change = &change{what: r.change.what, due: now.Add(retryAgain), last: true}
		}
	})
}

// dueIn returns after what time the change is due; 0 if it is due or there is none.
func (f facts) dueIn(now time.Time) time.Duration {
	if f.change == nil {
		return 0
	}
	return max(0, f.change.due.Sub(now))
}

// changed returns the change that is due; empty for none.
func (f facts) changed(now time.Time) string {
	if f.change == nil || now.Before(f.change.due) {
		return ""
	}
	return f.change.what
}

// selectedAt returns when a claim was first observed with a selected node.
func (m *memory) selectedAt(claim types.UID, now time.Time) (at time.Time) {
	m.update(claim, func(r *remembered) {
		if r.selected == nil {
			r.selected = &now
		}
		at = *r.selected
	})
	return at
}

// syncedAt is when labels and annotations were last written on the backing claim; zero if
// never.
func (f facts) syncedAt() time.Time {
	if f.synced == nil {
		return time.Time{}
	}
	return *f.synced
}

// since records that what holds for a claim now, empty for nothing, and returns since when
// it does; zero for nothing.
func (m *memory) since(claim types.UID, which int, what string, now time.Time) (since time.Time) {
	m.update(claim, func(r *remembered) {
		switch last := r.lasting[which]; {
		case what == "":
			r.lasting[which] = nil
		case last == nil || last.what != what:
			r.lasting[which] = &noted{what: what, when: now}
			since = now
		default:
			since = last.when
		}
	})
	return since
}

// sinceTrue is since for a condition that is either true or false.
func (m *memory) sinceTrue(claim types.UID, which int, is bool, now time.Time) time.Time {
	what := ""
	if is {
		what = "so"
	}
	return m.since(claim, which, what, now)
}

// orphans returns the claims of which only a backing claim is left.
func (m *memory) orphans() (claims []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for claim, r := range m.claims {
		if r.orphan {
			claims = append(claims, claim)
		}
	}
	return claims
}

// maxOwners limits the owners kept for one claim: backing claims in a remote cluster can be
// forged, each with another owner.
const maxOwners = 16

func added[T comparable](have []T, one T) []T {
	if slices.Contains(have, one) || len(have) >= maxOwners {
		return have
	}
	return append(slices.Clip(have), one)
}

// virtualClaim is the key of the virtual claim in remembered.written, where other keys are
// clusters.
const virtualClaim = ""

// write is the result of a write of this process.
type write struct {
	result *corev1.PersistentVolumeClaim
	// created is true as long as all writes since the claim's creation were made before the
	// cache showed it.
	created bool
	at      time.Time
}

// setWritten records the result of a write on top of what the cache had, nil for nothing. A
// result with another UID is ignored.
func (m *memory) setWritten(claim types.UID, cluster string, seen, result *corev1.PersistentVolumeClaim) {
	if cluster != keys.Home {
		if seen != nil && (result.UID != seen.UID || result.Namespace != seen.Namespace || result.Name != seen.Name) {
			return
		}
		if trusted, err := remote.Trusted(result); err == nil {
			result, _ = trusted.(*corev1.PersistentVolumeClaim)
		}
	}
	m.update(claim, func(r *remembered) {
		last, ok := r.written[cluster]
		// What was observed may be the result of the previous write.
		created := seen == nil || ok && last.created && last.result.UID == seen.UID && last.result.ResourceVersion == seen.ResourceVersion
		if r.written == nil {
			r.written = map[string]write{}
		}
		r.written[cluster] = write{result: result, created: created, at: time.Now()}
	})
}

// dropWritten drops the result of a write, for example because the backing claim was
// deleted since.
func (m *memory) dropWritten(claim types.UID, cluster string) {
	m.update(claim, func(r *remembered) { delete(r.written, cluster) })
}

// latest returns the newer of the cached claim and the written one.
func (m *memory) latest(claim types.UID, cluster string, seen *corev1.PersistentVolumeClaim, now time.Time) *corev1.PersistentVolumeClaim {
	latest := seen
	m.update(claim, func(r *remembered) {
		last, ok := r.written[cluster]
		if !ok {
			return
		}
		behind := seen == nil && last.created
		if seen != nil && seen.UID == last.result.UID {
			order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, last.result.ResourceVersion)
			behind = err == nil && order < 0
		}
		if behind && now.Sub(last.at) < safetyNet {
			latest = last.result
			return
		}
		delete(r.written, cluster)
	})
	return latest
}

// What a remote cluster reports of a volume may be written at home reflections times in a
// row, then once in reflectPause. An expansion needs few writes; a cluster that changes its
// report constantly must not cause more.
const (
	reflections  = 6
	reflectPause = 15 * time.Second
)

// budget is how many writes were left at a time.
type budget struct {
	left int
	at   time.Time
}

// refilled returns the budget at a later time.
func (b budget) refilled(now time.Time) budget {
	if n := int(now.Sub(b.at) / reflectPause); n > 0 {
		b.left, b.at = min(reflections, b.left+n), b.at.Add(time.Duration(n)*reflectPause)
	}
	return b
}

// spend counts a write at home of what a remote cluster reports of the claim's volume.
func (m *memory) spend(claim types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		b := budget{left: reflections, at: now}
		if r.budget != nil {
			b = r.budget.refilled(now)
		}
		if b.left == reflections {
			b.at = now // Time beyond a full budget does not count.
		}
		b.left = max(0, b.left-1)
		r.budget = &b
	})
}

// quietUntil returns until when no such write is allowed; zero if it is allowed now.
func (m *memory) quietUntil(claim types.UID, now time.Time) (until time.Time) {
	m.update(claim, func(r *remembered) {
		if r.budget == nil {
			return
		}
		switch b := r.budget.refilled(now); b.left {
		case reflections:
			r.budget = nil // a full budget, as before any write
		case 0:
			until = b.at.Add(reflectPause)
		}
	})
	return until
}

// warning returns the last warning about the backing claim, nil if its events were not
// read.
func (f facts) warning() *steps.LastWarning {
	if f.lastWarning == nil {
		return nil
	}
	return &f.lastWarning.LastWarning
}

// sizeRefused returns the refused size, nil once it may be requested again.
func (f facts) sizeRefused(now time.Time) *steps.RefusedSize {
	if f.refusedSize == nil || !now.Before(f.refusedSize.Until) {
		return nil
	}
	return &f.refusedSize.RefusedSize
}

// attributesRefused returns the attributes that were refused recently, nil for none.
func (f facts) attributesRefused(now time.Time) *steps.RefusedAttributes {
	if f.refusedAttributes == nil || !now.Before(f.refusedAttributes.Until) {
		return nil
	}
	return f.refusedAttributes
}
