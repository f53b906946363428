package flow

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/mapped"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// Sources are the informers of the home cluster that decisions are made from. Their
// objects are as package slim makes them.
type Sources struct {
	Claims, Volumes, Classes, Nodes, Namespaces, Attachments, Pods cache.SharedIndexInformer
}

// Used says whether virtual volumes have their data in a namespace of a cluster,
// claims of the home namespace that it belongs to may have backing claims there,
// or pods of that may have copies there.
func (s Sources) Used(cluster, namespace, home string) bool {
	for _, volume := range indexed[corev1.PersistentVolume](s.Volumes, byCluster, cluster) {
		if ref, err := backing.RefOf(volume); err == nil && ref.Namespace == namespace {
			return true
		}
	}
	for _, claim := range indexed[corev1.PersistentVolumeClaim](s.Claims, byWaiting, waitingKey) {
		if claim.Namespace == home && claim.Annotations[keys.Routed] == cluster {
			return true
		}
	}
	for _, pod := range indexed[slim.Pod](s.Pods, cache.NamespaceIndex, home) {
		if mapped.Copied(pod, cluster) {
			return true
		}
	}
	return false
}

// Names of the indexes.
const (
	byUID     = "lodestone/uid"     // claims by the bucket of their UID
	byBacking = "lodestone/backing" // virtual volumes by the buckets of the UIDs of their backing claim and of the one before
	byCluster = "lodestone/cluster" // virtual volumes by the cluster of their data
	byVolume  = "lodestone/volume"  // attachments by the bucket of the name of their volume
	byClaim   = "lodestone/claim"   // pods by the buckets of namespace/name of the claims they use
	bySource  = "lodestone/source"  // claims without a volume by namespace/name of what they are to be made from
	byWaiting = "lodestone/waiting" // claims that have no volume yet; key waitingKey
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
	// Whatever the factory does: only so are pods found.
	if err := s.Pods.SetTransform(slim.Object); err != nil {
		return Sources{}, fmt.Errorf("make pods small: %w", err)
	}
	for _, index := range []struct {
		informer cache.SharedIndexInformer
		name     string
		keys     func(obj any) []string
	}{
		{s.Claims, byUID, func(obj any) []string { return []string{bucket(string(obj.(*corev1.PersistentVolumeClaim).UID))} }},
		{s.Claims, bySource, func(obj any) []string { return sourceKeys(obj.(*corev1.PersistentVolumeClaim)) }},
		{s.Claims, byWaiting, func(obj any) []string {
			if obj.(*corev1.PersistentVolumeClaim).Spec.VolumeName == "" {
				return []string{waitingKey}
			}
			return nil
		}},
		{s.Volumes, byBacking, func(obj any) []string {
			return buckets(backingsOf(obj.(*corev1.PersistentVolume)))
		}},
		{s.Volumes, byCluster, func(obj any) []string {
			if ref, err := backing.RefOf(obj.(*corev1.PersistentVolume)); err == nil {
				return []string{ref.Cluster}
			}
			return nil
		}},
		{s.Attachments, byVolume, func(obj any) []string {
			if name := obj.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
				return []string{bucket(*name)}
			}
			return nil
		}},
		{s.Pods, byClaim, func(obj any) []string { return buckets(obj.(*slim.Pod).Claims) }},
	} {
		if err := index.informer.AddIndexers(cache.Indexers{index.name: func(obj any) ([]string, error) { return index.keys(obj), nil }}); err != nil {
			return Sources{}, fmt.Errorf("index %s: %w", index.name, err)
		}
	}
	return s, nil
}

// boundOfWaitingPods returns, for each pod of a namespace that waits for a node
// and has claims with virtual volumes, one of these claims.
func (s Sources) boundOfWaitingPods(namespace string) []*corev1.PersistentVolumeClaim {
	found := map[types.UID]*corev1.PersistentVolumeClaim{}
	for _, pod := range indexed[slim.Pod](s.Pods, cache.NamespaceIndex, namespace) {
		if pod.Node != "" {
			continue
		}
		for _, name := range pod.Claims {
			if claim := one[corev1.PersistentVolumeClaim](s.Claims, name); claim != nil && claim.Spec.VolumeName != "" && s.virtual(claim.UID) != nil {
				found[claim.UID] = claim
				break
			}
		}
	}
	return slices.Collect(maps.Values(found))
}

// VolumesIn returns how many virtual volumes have their data in a cluster.
func (s Sources) VolumesIn(cluster string) int {
	names, err := s.Volumes.GetIndexer().IndexKeys(byCluster, cluster)
	if err != nil {
		return 0
	}
	return len(names)
}

func one[T any](informer cache.SharedIndexInformer, key string) *T {
	obj, ok, err := informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	typed, _ := obj.(*T)
	return typed
}

func indexed[T any](informer cache.SharedIndexInformer, index, key string) []*T {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		return nil
	}
	result := make([]*T, 0, len(objects))
	for _, obj := range objects {
		if typed, ok := obj.(*T); ok {
			result = append(result, typed)
		}
	}
	return result
}

// virtual returns the virtual volume of a claim, nil if there is none.
func (s Sources) virtual(uid types.UID) *corev1.PersistentVolume {
	volume := one[corev1.PersistentVolume](s.Volumes, "pvc-"+string(uid))
	if volume == nil || volume.Annotations[keys.Backing] == "" || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != uid {
		return nil
	}
	return volume
}
