// This file is what the program keeps of the home cluster: informers, their indexes, and
// how objects are made small before they are kept. The indexes can read only what the
// transform leaves, so both stand together.

package home

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
)

// Sources are the informers of the home cluster from which decisions are made. Their
// objects are stripped by Transform.
type Sources struct {
	Claims, Volumes, Classes, Nodes, Namespaces, Attachments, Pods cache.SharedIndexInformer
}

// Used says whether a namespace of a remote cluster is in use: a virtual volume has its
// data there, claims of its home namespace may have backing claims there, or pods of its
// home namespace may have copies there.
func (s Sources) Used(cluster, namespace, homeNamespace string) bool {
	for volume := range s.VolumesWithDataIn(cluster) {
		if ref, err := backing.RefOf(volume); err == nil && ref.Namespace == namespace {
			return true
		}
	}
	for _, claim := range s.Waiting() {
		if claim.Namespace == homeNamespace && claim.Annotations[keys.Routed] == cluster {
			return true
		}
	}
	for _, pod := range controller.Indexed[Pod](s.Pods, cache.NamespaceIndex, homeNamespace) {
		if pod.CopiedIn(cluster) {
			return true
		}
	}
	return false
}

// Waiting returns the claims without a volume.
func (s Sources) Waiting() []*corev1.PersistentVolumeClaim {
	return controller.Indexed[corev1.PersistentVolumeClaim](s.Claims, byWaiting, waitingKey)
}

// VolumesWithDataIn returns the virtual volumes that have their data in a cluster.
func (s Sources) VolumesWithDataIn(cluster string) iter.Seq[*corev1.PersistentVolume] {
	return func(yield func(*corev1.PersistentVolume) bool) {
		for _, uid := range append(s.ClusterUIDs(cluster), "") {
			for volume := range controller.EachIndexed[corev1.PersistentVolume](s.Volumes, byCluster, clusterKey(cluster, uid)) {
				if !yield(volume) {
					return
				}
			}
		}
	}
}

// CopiesOf returns the claims without a volume whose data source is this claim.
func (s Sources) CopiesOf(claim types.NamespacedName) []*corev1.PersistentVolumeClaim {
	return controller.Indexed[corev1.PersistentVolumeClaim](s.Claims, bySource, claim.String())
}

// MadeFrom returns the claims without a volume whose data source is this snapshot.
func (s Sources) MadeFrom(snapshot types.NamespacedName) []*corev1.PersistentVolumeClaim {
	return controller.Indexed[corev1.PersistentVolumeClaim](s.Claims, bySource, snapshotKey(snapshot))
}

// MadeFromReplica returns the claims without a volume whose data source is this VolumeReplica.
func (s Sources) MadeFromReplica(namespace, name string) []*corev1.PersistentVolumeClaim {
	return controller.Indexed[corev1.PersistentVolumeClaim](s.Claims, bySource, replicaKey(namespace, name))
}

// Names of the indexes.
const (
	byUID      = "lodestone/uid"      // claims by the bucket of their UID
	byBacking  = "lodestone/backing"  // virtual volumes by the buckets of the UIDs of their backing claim and of the one before
	byCluster  = "lodestone/cluster"  // virtual volumes by the cluster of their data and its UID
	byAttached = "lodestone/attached" // attachments by the bucket of the name of their volume
	byClaim    = "lodestone/claim"    // pods by the buckets of namespace/name of the claims they use
	bySource   = "lodestone/source"   // claims without a volume by namespace/name of what they are to be made from
	byWaiting  = "lodestone/waiting"  // claims that have no volume yet; key waitingKey
	byRestored = "lodestone/restored" // virtual volumes that were made for another claim, by the UID of the one that they have
)

const waitingKey = "waiting"

