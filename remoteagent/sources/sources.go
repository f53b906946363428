// Package sources watches what the remote agent works on.
package sources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// Sources are the informers of the remote agent. Pods of others keep only what
// the offer depends on.
type Sources struct {
	Homes, Requests, Shadows cache.SharedIndexInformer
	Namespaces, Pods, Nodes  cache.SharedIndexInformer
	// Leases are the heartbeats.
	Leases cache.SharedIndexInformer
	// Made are the objects, labelled with the home cluster's ID, that the agent
	// makes besides namespaces and pods.
	Made []cache.SharedIndexInformer
	// Quotas is one of Made.
	Quotas cache.SharedIndexInformer
	// Claims are those with the label of a home cluster, Healing the volumes whose
	// claim is being made anew.
	Claims, Healing cache.SharedIndexInformer

	factories []informers.SharedInformerFactory
}

// New returns Sources that are not yet started.
func New(client kubernetes.Interface, remote *remoteapi.Client) *Sources {
	all := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	made := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = keys.HomeID }))
	beats := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, keys.HeartbeatLease).String()
		}))
	healing := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = keys.Healing }))
	index := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	s := &Sources{
		Homes:      remoteapi.NewInformer(remote.HomeClusters(), &remotev1alpha1.HomeCluster{}, nil, cache.Indexers{}),
		Requests:   remoteapi.NewInformer(remote.NamespaceRequests(metav1.NamespaceAll), &remotev1alpha1.NamespaceRequest{}, nil, index),
		Shadows:    remoteapi.NewInformer(remote.ShadowPods(metav1.NamespaceAll), &remotev1alpha1.ShadowPod{}, nil, index),
		Namespaces: all.Core().V1().Namespaces().Informer(),
		Pods:       all.Core().V1().Pods().Informer(),
		Nodes:      all.Core().V1().Nodes().Informer(),
		Leases:     beats.Coordination().V1().Leases().Informer(),
		Quotas:     made.Core().V1().ResourceQuotas().Informer(),
		Claims:     made.Core().V1().PersistentVolumeClaims().Informer(),
		Healing:    healing.Core().V1().PersistentVolumes().Informer(),
		factories:  []informers.SharedInformerFactory{all, made, beats, healing},
	}
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

// Start starts the informers; they end with ctx, and Shutdown waits for it.
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

// Synced reports for each informer whether it has read all there is.
func (s *Sources) Synced() []cache.InformerSynced {
	synced := []cache.InformerSynced{
		s.Homes.HasSynced, s.Requests.HasSynced, s.Shadows.HasSynced,
		s.Namespaces.HasSynced, s.Pods.HasSynced, s.Nodes.HasSynced, s.Leases.HasSynced,
		s.Claims.HasSynced, s.Healing.HasSynced,
	}
	for _, i := range s.Made {
		synced = append(synced, i.HasSynced)
	}
	return synced
}

// slim drops what nobody here reads.
func slim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Labels[keys.HomeID] != "" {
		return object, nil
	}
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	for _, c := range pod.Spec.Containers {
		other.Spec.Containers = append(other.Spec.Containers, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	for _, c := range pod.Spec.InitContainers {
		other.Spec.InitContainers = append(other.Spec.InitContainers, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return other, nil
}
