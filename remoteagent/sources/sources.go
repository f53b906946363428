// Package sources has the informers of the remote agent, all in Sources, the handlers that several
// controllers need (OnHome, OnMade), and in kept.go what the informers keep of the objects of which
// there are many.
package sources

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// SyncTimeout limits the work of a controller on one key, and so each of its requests.
const SyncTimeout = 20 * time.Second

// Sources are the informers of the remote agent. Of the pods of others they keep only what the
// offer depends on.
type Sources struct {
	Homes, Requests   cache.SharedIndexInformer
	Namespaces, Nodes cache.SharedIndexInformer
	// Pods keeps each pod as a Pod, Shadows each ShadowPod as a Shadow.
	Pods, Shadows cache.SharedIndexInformer
	// Leases are the heartbeats of home clusters.
	Leases cache.SharedIndexInformer
	// Made are the objects, labelled with the home cluster's ID, that the agent
	// makes besides namespaces and pods.
	Made []cache.SharedIndexInformer
	// Quotas is one of Made.
	Quotas cache.SharedIndexInformer
	// Classes are the storage classes; Volumes are all volumes, each kept as a Volume.
	Classes, Volumes cache.SharedIndexInformer
	// Claims are the claims with the label of a home cluster, Healing the volumes whose claim is
	// being created again.
	Claims, Healing cache.SharedIndexInformer

	factories []informers.SharedInformerFactory
}

// New returns Sources that are not yet started.
func New(client kubernetes.Interface, remote *clients.RemoteClient) *Sources {
	all := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	made := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = keys.HomeID }))
	beats := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, keys.HeartbeatLease).String()
		}))
	healing := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = keys.Healing }))
	volumes := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(
		func(object any) (any, error) {
			if volume, ok := object.(*corev1.PersistentVolume); ok {
				return NewVolume(volume), nil
			}
			return object, nil
		}))
	index := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	s := &Sources{
		Homes:      clients.NewInformer(remote.HomeClusters(), &remotev1alpha1.HomeCluster{}, nil, cache.Indexers{}),
		Requests:   clients.NewInformer(remote.NamespaceRequests(metav1.NamespaceAll), &remotev1alpha1.NamespaceRequest{}, nil, index),
		Shadows:    clients.NewInformer(remote.ShadowPods(metav1.NamespaceAll), &remotev1alpha1.ShadowPod{}, nil, index),
		Namespaces: all.Core().V1().Namespaces().Informer(),
		Pods:       all.Core().V1().Pods().Informer(),
		Nodes:      all.Core().V1().Nodes().Informer(),
		Classes:    all.Storage().V1().StorageClasses().Informer(),
		Volumes:    volumes.Core().V1().PersistentVolumes().Informer(),
		Leases:     beats.Coordination().V1().Leases().Informer(),
		Quotas:     made.Core().V1().ResourceQuotas().Informer(),
		Claims:     made.Core().V1().PersistentVolumeClaims().Informer(),
		Healing:    healing.Core().V1().PersistentVolumes().Informer(),
		factories:  []informers.SharedInformerFactory{all, made, beats, healing, volumes},
	}
	_ = s.Shadows.SetTransform(transform)
	// They have not started: no index comes too late.
	_ = s.index()
	s.Made = []cache.SharedIndexInformer{
		s.Quotas,
		made.Core().V1().LimitRanges().Informer(),
		made.Core().V1().ServiceAccounts().Informer(),
		made.Rbac().V1().RoleBindings().Informer(),
		made.Rbac().V1().ClusterRoles().Informer(),
		made.Rbac().V1().ClusterRoleBindings().Informer(),
	}
	return s
}

// Names of the indexes.
const (
	byHome    = "lodestone/home"    // ShadowPods by the ID of their home cluster
	byWaiting = "lodestone/waiting" // ShadowPods without a pod by their namespace
)

// index adds the indexes of ShadowPods.
func (s *Sources) index() error {
	return s.Shadows.AddIndexers(indexers(map[string]func(*Shadow) string{
		byHome: func(shadow *Shadow) string { return shadow.Home },
		byWaiting: func(shadow *Shadow) string {
			if shadow.Waits {
				return shadow.Key().Namespace
			}
			return ""
		},
	}))
}

// indexers returns indexes of functions that return the one key of an object, empty for none.
func indexers[T any](keys map[string]func(*T) string) cache.Indexers {
	all := cache.Indexers{}
	for name, key := range keys {
		all[name] = func(obj any) ([]string, error) {
			if object, ok := controller.Object[*T](obj); ok && key(object) != "" {
				return []string{key(object)}, nil
			}
			return nil, nil
		}
	}
	return all
}