// NewSources returns the sources of a factory, with their indexes.
func NewSources(factory informers.SharedInformerFactory) (Sources, error) {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	s := Sources{
		Claims:      core.PersistentVolumeClaims().Informer(),
		Volumes:     core.PersistentVolumes().Informer(),
		Classes:     storage.StorageClasses().Informer(),
		Nodes:       core.Nodes().Informer(),
		Namespaces:  core.Namespaces().Informer(),
		Attachments: storage.VolumeAttachments().Informer(),
		Pods:        core.Pods().Informer(),
	}
	// Set it whatever the factory does: the pod indexes need a *Pod.
	if err := s.Pods.SetTransform(Transform); err != nil {
		return Sources{}, fmt.Errorf("make pods small: %w", err)
	}
	if err := s.Nodes.SetTransform(homeNode); err != nil {
		return Sources{}, fmt.Errorf("make nodes small: %w", err)
	}
	for _, index := range []struct {
		informer cache.SharedIndexInformer
		name     string
		keys     func(obj any) []string
	}{
		{s.Claims, byUID, indexed(func(claim *corev1.PersistentVolumeClaim) []string { return []string{bucket(string(claim.UID))} })},
		{s.Claims, bySource, indexed(sourceKeys)},
		{s.Claims, byWaiting, indexed(func(claim *corev1.PersistentVolumeClaim) []string {
			if claim.Spec.VolumeName == "" {
				return []string{waitingKey}
			}
			return nil
		})},
		{s.Volumes, byRestored, indexed(func(volume *corev1.PersistentVolume) []string {
			if ref := volume.Spec.ClaimRef; ref != nil && ref.UID != "" && volume.Annotations[keys.Backing] != "" &&
				backing.WasRestored(volume, ref.UID) {
				return []string{string(ref.UID)}
			}
			return nil
		})},
		{s.Volumes, byBacking, indexed(func(volume *corev1.PersistentVolume) []string { return buckets(backingsOf(volume)) })},
		{s.Volumes, byCluster, indexed(func(volume *corev1.PersistentVolume) []string {
			if ref, err := backing.RefOf(volume); err == nil {
				return []string{clusterKey(ref.Cluster, volume.Annotations[keys.ClusterUID])}
			}
			return nil
		})},
		{s.Attachments, byAttached, indexed(func(attachment *storagev1.VolumeAttachment) []string {
			if name := attachment.Spec.Source.PersistentVolumeName; name != nil {
				return []string{bucket(*name)}
			}
			return nil
		})},
		{s.Pods, byClaim, indexed(func(pod *Pod) []string { return buckets(pod.Claims) })},
	} {
		if err := index.informer.AddIndexers(cache.Indexers{index.name: func(obj any) ([]string, error) {
			return index.keys(obj), nil
		}}); err != nil {
			return Sources{}, fmt.Errorf("index %s: %w", index.name, err)
		}
	}
	return s, nil
}

// indexed returns the index function of a function on objects of type T.
func indexed[T any](keys func(*T) []string) func(obj any) []string {
	return func(obj any) []string {
		if object, ok := controller.Object[*T](obj); ok {
			return keys(object)
		}
		return nil
	}
}

// BoundOfWaitingPods returns one claim for each pod of a namespace that is not scheduled
// yet and uses claims with virtual volumes.
func (s Sources) BoundOfWaitingPods(namespace string) []*corev1.PersistentVolumeClaim {
	found := map[types.UID]*corev1.PersistentVolumeClaim{}
	for _, pod := range controller.Indexed[Pod](s.Pods, cache.NamespaceIndex, namespace) {
		if pod.Node != "" {
			continue
		}
		for _, name := range pod.Claims {
			if claim := controller.Get[corev1.PersistentVolumeClaim](s.Claims, name); claim != nil && claim.Spec.VolumeName != "" &&
				s.Virtual(claim.UID) != nil {
				found[claim.UID] = claim
				break
			}
		}
	}
	return slices.Collect(maps.Values(found))
}

// VolumesIn returns how many virtual volumes have their data in a cluster.
func (s Sources) VolumesIn(cluster string) int {
	count := 0
	for _, uid := range append(s.ClusterUIDs(cluster), "") {
		names, err := s.Volumes.GetIndexer().IndexKeys(byCluster, clusterKey(cluster, uid))
		if err == nil {
			count += len(names)
		}
	}
	return count
}

