// Package clients makes the typed clients and informers of the project's own kinds, reads the
// kubeconfigs of remote clusters, and holds back what must not be changed there (Gate). The clients
// are safe for concurrent use and do not retry.
package clients

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

type (
	// RemoteClusters reads and writes the RemoteClusters of the home cluster.
	RemoteClusters = gentype.ClientWithList[*v1alpha1.RemoteCluster, *v1alpha1.RemoteClusterList]
	// VolumeMoves reads and writes the VolumeMoves of a namespace of the home cluster.
	VolumeMoves = gentype.ClientWithList[*v1alpha1.VolumeMove, *v1alpha1.VolumeMoveList]
	// VolumeReplicas reads and writes the VolumeReplicas of a namespace of the home cluster.
	VolumeReplicas = gentype.ClientWithList[*v1alpha1.VolumeReplica, *v1alpha1.VolumeReplicaList]
	// HomeClusters reads and writes the HomeClusters of a remote cluster.
	HomeClusters = gentype.ClientWithList[*remotev1alpha1.HomeCluster, *remotev1alpha1.HomeClusterList]
	// NamespaceRequests reads and writes the NamespaceRequests of a namespace of a remote
	// cluster.
	NamespaceRequests = gentype.ClientWithList[*remotev1alpha1.NamespaceRequest, *remotev1alpha1.NamespaceRequestList]
	// ShadowPods reads and writes the ShadowPods of a namespace of a remote cluster.
	ShadowPods = gentype.ClientWithList[*remotev1alpha1.ShadowPod, *remotev1alpha1.ShadowPodList]
	// NetworkLinks reads and writes the NetworkLinks of a namespace of a cluster.
	NetworkLinks = gentype.ClientWithList[*networkv1alpha1.NetworkLink, *networkv1alpha1.NetworkLinkList]
	// ServiceExports reads and writes the ServiceExports of a namespace of a cluster.
	ServiceExports = gentype.ClientWithList[*mcs.ServiceExport, *mcs.ServiceExportList]
	// ServiceImports reads and writes the ServiceImports of a namespace of a cluster.
	ServiceImports = gentype.ClientWithList[*mcs.ServiceImport, *mcs.ServiceImportList]
)

// NewRemoteClusters returns the client of RemoteClusters of the cluster that config names.
func NewRemoteClusters(config *rest.Config) (*RemoteClusters, error) {
	group, err := newGroup(config, v1alpha1.GroupVersion, v1alpha1.AddToScheme, false)
	if err != nil {
		return nil, err
	}
	return typed[v1alpha1.RemoteCluster, v1alpha1.RemoteClusterList](group, "remoteclusters", ""), nil
}

// NewRemoteClusterInformer returns an informer on all RemoteClusters; the caller runs it.
func NewRemoteClusterInformer(client *RemoteClusters) cache.SharedIndexInformer {
	return NewInformer(client, &v1alpha1.RemoteCluster{}, nil, cache.Indexers{})
}

// VolumeMoveClient makes the clients of VolumeMoves and VolumeReplicas of one cluster.
type VolumeMoveClient struct{ group group }

// NewVolumeMoveClient returns a VolumeMoveClient of the cluster that config names.
func NewVolumeMoveClient(config *rest.Config) (*VolumeMoveClient, error) {
	group, err := newGroup(config, v1alpha1.GroupVersion, v1alpha1.AddToScheme, true)
	return &VolumeMoveClient{group}, err
}

// In returns the client of the VolumeMoves of a namespace, or of all if that is empty.
func (c *VolumeMoveClient) In(namespace string) *VolumeMoves {
	return typed[v1alpha1.VolumeMove, v1alpha1.VolumeMoveList](c.group, "volumemoves", namespace)
}

// NewVolumeMoveInformer returns an informer on all VolumeMoves; the caller runs it.
func NewVolumeMoveInformer(client *VolumeMoveClient) cache.SharedIndexInformer {
	return NewInformer(client.In(metav1.NamespaceAll), &v1alpha1.VolumeMove{}, nil, cache.Indexers{})
}

// Replicas returns the client of the VolumeReplicas of a namespace, or of all if that is empty.
func (c *VolumeMoveClient) Replicas(namespace string) *VolumeReplicas {
	return typed[v1alpha1.VolumeReplica, v1alpha1.VolumeReplicaList](c.group, "volumereplicas", namespace)
}

// NewVolumeReplicaInformer returns an informer on all VolumeReplicas; the caller runs it.
func NewVolumeReplicaInformer(client *VolumeMoveClient) cache.SharedIndexInformer {
	return NewInformer(client.Replicas(metav1.NamespaceAll), &v1alpha1.VolumeReplica{}, nil, cache.Indexers{})
}