// ShadowsOf returns the ShadowPods of a home cluster.
func (s *Sources) ShadowsOf(home string) iter.Seq[*Shadow] {
	return controller.EachIndexed[Shadow](s.Shadows, byHome, home)
}

// WaitingIn returns the ShadowPods of a namespace for which no pod was made so far.
func (s *Sources) WaitingIn(namespace string) iter.Seq[*Shadow] {
	return controller.EachIndexed[Shadow](s.Shadows, byWaiting, namespace)
}

// OnHome calls changed for each HomeCluster that is added, deleted or has another spec.
func (s *Sources) OnHome(changed func(home *remotev1alpha1.HomeCluster)) error {
	return controller.OnChange(s.Homes, func(was, now *remotev1alpha1.HomeCluster) {
		if was == nil || now == nil || was.Generation != now.Generation {
			changed(controller.Either(was, now))
		}
	})
}

// OnClasses calls changed whenever the result of ClassesForHomes may have changed.
func (s *Sources) OnClasses(changed func()) error {
	return errors.Join(
		controller.OnChange(s.Classes, func(was, now *storagev1.StorageClass) {
			if was == nil || now == nil {
				changed()
			}
		}),
		controller.OnChange(s.Volumes, func(was, now *Volume) {
			if unclaimedOf(was) != unclaimedOf(now) {
				changed()
			}
		}),
	)
}

// unclaimedOf returns the class of which a claim could get the volume; empty if none could, or for nil.
func unclaimedOf(volume *Volume) string {
	if volume == nil {
		return ""
	}
	return volume.Unclaimed
}

// ClassesForHomes returns the storage classes of which claims of home clusters may be, as
// virtualclass.ForHomes does.
func (s *Sources) ClassesForHomes() []string {
	unclaimed := map[string]bool{}
	for volume := range controller.Each[Volume](s.Volumes) {
		unclaimed[volume.Unclaimed] = true
	}
	return virtualclass.ForHomes(controller.All[storagev1.StorageClass](s.Classes), unclaimed)
}

// OnMade calls changed for each object of Made that is added, changed or deleted, except quotas:
// their status changes with every pod.
func (s *Sources) OnMade(changed func(object metav1.Object)) error {
	call := func(obj any) {
		if object, ok := controller.Object[metav1.Object](obj); ok {
			changed(object)
		}
	}
	for _, made := range s.Made {
		if made == s.Quotas {
			continue
		}
		_, err := made.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: call, UpdateFunc: func(_, obj any) { call(obj) }, DeleteFunc: call,
		})
		if err != nil {
			return fmt.Errorf("watch what was made: %w", err)
		}
	}
	return nil
}

// Start starts the informers. They end with ctx; Shutdown waits for that.
func (s *Sources) Start(ctx context.Context) {
	for _, f := range s.factories {
		f.StartWithContext(ctx)
	}
	for _, i := range []cache.SharedIndexInformer{s.Homes, s.Requests, s.Shadows} {
		go i.RunWithContext(ctx)
	}
}

// Shutdown waits until the informers have ended.
func (s *Sources) Shutdown() {
	for _, f := range s.factories {
		f.Shutdown()
	}
}

// Synced returns for each informer the function that reports whether it has read all objects.
func (s *Sources) Synced() []cache.InformerSynced {
	synced := []cache.InformerSynced{
		s.Homes.HasSynced, s.Requests.HasSynced, s.Shadows.HasSynced,
		s.Namespaces.HasSynced, s.Pods.HasSynced, s.Nodes.HasSynced, s.Leases.HasSynced,
		s.Claims.HasSynced, s.Healing.HasSynced, s.Classes.HasSynced, s.Volumes.HasSynced,
	}
	for _, i := range s.Made {
		synced = append(synced, i.HasSynced)
	}
	return synced
}

// transform makes objects small: those of which there are many are kept as kept.go says.
func transform(object any) (any, error) {
	switch object := object.(type) {
	case *corev1.Pod:
		return NewPod(object), nil
	case *remotev1alpha1.ShadowPod:
		return NewShadow(object), nil
	case *corev1.PersistentVolumeClaim:
		object.ManagedFields = nil
		return controller.PackClaim(object), nil
	case *corev1.Node:
		return newNode(object), nil
	}
	return controller.DropManagedFields(object)
}