// ClusterUIDs returns, in order, the UIDs of clusters that the virtual volumes with data in a cluster
// carry: one, unless a RemoteCluster of that name has led to several.
func (s Sources) ClusterUIDs(cluster string) []string {
	var uids []string
	for _, value := range s.Volumes.GetIndexer().ListIndexFuncValues(byCluster) {
		if uid, ok := strings.CutPrefix(value, clusterKey(cluster, "")); ok && uid != "" {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// clusterKey is the key of an index by the cluster of the data and by the UID of that cluster, which
// a virtual volume carries.
func clusterKey(cluster, uid string) string { return cluster + "/" + uid }

// Virtual returns the virtual volume of a claim, nil if there is none.
func (s Sources) Virtual(uid types.UID) *corev1.PersistentVolume {
	volume := s.MadeFor(uid)
	if volume != nil && volume.Spec.ClaimRef.UID == uid {
		return volume
	}
	// Of several that say to be of one claim it has one, and nothing is done for any.
	if restored := controller.Indexed[corev1.PersistentVolume](s.Volumes, byRestored, string(uid)); len(restored) == 1 {
		return restored[0]
	}
	return nil
}

// MadeFor returns the virtual volume that was made for a claim, nil if there is none. By now it may be that of another
// claim: see backing.WasRestored.
func (s Sources) MadeFor(uid types.UID) *corev1.PersistentVolume {
	volume := controller.Get[corev1.PersistentVolume](s.Volumes, backing.VirtualName(uid))
	if volume == nil || volume.Annotations[keys.Backing] == "" || volume.Spec.ClaimRef == nil {
		return nil
	}
	return volume
}

// An index has a set for each of its keys, which needs several times the memory of the key.
// Where nearly all keys differ, many keys share one set, a bucket; a lookup filters the
// objects of its bucket.
const bucketCount = 4096

var (
	// seed differs in each process, so that nobody can choose names that all fall into one
	// bucket.
	seed        = maphash.MakeSeed()
	bucketNames = func() (names [bucketCount]string) {
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		return names
	}()
)

// bucket returns the index key of the bucket for a key.
func bucket(key string) string { return bucketNames[maphash.String(seed, key)%bucketCount] }

// buckets returns the buckets of several keys, each once.
func buckets(of []string) []string {
	if len(of) == 0 {
		return nil
	}
	names := make([]string, 0, len(of))
	for _, key := range of {
		if name := bucket(key); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// inBucket returns the objects in the bucket of a key, without those that surely do not have the key: a
// bucket has many, and to unpack each takes time.
func inBucket[T any](informer cache.SharedIndexInformer, index, key string) []*T {
	objects, err := informer.GetIndexer().ByIndex(index, bucket(key))
	if err != nil {
		return nil
	}
	var found []*T
	for _, obj := range objects {
		if !controller.MayMention(obj, key) {
			continue
		}
		if object, ok := controller.Object[*T](obj); ok {
			found = append(found, object)
		}
	}
	return found
}

// Claim returns the claim with this UID, nil if there is none.
func (s Sources) Claim(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, claim := range inBucket[corev1.PersistentVolumeClaim](s.Claims, byUID, string(uid)) {
		if claim.UID == uid {
			return claim
		}
	}
	return nil
}

// PodsOf returns the pods that use a claim, given as namespace/name.
func (s Sources) PodsOf(claim string) []*Pod {
	return slices.DeleteFunc(inBucket[Pod](s.Pods, byClaim, claim), func(pod *Pod) bool {
		return !slices.Contains(pod.Claims, claim)
	})
}

// AttachedTo returns a node that a volume, given by name, is attached to; empty if there is
// none.
func (s Sources) AttachedTo(volume string) string {
	for _, attachment := range inBucket[storagev1.VolumeAttachment](s.Attachments, byAttached, volume) {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			return attachment.Spec.NodeName
		}
	}
	return ""
}

// VolumeOf returns the virtual volume that has its data in a remote cluster and this
// handle; nil if there is none or more than one. The handle never changes, even when the
// backing claim is recreated: the volume's annotation names the present backing claim.
func (s Sources) VolumeOf(handle backing.Ref) *corev1.PersistentVolume {
	found := slices.DeleteFunc(inBucket[corev1.PersistentVolume](s.Volumes, byBacking, string(handle.UID)),
		func(volume *corev1.PersistentVolume) bool {
			return handleOf(volume) != handle.String()
		})
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// handleOf returns the handle of a virtual volume with its data in a remote cluster, empty
// for any other volume.
func handleOf(volume *corev1.PersistentVolume) string {
	if csi := volume.Spec.CSI; csi != nil && csi.Driver == keys.Driver {
		return csi.VolumeHandle
	}
	return ""
}

// backingsOf returns the UIDs of a virtual volume's present backing claim and of the one it
// was created with.
func backingsOf(volume *corev1.PersistentVolume) []string {
	var uids []string
	for _, text := range []string{volume.Annotations[keys.Backing], handleOf(volume)} {
		if ref, err := backing.ParseRef(text); err == nil {
			uids = append(uids, string(ref.UID))
		}
	}
	return uids
}

// VolumesOf returns the virtual volumes of a backing claim.
func (s Sources) VolumesOf(claim types.UID) []*corev1.PersistentVolume {
	return slices.DeleteFunc(inBucket[corev1.PersistentVolume](s.Volumes, byBacking, string(claim)),
		func(volume *corev1.PersistentVolume) bool {
			ref, err := backing.ParseRef(volume.Annotations[keys.Backing])
			return err != nil || ref.UID != claim
		})
}

// sourceKeys are the keys of the index bySource.
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
	if name := route.ReplicaOf(claim); name != "" {
		return []string{replicaKey(claim.Namespace, name)}
	}
	return nil
}

// snapshotKey is the key of a snapshot in the index bySource.
func snapshotKey(of types.NamespacedName) string { return volumesnapshot.Kind + "/" + of.String() }

// replicaKey is the key of a VolumeReplica there.
func replicaKey(namespace, name string) string { return "VolumeReplica/" + namespace + "/" + name }

var _ cache.TransformFunc = Transform

// Transform is the transform function of informers on home and remote clusters. It turns a
// pod into a *Pod, packs claims, volumes and attachments without the fields that are not
// used, and removes such fields from all other objects, whose type it keeps. It is idempotent.
func Transform(obj any) (any, error) {
	switch object := obj.(type) {
	case *Pod:
		return object, nil
	case *corev1.Pod:
		return NewPod(object), nil
	case *corev1.Node:
		// Only labels and readiness of a node are used.
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, Labels: object.Labels,
		}, Status: corev1.NodeStatus{Conditions: readiness(object)}}, nil
	case *storagev1.VolumeAttachment:
		return controller.PackAttachment(&storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
				DeletionTimestamp: object.DeletionTimestamp},
			Spec: storagev1.VolumeAttachmentSpec{NodeName: object.Spec.NodeName, Source: object.Spec.Source},
		}), nil
	case *corev1.PersistentVolumeClaim:
		bound := object.Spec.VolumeName != ""
		drop(&object.ObjectMeta, func(key string, _ string) bool {
			// The selected node of a backing claim is compared until the claim is published.
			return bound && (slices.Contains(settled, key) || key == keys.SelectedNode && object.Labels[keys.ClaimUID] == "")
		})
		return controller.PackClaim(object), nil
	case *corev1.PersistentVolume:
		drop(&object.ObjectMeta, func(key string, _ string) bool { return slices.Contains(settled, key) })
		return controller.PackVolume(object), nil
	default:
		if object, ok := obj.(metav1.Object); ok && object.GetManagedFields() != nil {
			object.SetManagedFields(nil)
		}
	}
	return obj, nil
}