// RemoteClient makes the clients of the API group remote.lodestone.dev, the objects of
// which are in remote clusters.
type RemoteClient struct{ group group }

// NewRemoteClient returns a RemoteClient of the cluster that config names.
func NewRemoteClient(config *rest.Config) (*RemoteClient, error) {
	group, err := newGroup(config, remotev1alpha1.GroupVersion, remotev1alpha1.AddToScheme, false)
	return &RemoteClient{group}, err
}

// HomeClusters returns the client of HomeClusters.
func (c *RemoteClient) HomeClusters() *HomeClusters {
	return typed[remotev1alpha1.HomeCluster, remotev1alpha1.HomeClusterList](c.group, "homeclusters", "")
}

// NamespaceRequests returns the client of the NamespaceRequests of a namespace, or of all
// if that is empty.
func (c *RemoteClient) NamespaceRequests(namespace string) *NamespaceRequests {
	return typed[remotev1alpha1.NamespaceRequest, remotev1alpha1.NamespaceRequestList](c.group, "namespacerequests", namespace)
}

// ShadowPods returns the client of the ShadowPods of a namespace, or of all if that is
// empty.
func (c *RemoteClient) ShadowPods(namespace string) *ShadowPods {
	return typed[remotev1alpha1.ShadowPod, remotev1alpha1.ShadowPodList](c.group, "shadowpods", namespace)
}

// NewNetworkLinks returns the client of the NetworkLinks of a namespace, or of all if that is empty, of the cluster that
// config names.
func NewNetworkLinks(config *rest.Config, namespace string) (*NetworkLinks, error) {
	group, err := newGroup(config, networkv1alpha1.GroupVersion, networkv1alpha1.AddToScheme, true)
	if err != nil {
		return nil, err
	}
	return typed[networkv1alpha1.NetworkLink, networkv1alpha1.NetworkLinkList](group, "networklinks", namespace), nil
}

// MultiClusterServices makes the clients of the Multi-Cluster Services API of one cluster.
type MultiClusterServices struct{ group group }

// NewMultiClusterServices returns a MultiClusterServices of the cluster that config names.
func NewMultiClusterServices(config *rest.Config) (*MultiClusterServices, error) {
	group, err := newGroup(config, mcs.SchemeGroupVersion, mcs.Install, true)
	return &MultiClusterServices{group}, err
}

// Exports returns the client of the ServiceExports of a namespace, or of all if that is empty.
func (c *MultiClusterServices) Exports(namespace string) *ServiceExports {
	return typed[mcs.ServiceExport, mcs.ServiceExportList](c.group, mcs.ServiceExportPluralName, namespace)
}

// Imports returns the client of the ServiceImports of a namespace, or of all if that is empty.
func (c *MultiClusterServices) Imports(namespace string) *ServiceImports {
	return typed[mcs.ServiceImport, mcs.ServiceImportList](c.group, mcs.ServiceImportPluralName, namespace)
}

// group has what is needed to reach one API group of one cluster.
type group struct {
	rest       *rest.RESTClient
	parameters runtime.ParameterCodec
}

// newGroup returns the group of a version. With forgiving, what cannot be decoded is as if it were not there (see readable): for
// kinds that tenants or peers write, and only where that something is gone harms nobody else.
func newGroup(config *rest.Config, version schema.GroupVersion, register func(*runtime.Scheme) error, forgiving bool) (group, error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return group{}, fmt.Errorf("register types of %s: %w", version, err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if forgiving {
		config.NegotiatedSerializer = readable{config.NegotiatedSerializer}
	}
	// Custom resources have no protobuf form.
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return group{}, fmt.Errorf("make client of %s: %w", version, err)
	}
	return group{client, runtime.NewParameterCodec(scheme)}, nil
}

type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

type list[T any] interface {
	*T
	runtime.Object
}

// typed returns the client of a resource whose objects are O, and whose lists are L.
func typed[O, L any, PO object[O], PL list[L]](g group, resource, namespace string) *gentype.ClientWithList[PO, PL] {
	return gentype.NewClientWithList(resource, g.rest, g.parameters, namespace,
		func() PO { return new(O) }, func() PL { return new(L) })
}

// lister is what an informer needs of a typed client.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer on the objects of a typed client that tweak, which may
// be nil, selects; the caller runs it. Example is an empty object of the type.
func NewInformer[L runtime.Object](client lister[L], example runtime.Object, tweak func(*metav1.ListOptions),
	indexers cache.Indexers,
) cache.SharedIndexInformer {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			tweak(&options)
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			tweak(&options)
			events, err := client.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return withoutUnreadable(events, example), nil
		},
	}, example, 0, indexers)
}