// homeNode is the transform function of the nodes of home. Of those it is also used which pods they take.
func homeNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels},
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Conditions: readiness(node), Allocatable: node.Status.Allocatable},
	}, nil
}

// readiness returns the condition Ready of a node, reduced to type and status.
func readiness(node *corev1.Node) []corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: condition.Status}}
		}
	}
	return nil
}

// settled are annotations that mean nothing any more once a claim is bound.
var settled = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", keys.StorageProvisioner, keys.BetaStorageProvisioner,
}

// drop removes from metadata who manages which field, and some annotations.
func drop(m *metav1.ObjectMeta, annotations func(key, value string) bool) {
	m.ManagedFields = nil
	maps.DeleteFunc(m.Annotations, annotations)
}

// Pod has the fields of a pod that are used: its claims, and those that decide where a copy
// of it may run.
type Pod struct {
	// Of the metadata it has these. A metav1.ObjectMeta would be most of its memory.
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Finalizers      []string
	// Node is empty until the pod is scheduled.
	Node string
	// Phase is the phase in its status.
	Phase corev1.PodPhase
	// Runs says whether the pod's status reports a running container, Gated whether it waits at the gate of moves.
	Runs, Gated bool
	// Hosted says whether it is one that a remote agent has made for a pod of a home cluster.
	Hosted bool
	// Grace is the termination grace period, in seconds.
	Grace int64
	// Claims are the claims that it uses, as namespace/name, generic ephemeral volumes
	// included.
	Claims []string
}

// NewPod returns the Pod of a Kubernetes pod. Texts that many pods have are in memory once, and the others
// of a pod in one piece.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{
		Namespace: once(pod.Namespace), Node: once(pod.Spec.NodeName), Phase: corev1.PodPhase(once(string(pod.Status.Phase))),
		Runs: runs(&pod.Status), Grace: grace(pod), Gated: gated(&pod.Spec),
		Hosted: pod.Labels[keys.PodUID] != "",
	}
	for _, finalizer := range pod.Finalizers {
		p.Finalizers = append(p.Finalizers, once(finalizer))
	}
	claims := claimsOf(pod)
	rest := pod.Name + string(pod.UID) + pod.ResourceVersion + strings.Join(claims, "")
	next := func(length int) (text string) {
		text, rest = rest[:length], rest[length:]
		return text
	}
	p.Name, p.UID, p.ResourceVersion = next(len(pod.Name)), types.UID(next(len(pod.UID))), next(len(pod.ResourceVersion))
	for _, claim := range claims {
		p.Claims = append(p.Claims, next(len(claim)))
	}
	return p
}

// once returns the one instance in memory of a text.
func once(text string) string { return unique.Make(text).Value() }

// GetObjectMeta implements metav1.ObjectMetaAccessor, for caches.
func (p *Pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Finalizers: p.Finalizers}
}

// gated says whether a pod has the scheduling gate of moves.
func gated(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == keys.MovingGate })
}

// runs says whether a status reports a running container.
func runs(status *corev1.PodStatus) bool {
	for _, statuses := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses,
		status.EphemeralContainerStatuses} {
		if slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
			return true
		}
	}
	return false
}

// longestGrace limits grace periods, so that times computed with them do not overflow.
const longestGrace = 1 << 30

// grace returns the grace period of a pod, in seconds. A delete request may set a longer
// one than the spec.
func grace(pod *corev1.Pod) int64 {
	seconds := max(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds),
		ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
	return min(max(seconds, 0), longestGrace)
}

// Finished says whether the pod has succeeded or failed.
func (p *Pod) Finished() bool { return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed }

// CopiedIn reports whether a copy of a home pod may run in a cluster. Home deletes the pod
// only after it has read in that cluster that no copy runs, and needs its rights there to
// do so. The virtual node of a cluster has the cluster's name.
func (p *Pod) CopiedIn(cluster string) bool {
	return p.Node == cluster && slices.Contains(p.Finalizers, keys.RemotePodFinalizer)
}

// Ended says whether a pod is known to run no container any more. For a pod that is deleted
// the kubelet reports stopped containers first; other controllers only set the phase
// Failed, while containers may still run.
func (p *Pod) Ended() bool { return p.Finished() && !p.Runs }

// claimsOf returns the claims that a pod uses, as namespace/name.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Namespace+"/"+ephemeral.VolumeClaimName(pod, volume))
		}
	}
	return names
}
